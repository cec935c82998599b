"""Runs the processes of ``headrace up``: starts them, restarts what dies, and drains them at the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from trajectory.errors import ConfigurationError

_RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STABLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """One process to keep running: the arguments of the ``headrace`` command and where it logs."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    drain_seconds: float = 30.0
    """How long it may take to finish after SIGTERM before it is killed."""


def headrace_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs ``headrace`` with this interpreter and these packages."""
    return [sys.executable, "-P", "-m", "headrace", *arguments]


class Supervisor:
    """Keeps programs running until it is told to stop.

    A program that dies is started again after a pause that grows with each early death. On
    SIGTERM or SIGINT, or when its terminal closes, the programs get SIGTERM in order, each with its
    own time to drain.
    """

    def __init__(self, programs: Sequence[Program], *, report: Callable[[str], None]) -> None:
        self._programs = programs
        self._report = report
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
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
            ConfigurationError: a program refused its settings; the text is its own last words.
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
                    announce()
                    announced = True
                for program in self._programs:
                    self._mend(program)
        finally:
            self._stop_all()

    def _ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, program: Program) -> None:
        program.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_log(program.log) as log:
            self._processes[program.name] = subprocess.Popen(
                headrace_command(program.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started[program.name] = time.monotonic()

    def _mend(self, program: Program) -> None:
        process = self._processes[program.name]
        code = process.poll()
        if code is None:
            return
        now = time.monotonic()
        due = self._restart_at.get(program.name)
        if due is None:
            if code == 2:
                raise ConfigurationError(f"{program.name}: {_last_words(program.log)}")
            early = now - self._started[program.name] < _STABLE_SECONDS
            deaths = self._deaths.get(program.name, 0) + 1 if early else 1
            self._deaths[program.name] = deaths
            pause = _RESTART_SECONDS[min(deaths, len(_RESTART_SECONDS)) - 1]
            self._restart_at[program.name] = now + pause
            self._report(
                f"{program.name} ended with {code}; starting it again in {pause:g} s "
                f"(see {program.log})"
            )
        elif now >= due:
            del self._restart_at[program.name]
            self._start(program)

    def _stop_all(self) -> None:
        for program in self._programs:
            process = self._processes.get(program.name)
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(program.drain_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self._report(f"{program.name} did not drain in {program.drain_seconds:g} s; killed")


def _last_words(log: Path) -> str:
    lines = [
        line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line
    ]
    return lines[-1].removeprefix("headrace: ") if lines else f"refused to start; see {log}"


def open_log(path: Path) -> IO[bytes]:
    """Open a log for appending, readable by the owner alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "ab")
