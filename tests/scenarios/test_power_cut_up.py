"""Power cuts while ``headrace up`` serves clients, on a disk that really has no more than was synced.

The home lies in a file system within a file. What was not synced when the processes stop is only in the
memory of the machine, so a copy of that file is the disk as a power cut leaves it.
"""

import http.client
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from headrace import open_lake
from headrace.processes.supervisor import headrace_command
from tests.support.ports import free_port
from tests.support.provider import provider
from tests.support.upstream import Upstream

CLIENTS = 3


class Disk:
    """A file system in a file, mounted until the power is cut."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "disk"
        self._file = folder / "disk.img"
        self.place.mkdir()
        with self._file.open("wb") as file:
            file.truncate(700 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._file], check=True)
        self.mount()

    def mount(self) -> None:
        # Until then a name reaches the disk only where somebody syncs.
        options = "loop,commit=300"
        subprocess.run(["mount", "-o", options, self._file, self.place], check=True)

    def cut(self, up: "subprocess.Popen[str]") -> None:
        """Cut the power while a command and its children run, and start again."""
        running = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
        _each(running, signal.SIGSTOP)
        left = self._file.with_suffix(".left")
        subprocess.run(["cp", "--sparse=always", self._file, left], check=True)
        _each(running, signal.SIGKILL)
        up.wait(60)
        self.unmount()
        left.replace(self._file)
        self.mount()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.place], check=True)


def _each(processes: list[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(number)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        made = Disk(tmp_path)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("needs mkfs.ext4 and the right to mount a file")
    yield made
    made.unmount()


class Clients:
    """Ask one question after the other, each as one of four people, and keep what was answered."""

    def __init__(self, port: int, key: str) -> None:
        self.answered: dict[str, str] = {}
        """Who asked, by the id of the exchange."""
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number, port, key))
            for number in range(CLIENTS)
        ]
        for one in self._threads:
            one.start()

    def end(self) -> None:
        self._over.set()
        for one in self._threads:
            one.join(60)

    def wait(self, count: int) -> None:
        until = time.monotonic() + 240
        while len(self.answered) < count:
            assert time.monotonic() < until, f"{len(self.answered)} of {count} answers"
            time.sleep(0.05)

    def _ask(self, number: int, port: int, key: str) -> None:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        at = 0
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
            while not self._over.wait(0.02):
                at += 1
                who = f"person-{at % 4}"
                said = {"role": "user", "content": f"What are {number} and {at}?"}
                body = json.dumps({"model": "m", "user": who, "messages": [said]})
                try:
                    connection.request("POST", "/shop/v1/chat/completions", body, headers)
                    answer = connection.getresponse()
                    if answer.read() and answer.status == 200:
                        self.answered[answer.headers["x-headrace-step"]] = who
                except (OSError, http.client.HTTPException):  # not up yet, or the power is off
                    connection.close()  # the next request opens it again


def started(home: Path, port: int, upstream: Upstream) -> "subprocess.Popen[str]":
    route = {"name": "shop", "upstream": upstream.url, "durability": "durable", "step_header": True}
    settings = {
        "gateway": {"port": port, "forward_port": None, "admin_port": None, "routes": [route]},
        "console": {"enabled": False},
        "govern": {"maintenance_seconds": 5},
    }
    home.mkdir(exist_ok=True)
    (home / "headrace.yaml").write_text(json.dumps(settings))
    command = headrace_command(["--home", str(home), "up"])
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )


def headrace(home: Path, *arguments: str) -> str:
    """Run a command in a process of its own: within the tests' process nothing is synced."""
    command = headrace_command(["--home", str(home), *arguments])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_answered_exchange_is_lost_or_doubled_and_no_erased_person_comes_back(
    disk: Disk,
) -> None:
    home = disk.place / "home"
    home.mkdir()
    create = ["keys", "create", "--tenant", "acme", "--app", "agent", "--json"]
    key = json.loads(headrace(home, *create))["key"]
    answered: dict[str, str] = {}
    gone: set[str] = set()
    with Upstream(provider) as upstream:
        for cut in range(2):
            port = free_port()
            up = started(home, port, upstream)
            clients = Clients(port, key)
            try:
                clients.wait(100 + 60 * cut)
                if cut == 1:  # whatever was governed by now
                    headrace(home, "erase", "person-1", "--tenant", "acme", "--yes")
                    gone = {one for one, who in answered.items() if who == "person-1"}
            finally:
                before = dict(clients.answered)
                disk.cut(up)
                clients.end()
            answered |= before
            headrace(home, "govern", "--once")
    headrace(home, "lake", "verify")
    headrace(home, "audit", "verify")
    with open_lake(home / "lake") as lake:
        governed = lake.sql("SELECT exchange_id FROM exchanges")["exchange_id"].to_pylist()
        steps = lake.sql("SELECT exchange_id FROM steps")["exchange_id"].to_pylist()
    assert len(governed) == len({*governed})
    assert len(steps) == len({*steps})
    assert not gone & {*steps}
    lost = {one for one, who in answered.items() if who != "person-1"} - {*governed}
    assert not lost
