"""An intake in a process of its own: the next batch is read and placed while one is judged and committed.

The two halves cost about the same, and Python lets one process do one thing at a time. The process
is asked for one batch at a time and told where it begins; it writes nothing, so that it may die at
any moment: who asked goes on alone, from what the checkpoint and the spool remember.
"""

import os
import pickle
import struct
import subprocess
import sys
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from headrace.handing import Receiver, Sender
from headrace.intake import Intake, Placed, Source
from proxy.spool import Cursor
from trajectory.collector import uncollected
from trajectory.errors import RetryableError

_LENGTH = struct.Struct(">Q")


class IntakeEndedError(RetryableError):
    """The process has died or cannot go on; nothing is lost."""


@dataclass(slots=True)
class Parcel:
    """A batch as it came over, and what must be known of it before it is opened."""

    records: int
    cursor: Cursor
    size: int
    is_full: bool
    data: bytes
    receiver: Receiver

    def open(self) -> Placed:
        """Return the batch, once; parcels are opened in the order in which they came."""
        data, self.data = self.data, b""
        return self.receiver.load(data)


class IntakeProcess:
    """The asking side.

    Raises:
        IntakeEndedError: by every method, when the process is gone or met an error.
    """

    def __init__(self, source: Source, state: bytes) -> None:
        """Start the process with what an intake remembers."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "headrace.intake_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        self.close = weakref.finalize(self, _end, self._process)
        self._receiver = Receiver()
        self.is_asked = False
        """A batch was asked for and not received yet."""
        try:
            self._send((source, state))
        except IntakeEndedError:
            raise
        except Exception as error:
            raise IntakeEndedError("what is read cannot be told to another process") from error

    def ask(self, cursor: Cursor, limit: int) -> None:
        """Ask for the batch after ``cursor``, which must be the end of the one before."""
        self._send((cursor, limit))
        self.is_asked = True

    def receive(self) -> Parcel | None:
        """Wait for the batch that was asked for; None when the spool has nothing."""
        self.is_asked = False
        if (head := self._answer()) is None:
            return None
        records, cursor, size, is_full = head
        return Parcel(records, cursor, size, is_full, self._read(), self._receiver)

    def state(self) -> bytes:
        """Return what is remembered after the last batch received."""
        self._send("state")
        self._answer()
        return self._read()

    def _send(self, message: object) -> None:
        try:
            _write(_pipe(self._process.stdin), pickle.dumps(message))
        except OSError as error:
            raise IntakeEndedError("the process that reads the spool has ended") from error

    def _read(self) -> bytes:
        try:
            return _read(_pipe(self._process.stdout))
        except (OSError, EOFError) as error:
            raise IntakeEndedError("the process that reads the spool has ended") from error

    def _answer(self) -> Any:
        said, value = pickle.loads(self._read())  # noqa: S301 - our own process
        if said != "done":
            raise IntakeEndedError(f"the process that reads the spool met {value}")
        return value


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until they end."""
    source, state = pickle.loads(_read(requests))  # noqa: S301 - who started us
    intake: Intake | None = None
    sender = Sender()
    while True:
        try:
            request = pickle.loads(_read(requests))  # noqa: S301 - as above
        except EOFError:
            return
        try:
            intake, state = intake or Intake(source, state), b""
            head, body = _answer(intake, sender, request)
        except Exception as error:  # noqa: BLE001 - who asked meets it again alone, and says it there
            _write(answers, pickle.dumps(("failed", type(error).__name__)))
            return
        _write(answers, pickle.dumps(("done", head)))
        if body is not None:
            _write(answers, body)
        del body  # megabytes, until the next request is answered


def _answer(
    intake: Intake, sender: Sender, request: str | tuple[Cursor, int]
) -> tuple[object, bytes | None]:
    if isinstance(request, str):
        return None, intake.state()
    placed = intake.take(*request)
    if placed is None:
        return None, None
    batch = placed.batch
    return (len(batch.records), batch.cursor, batch.size, batch.is_full), sender.dump(placed)


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the process has pipes")
    return pipe


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def main() -> None:
    """Serve whoever started this process; what libraries print must not get between answers."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with uncollected(), suppress(BrokenPipeError), answers:
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()

__all__ = ["IntakeEndedError", "IntakeProcess", "Parcel", "serve"]
