"""A program of the user's own ends with whoever started it, and so does what it started."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trajectory.child_process import ChildProcess

FAMILY = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
STARTS = """\
import sys, time
from trajectory.child_process import ChildProcess
with ChildProcess([sys.executable, "-c", sys.argv[1]], stdout=sys.stdout.buffer, keep=[int(sys.argv[2])]):
    time.sleep(600)
"""


def until(holds: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for something that happens in another process."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def ended(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked yet how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_code_and_output_are_the_programs_own() -> None:
    with ChildProcess(["sh", "-c", "echo hello; exit 7"], stdout=subprocess.PIPE) as process:
        output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == (b"hello\n", 7)
    with ChildProcess(["sh", "-c", "kill -KILL $$"]) as process:
        assert process.wait(60) == -signal.SIGKILL
    with ChildProcess(["sh", "-c", "kill -TERM $$"]) as process:
        assert process.wait(60) == -signal.SIGTERM


def test_what_does_not_exist_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError), ChildProcess(["no-such-program"]):
        pass


@pytest.mark.parametrize("how", ["the block ends", "killed"])
def test_nothing_of_a_program_outlives_who_started_it(how: str, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as kept:
        if how == "killed":
            starter = subprocess.Popen(
                [sys.executable, "-c", STARTS, FAMILY, str(kept.fileno())],
                stdout=subprocess.PIPE,
                pass_fds=[kept.fileno()],
            )
            assert starter.stdout is not None
            child = int(starter.stdout.readline())
            starter.kill()
            starter.communicate(timeout=60)
        else:
            command = [sys.executable, "-c", FAMILY]
            # The child keeps the pipe open: it has these seconds after its parent.
            with ChildProcess(
                command, stdout=subprocess.PIPE, keep=[kept.fileno()], stop_seconds=2
            ) as process:
                assert process.stdout is not None
                child = int(process.stdout.readline())
            assert ended(process.pid)
    until(lambda: ended(child))
