"""SQL of strangers: a process of its own that can read the lake's files, nothing else, not for long.

What stands between a statement and the machine, from the outside in:

1. only a single SELECT that names tables is let through (:mod:`lakehouse.sandbox.statement`);
2. a DuckDB without extensions and Python variables, whose access to files ends at the active files
   of the tables (of one tenant, when that is asked for) and whose configuration is locked;
3. limits of the kernel on memory, CPU seconds and written bytes (none), and the kernel's own fence
   around files, network and processes (:mod:`lakehouse.sandbox.confinement`);
4. a process with an empty environment that is killed at the deadline, or when
   the caller has gone.

Results come as a stream, limited in rows and bytes; nothing of them is held in this process.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.errors import QueryError
from lakehouse.read.session import Snapshot
from lakehouse.sandbox.parameters import to_json
from lakehouse.sandbox.request import Limits, Query
from lakehouse.sandbox.stream import QueryResult, end
from trajectory.errors import HeadraceError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_PIPE_BYTES = 1 << 20


def open_untrusted(
    lake: "Lake",
    query: Query,
    *,
    limits: Limits | None = None,
    process: "subprocess.Popen[bytes] | None" = None,
    gone: Callable[[], bool] | None = None,
) -> "QueryResult":
    """Start a query; return its result, whose schema is known and whose rows are still to be read.

    Args:
        lake: the lake.
        query: the statement and what it may see.
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
        request = json.dumps(_request(lake, query, bounds), allow_nan=False).encode()
    except BaseException as error:
        if process is not None:
            end(process)
        if isinstance(error, TypeError | ValueError) and not isinstance(error, HeadraceError):
            raise QueryError(f"a parameter has no place in SQL: {error}") from error
        raise
    return QueryResult(process or start_worker(), request + b"\n", bounds, gone or (lambda: False))


def start_worker() -> "subprocess.Popen[bytes]":
    """Start a process that waits for one query; without one it ends when its input closes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakehouse.sandbox.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=worker_environment(),
        start_new_session=True,
    )
    if process.stdout is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # a user may hold only so much in pipes
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


def _request(lake: "Lake", query: Query, limits: Limits) -> dict[str, Any]:
    snapshot = lake.snapshot_for(query.tenant, query.as_of, hidden=query.hidden)
    parameters = query.parameters
    return {
        "sql": query.sql,
        "parameters": None if parameters is None else to_json(parameters),
        "describe": query.describe,
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


def worker_environment() -> Mapping[str, str]:
    """Return a worker's environment: nothing of the caller's own, so no secret of it."""
    return {
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
