"""The kernel's fence: a process that gave up files, network and processes cannot have them back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.sandbox.confinement import available

_TRIES = """
import json, os, socket, subprocess, sys, threading
from lakehouse.sandbox.confinement import confine, limit

allowed, other, network = sys.argv[1:]
limit(memory_mib=600, cpu_seconds=20)
held = confine([allowed], network=network == "True")

def try_it(work):
    try:
        work()
    except (OSError, MemoryError) as error:
        return type(error).__name__
    return "done"

seen = {
    "read allowed": try_it(lambda: open(allowed).read()),
    "read other": try_it(lambda: open(other).read()),
    "read proc": try_it(lambda: open("/proc/self/environ").read()),
    "list": try_it(lambda: os.listdir("/")),
    "write allowed": try_it(lambda: open(allowed, "a")),
    "create": try_it(lambda: open(other + ".new", "w")),
    "remove": try_it(lambda: os.unlink(other)),
    "tcp": try_it(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
    "udp": try_it(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    "unix": try_it(lambda: socket.socketpair()),
    "listen": try_it(lambda: socket.create_server(("127.0.0.1", 0))),
    "program": try_it(lambda: os.execv("/bin/true", ["true"])),
    "fork": try_it(os.fork),
    "kill": try_it(lambda: os.kill(os.getppid(), 0)),
    "memory": try_it(lambda: bytearray(900 << 20)),
}
thread = threading.Thread(target=lambda: seen.update({"read in a new thread": try_it(lambda: open(other))}))
thread.start()
thread.join()
print(json.dumps({"held": held, "seen": seen}))
"""


@pytest.mark.parametrize("network", [False, True])
def test_what_was_given_up_stays_given_up(tmp_path: Path, network: bool) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.write_text("a", encoding="ascii")
    other.write_text("b", encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-c", _TRIES, str(allowed), str(other), str(network)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    seen = found["seen"]
    assert tuple(found["held"]) == available()
    assert seen["read allowed"] == "done"
    assert seen["memory"] == "MemoryError"
    expected = set()
    if "landlock" in found["held"]:
        expected |= {"read other", "read proc", "list", "write allowed", "create", "remove"}
        expected |= {"read in a new thread"}
    if "seccomp" in found["held"]:
        expected |= {"listen", "program", "fork", "kill"}
        expected |= set() if network else {"tcp", "udp", "unix"}
        assert not network or (seen["udp"], seen["unix"]) == ("done", "done")
    if not expected:
        pytest.skip("this kernel has neither Landlock nor seccomp filters")
    assert {name for name in expected if seen[name] != "PermissionError"} == set()
    assert other.exists()
    assert os.path.getsize(allowed) == 1  # noqa: PTH202
