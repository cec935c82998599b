"""SQL of strangers: a process of its own that can read the lake's files, nothing else, not for long.

What stands between a statement and the machine, from the outside in: a process with an empty
environment that is killed with its group at the deadline; limits of the kernel on its memory,
CPU seconds and written bytes (none); a DuckDB without extensions and Python variables, whose
access to files ends at the active files of the tables (of one tenant, when that is asked for) and
whose configuration is locked; and only a single SELECT is let through. Results are limited in
rows and bytes.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse.sql import QueryError
from trajectory.errors import RetryableError, WorkError

if TYPE_CHECKING:
    from lakehouse.lake import Lake


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may use."""

    seconds: float = 30.0
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


class QueryTimeoutError(WorkError):
    """The statement ran past its deadline and was killed."""


def query_untrusted(
    lake: "Lake",
    sql: str,
    *,
    parameters: Sequence[Any] | None = None,
    tenant: str | None = None,
    limits: Limits | None = None,
) -> SandboxResult:
    """Run one SELECT of a stranger over the lake.

    Args:
        lake: a local lake.
        sql: one SELECT statement.
        parameters: JSON values for ``?``.
        tenant: only this tenant's rows exist for the statement; None shows all tenants.
        limits: what the statement may use.

    Raises:
        QueryError: the SQL is wrong or not a single SELECT, or asks for what it may not.
        QueryTimeoutError: the deadline passed.
        RetryableError: memory ran out, or files went away while reading.
    """
    bounds = limits or Limits()
    snapshot = lake.snapshot() if tenant is None else lake.tenant_snapshot(tenant)
    request = json.dumps(
        {
            "sql": sql,
            "parameters": list(parameters or ()),
            "files": {name: list(paths) for name, paths in snapshot.files.items()},
            "evolved": sorted(snapshot.evolved),
            "limits": asdict(bounds),
        }
    ).encode()
    return _decode(_run(request, bounds), bounds)


def _run(request: bytes, limits: Limits) -> bytes:
    process = subprocess.Popen(
        [sys.executable, "-m", "lakehouse.sandbox_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        start_new_session=True,
    )
    try:
        answer, _ = process.communicate(request, timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise QueryTimeoutError(
            f"the query was stopped after {limits.seconds:g} s; narrow it (a tenant, a day, fewer "
            "columns) or raise the limit"
        ) from None
    finally:
        _end(process)
    return answer


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _environment() -> Mapping[str, str]:
    return {
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }


def _decode(answer: bytes, limits: Limits) -> SandboxResult:
    head, newline, body = answer.partition(b"\n")
    if not newline:
        raise RetryableError(
            f"the query's process ended without an answer; it probably needed more than "
            f"{limits.memory_mib} MiB: select fewer columns or rows, or raise the limit"
        )
    header = json.loads(head)
    match header["status"]:
        case "rows":
            return SandboxResult(pa.ipc.open_stream(body).read_all(), header["truncated"])
        case "retry":
            raise RetryableError(header["message"])
        case _:
            raise QueryError(header["message"])
