"""A program that ends with whoever started it, together with all that it started itself.

The program runs in a session of its own, led by a guard: this file, run by a bare interpreter. The
guard passes signals and the exit code on, and holds one end of a pipe. When the process at the other
end is gone, killed or not, the guard asks the program to stop, and then kills the whole session.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import ENOENT
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

STOP_SECONDS = 30.0
_MASTER_KEY = "HEADRACE_MASTER_KEY"


def environment_of_others() -> dict[str, str]:
    """Return the environment for programs that are not Headrace's own: without the master key."""
    return {name: value for name, value in os.environ.items() if name != _MASTER_KEY}


class ChildProcess(subprocess.Popen[bytes]):
    """A running program; leaving its context, or the end of this process, stops all that is left of it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        """Start a program.

        Args:
            command: program and arguments.
            stdout: where its output goes.
            stderr: where its errors go.
            environment: its variables; ours when None.
            keep: descriptors that stay open in it, such as that of a lock.
            stop_seconds: how long it may take to stop before it is killed.

        Raises:
            OSError: there is no such program, or no room for another process.
        """
        found = shutil.which(command[0])
        if found is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), command[0])
        self._stop_seconds = stop_seconds
        theirs, ours = os.pipe()
        self._lifeline = os.fdopen(ours, "wb")
        guard = [sys.executable, "-IS", __file__, str(theirs), f"{stop_seconds:g}"]
        try:
            super().__init__(
                [*guard, found, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                pass_fds=(theirs, *keep),
                start_new_session=True,
            )
        except BaseException:
            self._lifeline.close()
            raise
        finally:
            os.close(theirs)

    def stop(self) -> bool:
        """Ask the program to stop, and kill what is left in time; return whether the program was."""
        is_late = False
        if self.poll() is None:
            self.terminate()
            try:
                self.communicate(timeout=self._stop_seconds)
            except subprocess.TimeoutExpired:
                is_late = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        self._lifeline.close()
        return is_late

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()
        super().__exit__(kind, value, traceback)


def open_log(path: Path) -> IO[bytes]:
    """Open a program's log for appending, its folder made, both for the owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab+")


def free_port() -> int:
    """Return a port of this machine that nothing listens on now, for a program to be started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _guard(lifeline: int, stop_seconds: float, command: list[str]) -> NoReturn:
    """Run a command to its end, or until nobody holds the other end of the lifeline."""
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: early.append(number))
    os.set_inheritable(lifeline, False)
    child = os.posix_spawn(command[0], command, os.environ)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: _send(child, number))
    for told in early:
        _send(child, told)
    is_alone = threading.Event()
    watch = (lifeline, child, stop_seconds, is_alone)
    threading.Thread(target=_watch, args=watch, daemon=True).start()
    _, status = os.waitpid(child, 0)
    if is_alone.is_set():
        os.killpg(0, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # Ended by a signal: whoever started us is to see that.
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _watch(lifeline: int, child: int, stop_seconds: float, is_alone: threading.Event) -> None:
    """Stop the session when whoever started it has gone."""
    os.read(lifeline, 1)  # nobody writes: it returns when the other end is closed
    is_alone.set()
    _send(child, signal.SIGTERM)
    time.sleep(stop_seconds)
    os.killpg(0, signal.SIGKILL)


def _send(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
