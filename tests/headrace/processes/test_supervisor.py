"""The supervisor restarts what dies, ends when told to, and its programs end with it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

SCRIPT = """
import json
import sys
from pathlib import Path

import headrace.processes.supervisor as supervisor

supervisor._RESTART_SECONDS = (0.1,)
supervisor.headrace_command = lambda arguments: [sys.executable, "-c", *arguments]
folder, ready = Path(sys.argv[1]), Path(sys.argv[1], "child")
programs = [
    supervisor.Program(
        name, (code, str(folder / name)), folder / f"{name}.log", drain_seconds=1.0, needed=needed
    )
    for name, code, needed in json.loads(sys.argv[2])
]
supervisor.Supervisor(programs, report=lambda text: print(text, flush=True)).run(
    is_ready=lambda: sys.argv[3] == "ready" and ready.exists(),
    announce=lambda: print("ready", flush=True),
)
"""

DIES = "import sys; open(sys.argv[1], 'a').write('x')"
STAYS = """
import os, sys, time
open(sys.argv[1], 'a').write(f'{os.getpid()} ')
time.sleep(600)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + STAYS
REFUSES = """
import sys
open(sys.argv[1], 'a').write('x')
print('headrace: no such key', file=sys.stderr)
sys.exit(2)
"""
REFUSES_LATER = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[1])
again = file.exists()
file.open('a').write('x')
time.sleep(0 if again else 600)
print('headrace: no such key', file=sys.stderr)
sys.exit(2)
"""


type Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor of programs (name, code, whether it is needed)."""
    with ExitStack() as started:

        def begin(*programs: tuple[str, str, bool], ready: bool = True) -> subprocess.Popen[str]:
            arguments = [str(tmp_path), json.dumps(programs), "ready" if ready else "not"]
            process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield begin


def said(folder: Path, name: str = "child") -> str:
    file = folder / name
    return file.read_text(encoding="ascii") if file.exists() else ""


def wait_for(folder: Path, count: int, name: str = "child") -> None:
    """Wait until a program has begun so many times."""
    deadline = time.monotonic() + 60
    while len(said(folder, name)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a dead child of a dead parent, which nobody has to collect here


def test_a_program_that_dies_is_started_again(tmp_path: Path, start: Start) -> None:
    process = start(("child", DIES, True))
    wait_for(tmp_path, 3)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert "child: ended with 0; starting it again in 0.1 s" in output
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_or_a_closed_terminal_ends_the_programs_too(
    tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    process = start(("child", STAYS, True))
    wait_for(tmp_path, 1)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert not is_running(int(said(tmp_path).split()[0]))
    assert (tmp_path / "child.log").exists()


def test_a_needed_program_that_refuses_its_settings_at_the_start_ends_it_all(
    start: Start,
) -> None:
    process = start(("child", REFUSES, True), ready=False)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "child: no such key" in errors


@pytest.mark.parametrize("ready", [True, False])
def test_a_program_beside_that_refuses_its_settings_ends_nothing(
    tmp_path: Path, start: Start, ready: bool
) -> None:
    process = start(("child", STAYS, True), ("beside", REFUSES, False), ready=ready)
    wait_for(tmp_path, 3, "beside")
    assert process.poll() is None
    assert len(said(tmp_path).split()) == 1
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    # Said once for each length of the pause, and not each time.
    assert re.findall("beside: .*", output)[0].startswith("beside: no such key; starting it again")
    assert len(re.findall("beside: ", output)) == 1


def test_what_refuses_its_settings_later_ends_nothing(tmp_path: Path, start: Start) -> None:
    process = start(("child", REFUSES_LATER, True))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    wait_for(tmp_path, 1)
    listing = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    os.kill(int(listing.stdout), signal.SIGKILL)  # out of memory, say; its settings changed since
    wait_for(tmp_path, 3)
    assert process.poll() is None
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "child: ended with -9" in output
    assert "child: no such key" in output


@pytest.mark.parametrize("child", [STAYS, DEAF])
def test_programs_end_with_a_supervisor_that_is_killed(
    tmp_path: Path, start: Start, child: str
) -> None:
    process = start(("child", child, True))
    wait_for(tmp_path, 1)
    pid = int(said(tmp_path).split()[0])
    process.kill()
    process.communicate(timeout=60)
    wait_for_end(pid)


def test_what_cannot_be_started_again_ends_nothing(tmp_path: Path, start: Start) -> None:
    process = start(("child", STAYS, True), ("beside", DIES, False))
    wait_for(tmp_path, 2, "beside")
    log = tmp_path / "beside.log"
    while not log.is_dir():  # no file can be opened there
        log.unlink(missing_ok=True)
        with suppress(FileExistsError):  # it was started in between
            log.mkdir()
    assert process.stdout is not None
    while "cannot be started: Is a directory" not in process.stdout.readline():
        assert process.poll() is None
    log.rmdir()
    before = len(said(tmp_path, "beside"))
    wait_for(tmp_path, before + 1, "beside")
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
