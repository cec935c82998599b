"""The process behind :mod:`lakehouse.sandbox`: reads one request, locks itself in, answers, ends."""

import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse.sql import QueryError, Session, Snapshot, connect, literal
from trajectory.errors import HeadraceError, RetryableError

_OVERHEAD_MIB = 1024
"""What Python, Arrow and DuckDB reserve beside the memory of the query."""


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin.buffer)
    try:
        header, table = _answer(request)
    except RetryableError as error:
        header, table = {"status": "retry", "message": str(error)}, None
    except (HeadraceError, duckdb.Error) as error:
        header, table = {"status": "refused", "message": str(error)}, None
    except MemoryError:
        header, table = (
            {"status": "retry", "message": "the query needs more memory than it may use"},
            None,
        )
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    if table is not None:
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
            writer.write_table(table)
    sys.stdout.buffer.flush()


def _answer(request: Mapping[str, Any]) -> tuple[dict[str, Any], pa.Table]:
    limits = request["limits"]
    refuse_all_but_select(request["sql"])
    session = Session(
        Snapshot(request["files"], frozenset(request["evolved"])),
        settings={
            "memory_limit": f"{limits['memory_mib']}MiB",
            "threads": limits["threads"],
            "temp_directory": "",
            "enable_external_access": True,
        },
    )
    lock(session.connection, request["files"])
    _limit_process(limits)
    table = session.query(
        _limited(request["sql"], limits["rows"] + 1), request["parameters"] or None
    )
    if table.nbytes > limits["result_mib"] << 20:
        raise QueryError(
            f"the result is larger than {limits['result_mib']} MiB; select fewer columns or rows"
        )
    truncated = table.num_rows > limits["rows"]
    return {"status": "rows", "truncated": truncated}, table.slice(0, limits["rows"])


def refuse_all_but_select(sql: str) -> None:
    """Let a single SELECT (SHOW and DESCRIBE count as such) through.

    Raises:
        QueryError: the text is anything else.
    """
    try:
        statements = connect().extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError("one SELECT (or SHOW, DESCRIBE) statement is allowed here; give just that")


def _limited(sql: str, rows: int) -> str:
    return f"FROM ({sql.strip().rstrip(';')}\n) LIMIT {rows}"


def lock(connection: Any, files: Mapping[str, list[str]]) -> None:
    """Leave the active files readable and nothing else, for good."""
    allowed = ", ".join(literal(path) for paths in files.values() for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _limit_process(limits: Mapping[str, Any]) -> None:
    memory = (limits["memory_mib"] + _OVERHEAD_MIB) << 20
    seconds = int(limits["seconds"] * limits["threads"]) + 2
    for kind, bound in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))


if __name__ == "__main__":
    main()
