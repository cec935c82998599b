"""The tapped child process: bytes, signals, end of input and exit code pass through unchanged.

Each direction has a thread that reads what is there, lets it be recorded, and writes it on. What
a message's receiver has seen is therefore in the spool already. Recording that fails is counted;
the bytes go on. Where rules guard the server, lines go on to it once they are judged.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from proxy.tap.line_guard import LineGuard, LineWriter
from proxy.tap.messages import LineCutter
from proxy.telemetry.counters import Counters
from trajectory.errors import ConfigurationError
from trajectory.exchange import ExchangeOutcome

_PIECE = 65536
_DRAIN_SECONDS = 5.0
_PASSED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)


class Listener(Protocol):
    """Takes the messages that pass."""

    def message(self, line: bytes, *, from_client: bool) -> str:
        """Take one line; return the step that it is, where it is one."""

    def close(self, outcome: ExchangeOutcome) -> None:
        """Take notice of the end and finish up; signals wait until this has returned."""


class _Pump(threading.Thread):
    """Copies one direction until either side closes."""

    def __init__(
        self,
        source: int,
        writer: LineWriter,
        hear: Callable[[bytes], None],
        close: Callable[[], None],
        guard: LineGuard | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._source, self._writer = source, writer
        self._hear, self._close = hear, close
        self._guard = guard
        self.broken = False
        """Whether the reading side went away."""

    def run(self) -> None:
        guard = self._guard
        while data := _read(self._source):
            self._hear(data)
            told = data if guard is None else guard.feed(data)
            if told and not self._writer.passed(told):
                self.broken = True
                break
        if guard is not None and (rest := guard.end()):
            self._writer.passed(rest)
        self._close()


def _read(source: int) -> bytes:
    try:
        return os.read(source, _PIECE)
    except OSError:
        return b""


def _hearer(
    listener: Listener | None, counters: Counters, *, from_client: bool
) -> Callable[[bytes], None]:
    """Return what hears one direction; whatever fails in it costs messages, never the pipe."""
    if listener is None:
        return lambda _: None
    cutter = LineCutter()

    def hear(data: bytes) -> None:
        try:
            for line in cutter.feed(data):
                listener.message(line, from_client=from_client)
            if cutter.dropped:
                counters.uncaptured["line-too-long"] += cutter.dropped
                cutter.dropped = 0
        except Exception:  # noqa: BLE001 - the message goes on whatever capture does
            counters.faults += 1

    return hear


def run_tapped(
    command: Sequence[str],
    environment: dict[str, str],
    listen: Callable[[], Listener | None],
    counters: Counters,
    guards: Callable[[], LineGuard | None] = lambda: None,
) -> int:
    """Run ``command`` as a child between our own standard input and output until it ends.

    Args:
        command: program and arguments.
        environment: what the child gets.
        listen: gives who takes the messages, called once the child runs; None takes none.
        counters: where losses are counted.
        guards: gives what judges the client's lines, called after ``listen``; None lets all pass.

    Returns:
        The child's exit code; negative, the signal that ended it.

    Raises:
        ConfigurationError: the program cannot be started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED, signal.SIGCHLD})
    try:
        child = _start(command, environment, before)
        listener = listen()
        guard = guards()
        _, from_server = _pumps(child, listener, counters, guard)
        _attend(child)
        from_server.join(_DRAIN_SECONDS)
        if guard is not None:
            guard.close()
        if listener is not None:
            gone = from_server.broken
            listener.close(ExchangeOutcome.CLIENT_ABORT if gone else ExchangeOutcome.UPSTREAM_ABORT)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode


def _start(
    command: Sequence[str], environment: dict[str, str], mask: Iterable[int]
) -> "subprocess.Popen[bytes]":
    # Threads come later: nothing else runs in this process between fork and exec.
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )
    except OSError as error:
        raise ConfigurationError(
            f"cannot start {command[0]!r}: {error.strerror}; give the MCP server's own command "
            "after `--`"
        ) from None


def _pumps(
    child: "subprocess.Popen[bytes]",
    listener: Listener | None,
    counters: Counters,
    guard: LineGuard | None,
) -> tuple[_Pump, _Pump]:
    """Start both directions; a side that closes is closed on the other side too."""
    stdin, stdout = child.stdin, child.stdout
    if stdin is None or stdout is None:
        raise ValueError("the child was started without pipes")

    server, client = LineWriter(stdin.fileno()), LineWriter(1)

    def end_input() -> None:
        server.close()
        with suppress(OSError):
            stdin.close()
        with suppress(OSError):
            os.close(0)

    def end_output() -> None:
        with suppress(OSError):
            stdout.close()

    # A guard lets lines be recorded itself: it has to know which step each is.
    hear = _hearer(listener if guard is None else None, counters, from_client=True)
    if guard is not None:
        guard.to_server, guard.to_client = server.line, client.line
    to_server = _Pump(0, server, hear, end_input, guard)
    from_server = _Pump(
        stdout.fileno(), client, _hearer(listener, counters, from_client=False), end_output
    )
    to_server.start()
    from_server.start()
    return to_server, from_server


def _attend(child: "subprocess.Popen[bytes]") -> None:
    """Pass signals on until the child ends."""
    while child.poll() is None:
        number, by_terminal = _next_signal()
        if number in _PASSED and not by_terminal:
            with suppress(ProcessLookupError):
                child.send_signal(number)


def _next_signal() -> tuple[int, bool]:
    """Wait for a signal; tell whether the terminal sent it, to the child as well then."""
    wanted = {*_PASSED, signal.SIGCHLD}
    wait = getattr(signal, "sigwaitinfo", None)
    if wait is None:  # macOS
        return signal.sigwait(wanted), False
    info = wait(wanted)
    return info.si_signo, info.si_code > 0
