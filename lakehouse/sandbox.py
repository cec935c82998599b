"""SQL of strangers: a process of its own that can read the lake's files, nothing else, not for long.

What stands between a statement and the machine, from the outside in:

1. only a single SELECT that names tables is let through (:mod:`lakehouse.statement`);
2. a DuckDB without extensions and Python variables, whose access to files ends at the active files
   of the tables (of one tenant, when that is asked for) and whose configuration is locked;
3. limits of the kernel on memory, CPU seconds and written bytes (none), and the kernel's own fence
   around files, network and processes (:mod:`lakehouse.confinement`);
4. a process with an empty environment that is killed at the deadline, or when
   whoever asked has gone.

Results come as a stream, limited in rows and bytes; nothing of them is held in this process.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehouse.connection import QueryError
from lakehouse.deadline import QueryTimeoutError
from lakehouse.parameters import to_json
from lakehouse.snapshot import AsOf
from lakehouse.sql import Snapshot
from trajectory.errors import HeadraceError, RetryableError, WorkError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_END = b"headrace.end"
_LOOK_SECONDS = 0.2
_PIPE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may use."""

    seconds: float = 30.0
    """From the question to the last row that was taken."""
    memory_mib: int = 1024
    rows: int = 100_000
    result_mib: int = 256
    threads: int = 2


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The rows of a statement, perhaps not all of them."""

    table: pa.Table
    truncated: bool
    """True when the limit of rows cut the result."""


class QueryCancelledError(WorkError):
    """Whoever asked has gone; the statement was killed."""


@dataclass(frozen=True, slots=True)
class Question:
    """One statement and what it may see."""

    sql: str
    parameters: Sequence[Any] | Mapping[str, Any] | None = None
    """Values for ``?`` or ``$name``."""
    tenant: str | None = None
    """Only this tenant's rows exist for the statement; None shows all tenants."""
    as_of: AsOf | None = None
    """An earlier moment, or table versions."""
    hidden: frozenset[str] = frozenset()
    """Tables that do not exist for the statement, and the views over them."""
    describe: bool = False
    """Only the schema of the result is asked for; parameters are taken as null."""


def query_untrusted(
    lake: "Lake",
    sql: str,
    *,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    tenant: str | None = None,
    as_of: AsOf | None = None,
    limits: Limits | None = None,
) -> SandboxResult:
    """Run one SELECT of a stranger over the lake and return its rows.

    Args:
        lake: the lake.
        sql: one SELECT statement.
        parameters: values for ``?`` or ``$name``.
        tenant: only this tenant's rows exist for the statement; None shows all tenants.
        as_of: an earlier moment, or table versions.
        limits: what the statement may use.

    Raises:
        QueryError: the SQL is wrong or not a single SELECT, or asks for what it may not.
        QueryTimeoutError: the deadline passed.
        RetryableError: memory ran out, or files went away while reading.
    """
    question = Question(sql, parameters, tenant, as_of)
    with open_untrusted(lake, question, limits=limits) as answer:
        table = pa.Table.from_batches(list(answer), answer.schema)
        return SandboxResult(table, answer.truncated)


def open_untrusted(
    lake: "Lake",
    question: Question,
    *,
    limits: Limits | None = None,
    process: "subprocess.Popen[bytes] | None" = None,
    gone: Callable[[], bool] | None = None,
) -> "Answer":
    """Ask and return the answer, whose schema is known and whose rows are still to be read.

    Args:
        lake: the lake.
        question: the statement and what it may see.
        limits: what it may use.
        process: from :func:`start_worker`, when one was started before its time.
        gone: tells that nobody waits for the answer any more.

    Raises:
        QueryError: the SQL is wrong or not a single SELECT, or asks for what it may not.
        QueryTimeoutError: the deadline passed.
        RetryableError: memory ran out, or files went away while reading.
    """
    bounds = limits or Limits()
    try:
        request = json.dumps(_request(lake, question, bounds), allow_nan=False).encode()
    except BaseException as error:
        if process is not None:
            _end(process)
        if isinstance(error, TypeError | ValueError) and not isinstance(error, HeadraceError):
            raise QueryError(f"a parameter has no place in SQL: {error}") from error
        raise
    return Answer(process or start_worker(), request + b"\n", bounds, gone or (lambda: False))


def start_worker() -> "subprocess.Popen[bytes]":
    """Start a process that waits for one question; without one it ends when its input closes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakehouse.sandbox_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        start_new_session=True,
    )
    if process.stdout is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # a user may hold only so much in pipes
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


class Answer:
    """The answer to one question; leaving it (``with``) kills its process.

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
        line = stdout.readline()
        if not line.endswith(b"\n"):
            raise self._broken()
        header = json.loads(line)
        if header["status"] != "rows":
            raise self._refusal(header)
        self.tables = tuple(header["tables"])
        self.parameters = tuple(header["parameters"])
        self.confined = tuple(header["confined"])
        try:
            self._reader = pa.ipc.open_stream(stdout)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; rows that were not read are gone."""
        self._over.set()
        _end(self._process)

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


def _request(lake: "Lake", question: Question, limits: Limits) -> dict[str, Any]:
    snapshot = lake.snapshot_for(question.tenant, question.as_of, hidden=question.hidden)
    parameters = question.parameters
    return {
        "sql": question.sql,
        "parameters": None if parameters is None else to_json(parameters),
        "describe": question.describe,
        "files": _addresses(snapshot, lake.location.root),
        "root": lake.location.root,
        "location": None
        if snapshot.location is None
        else {"root": lake.location.root, "options": _store_options(lake.location.options)},
        "evolved": sorted(snapshot.evolved),
        "past": snapshot.past,
        "limits": asdict(limits),
    }


def _store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return what reaches the object store: the process has no environment to find it in."""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))
    }
    return {**found, **options}


def _addresses(snapshot: Snapshot, root: str) -> dict[str, list[str]]:
    if snapshot.location is not None:
        return {name: list(paths) for name, paths in snapshot.files.items()}
    return {
        name: [os.path.relpath(path, root) for path in paths]
        for name, paths in snapshot.files.items()
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _environment() -> Mapping[str, str]:
    return {
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
