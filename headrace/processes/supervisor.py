"""Runs the processes of ``headrace up``: starts them, restarts what dies, and drains them at the end."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from trajectory.child_process import ChildProcess, open_log
from trajectory.errors import ConfigurationError

PROCESS_VARIABLE = "HEADRACE_PROCESS"
"""Tells a command which of Headrace's processes started it."""
_RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STABLE_SECONDS = 60.0
_REFUSED = 2
"""Exit code of a program that refuses its settings."""
_LAST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """One process to keep running: the arguments of the ``headrace`` command and where it logs."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    drain_seconds: float = 30.0
    """How long it may take to finish after SIGTERM before it is killed."""
    needed: bool = False
    """Nothing begins without it: where it refuses its settings at the start, all ends."""


def headrace_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs ``headrace`` with this interpreter and these packages."""
    return [sys.executable, "-P", "-m", "headrace", *arguments]


def in_the_name_of(process: str) -> dict[str, str]:
    """Return the variables of a command that one of Headrace's processes starts: the audit log names that one."""
    return {**os.environ, PROCESS_VARIABLE: process}


class Supervisor:
    """Keeps programs running until it is told to stop.

    A program that dies is started again after a pause that grows with each early death; once all
    began, none of them can end the others. On SIGTERM or SIGINT, or when its terminal closes, the
    programs get SIGTERM in order, each with its own time to drain. Where the supervisor itself is
    killed, they stop by themselves.
    """

    def __init__(self, programs: Sequence[Program], *, report: Callable[[str], None]) -> None:
        self._programs = programs
        self._report = report
        self._reported: dict[str, str] = {}
        self._processes: dict[str, ChildProcess] = {}
        self._started: dict[str, float] = {}
        self._restart_at: dict[str, float] = {}
        self._deaths: dict[str, int] = {}
        self._stopping = False

    def run(self, *, is_ready: Callable[[], bool], announce: Callable[[], None]) -> None:
        """Start everything, and stay until a signal asks to stop.

        Args:
            is_ready: asked until it says yes.
            announce: called once, then.

        Raises:
            ConfigurationError: a program that is needed refused its settings before all was ready;
                the text is its own last words.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup: it may close
            signal.signal(signal.SIGHUP, self._ask_to_stop)
        try:
            for program in self._programs:
                self._start(program)
            announced = False
            while not self._stopping:
                time.sleep(0.2)
                if not announced and is_ready():
                    with suppress(OSError):  # nobody reads it any more
                        announce()
                    announced = True
                for program in self._programs:
                    self._mend(program, may_end=program.needed and not announced)
        finally:
            self._stop_all()

    def _ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, program: Program) -> None:
        self._started[program.name] = time.monotonic()
        with open_log(program.log) as log:
            self._processes[program.name] = ChildProcess(
                headrace_command(program.arguments),
                stdout=log,
                stderr=log,
                stop_seconds=program.drain_seconds,
            )

    def _mend(self, program: Program, *, may_end: bool) -> None:
        process = self._processes[program.name]
        code = process.poll()
        if code is None:
            return
        process.stop()  # nothing that it started stays
        now = time.monotonic()
        due = self._restart_at.get(program.name)
        if due is None:
            if code == _REFUSED and may_end:
                raise ConfigurationError(f"{program.name}: {_last_words(program.log)}")
            refused = code == _REFUSED
            self._later(program, _last_words(program.log) if refused else f"ended with {code}")
        elif now >= due:
            del self._restart_at[program.name]
            try:
                self._start(program)
            except OSError as error:  # no process, no file, no room for its log
                self._later(program, f"cannot be started: {error.strerror}")

    def _later(self, program: Program, why: str) -> None:
        """Start a program again after a pause, and say so where the reason is a new one."""
        now, name = time.monotonic(), program.name
        early = now - self._started[name] < _STABLE_SECONDS
        deaths = self._deaths.get(name, 0) + 1 if early else 1
        self._deaths[name] = deaths
        pause = _RESTART_SECONDS[min(deaths, len(_RESTART_SECONDS)) - 1]
        self._restart_at[name] = now + pause
        if early and self._reported.get(name) == why and deaths > len(_RESTART_SECONDS):
            return
        self._reported[name] = why
        self._say(f"{name}: {why}; starting it again in {pause:g} s (see {program.log})")

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a terminal that is gone ends nothing
            self._report(text)

    def _stop_all(self) -> None:
        for program in self._programs:
            process = self._processes.get(program.name)
            if process is not None and process.stop():
                self._say(f"{program.name} did not drain in {program.drain_seconds:g} s; killed")


def _last_words(log: Path) -> str:
    said = b""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        said = file.read()
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line]
    return lines[-1].removeprefix("headrace: ") if lines else f"refused to start; see {log}"
