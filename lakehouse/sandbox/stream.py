"""The answer of a query's process: rows as they come, limited in time, and how they ended."""

import io
import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Buffer, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

import pyarrow as pa

from lakehouse.errors import QueryError
from lakehouse.sandbox.deadline import QueryTimeoutError
from lakehouse.sandbox.request import Limits
from trajectory.errors import RetryableError, WorkError

_END = b"headrace.end"
_LOOK_SECONDS = 0.2
_BUFFER_BYTES = 1 << 16


class _Pipe(io.RawIOBase):
    """A pipe that is waited for in short turns: a signal that came just before a wait is heard."""

    def __init__(self, fileno: int) -> None:
        self._fileno = fileno
        self._poll = select.poll()
        self._poll.register(fileno, select.POLLIN)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Read what is there, or wait for it."""
        while not self._poll.poll(_LOOK_SECONDS * 1000):
            pass
        return os.readv(self._fileno, [buffer])


class QueryCancelledError(WorkError):
    """The caller has gone; the statement was killed."""


class QueryResult:
    """The answer to one query; leaving it (``with``) kills its process.

    Iterating yields record batches and raises what went wrong on the way, so that rows which
    stop early are never taken for all of them.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        request: bytes,
        limits: Limits,
        gone: Callable[[], bool],
    ) -> None:
        self._process = process
        self._limits = limits
        self._gone = gone
        self._stopped: type[WorkError] | None = None
        self._told: Callable[[Exception], None] | None = None
        self._over = threading.Event()
        self.rows = 0
        """Rows that were read so far."""
        self.bytes = 0
        """Bytes of them in memory."""
        self.truncated = False
        """True when the limit of rows cut the result; known at its end."""
        self.schema: pa.Schema = pa.schema([])
        self.tables: tuple[str, ...] = ()
        """What the statement named after FROM and JOIN."""
        self.parameters: tuple[str, ...] = ()
        """Names of the statement's parameters."""
        self.confined: tuple[str, ...] = ()
        """Which of the kernel's fences held."""
        threading.Thread(target=self._watch, name="query deadline", daemon=True).start()
        try:
            self._begin(request)
        except BaseException:
            self.close()
            raise

    def _begin(self, request: bytes) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise TypeError("a query's process has pipes")
        with suppress(BrokenPipeError):
            stdin.write(request)
            stdin.flush()
        answer = io.BufferedReader(_Pipe(stdout.fileno()), _BUFFER_BYTES)
        line = answer.readline()
        if not line.endswith(b"\n"):
            raise self._broken()
        header = json.loads(line)
        if header["status"] != "rows":
            raise self._refusal(header)
        self.tables = tuple(header["tables"])
        self.parameters = tuple(header["parameters"])
        self.confined = tuple(header["confined"])
        try:
            self._reader = pa.ipc.open_stream(answer)
        except (pa.ArrowInvalid, OSError) as error:
            raise self._broken() from error
        self.schema = self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch, metadata = self._reader.read_next_batch_with_custom_metadata()
            except (StopIteration, pa.ArrowInvalid, OSError) as error:
                raise self._broken() from error
            if metadata is not None and _END in metadata:
                end = json.loads(metadata[_END])
                if end["status"] != "done":
                    raise self._refusal(end)
                self.truncated = bool(end["truncated"])
                return
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; rows that were not read are gone."""
        self._over.set()
        end(self._process)

    def when_stopped(self, tell: Callable[[Exception], None]) -> None:
        """Have ``tell`` called, from another thread, once the process was killed before its end.

        Who reads the rows may never come back to hear of it: it waits for a client.
        """
        self._told = tell
        if self._stopped is not None:
            tell(self._broken())

    def _watch(self) -> None:
        due = time.monotonic() + self._limits.seconds
        while not self._over.wait(min(_LOOK_SECONDS, max(0.0, due - time.monotonic()))):
            if self._gone():
                self._stopped = QueryCancelledError
            elif time.monotonic() >= due:
                self._stopped = QueryTimeoutError
            else:
                continue
            self._process.kill()
            if self._told is not None:
                self._told(self._broken())
            return

    def _refusal(self, end: Mapping[str, Any]) -> Exception:
        if end["status"] == "retry":
            return RetryableError(end["message"])
        return QueryError(end["message"])

    def _broken(self) -> Exception:
        """Return why the process stopped speaking."""
        if self._stopped is QueryTimeoutError:
            return QueryTimeoutError(
                f"the query was stopped after {self._limits.seconds:g} s; narrow it (a tenant, a "
                "day, fewer columns) or raise the limit"
            )
        if self._stopped is not None:
            return self._stopped("the query was stopped: nobody waits for its answer")
        return RetryableError(
            f"the query's process ended without an answer; it probably needed more than "
            f"{self._limits.memory_mib} MiB: select fewer columns or rows, or raise the limit"
        )


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a query's process and close its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
