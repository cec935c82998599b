"""Runs a program that ends with whoever started it, together with all that it started itself.

The program runs in a session of its own, led by a guard: this file, run by a bare interpreter. The
guard waits for the program and holds one end of a pipe. When the process at the other end is gone,
killed or not, the guard asks its whole session to stop, and then insists.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import ENOENT
from typing import IO, NoReturn

GRACE_SECONDS = 30.0
"""How long a program may take to stop before it is killed."""


@contextmanager
def program(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program; whatever is left of it when the block or this process ends is stopped.

    Args:
        command: program and arguments.
        stdout: where its output goes.
        stderr: where its errors go.
        environment: its variables; ours when None.
        keep: descriptors that stay open in it, such as that of a lock.

    Raises:
        OSError: there is no such program.
    """
    found = shutil.which(command[0])
    if found is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command[0])
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-IS", __file__, str(theirs), found, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            pass_fds=(theirs, *keep),
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                _stop(process)
    finally:
        os.close(theirs)
        os.close(ours)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask the session to stop, then insist; of one whose leader has ended, nothing stays."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def _guard(lifeline: int, command: list[str]) -> NoReturn:
    """Run a command to its end, or until nobody holds the other end of the lifeline."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Meant for the program, which gets it too; one that is ignored would be ignored there.
        signal.signal(number, lambda *_: None)
    os.set_inheritable(lifeline, False)
    child = os.posix_spawn(command[0], command, os.environ)
    alone = threading.Event()
    threading.Thread(target=_watch, args=(lifeline, alone), daemon=True).start()
    _, status = os.waitpid(child, 0)
    if alone.is_set():
        os.killpg(0, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # Ended by a signal: whoever started us is to see that.
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _watch(lifeline: int, alone: threading.Event) -> None:
    """Stop the session when whoever started it has gone."""
    os.read(lifeline, 1)
    alone.set()
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2:])
