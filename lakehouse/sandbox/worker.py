"""The process behind :mod:`lakehouse.sandbox.client`: reads one request, locks itself in, answers, ends.

The answer is one line of JSON, and after ``{"status": "rows", …}`` an Arrow stream whose last batch
is empty and carries how it ended as metadata: a stream without that end was cut off.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pytz  # noqa: F401 - DuckDB asks for it, and the fence lets no module be read later

from lakehouse.errors import QueryError
from lakehouse.read.connection import connect, explained
from lakehouse.read.session import Session, Snapshot
from lakehouse.read.sources import literal, stock_types
from lakehouse.sandbox.confinement import confine, limit
from lakehouse.sandbox.parameters import from_json
from lakehouse.sandbox.statement import KNOWN, Statement, check
from lakehouse.storage.location import Location
from trajectory.errors import HeadraceError, RetryableError

CATALOG = "headrace"
"""Name of the database that strangers see their tables in."""

END = b"headrace.end"
_OVERHEAD_MIB = 768
"""What Python, Arrow and DuckDB reserve beside the memory of the query."""
_BATCH_ROWS = 16_384


def main() -> None:
    """Answer the request on standard input; without one, end quietly."""
    connection = connect({"threads": 1, "temp_directory": ""})
    line = sys.stdin.buffer.readline()
    if line:
        _serve(connection, json.loads(line), sys.stdout.buffer)


class _Reply:
    """Writes the answer: a line, and perhaps a stream behind it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._writer: Any = None
        self._schema: pa.Schema = None

    def begin(self, schema: pa.Schema, header: Mapping[str, Any]) -> None:
        """Say that rows follow."""
        self._line({"status": "rows", **header})
        self._schema, self._writer = schema, pa.ipc.new_stream(self._out, schema)

    def batch(self, rows: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(rows)

    def end(self, outcome: Mapping[str, Any]) -> None:
        """Say how it ended."""
        if self._writer is None:
            self._line(outcome)
        else:
            nothing = [pa.nulls(0, field.type) for field in self._schema]
            last = pa.RecordBatch.from_arrays(nothing, schema=self._schema)
            self._writer.write_batch(last, custom_metadata={END: json.dumps(outcome).encode()})
            self._writer.close()
        self._out.flush()

    def _line(self, value: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(value).encode() + b"\n")


def _serve(connection: Any, request: Mapping[str, Any], out: BinaryIO) -> None:
    reply = _Reply(out)
    reply.end(_outcome(lambda: _answer(connection, request, reply)))


def _outcome(work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Run ``work``; return what it returned, or what its error says."""
    try:
        return {"status": "done", **work()}
    except RetryableError as error:
        return {"status": "retry", "message": str(error)}
    except (HeadraceError, duckdb.Error) as error:
        return {"status": "refused", "message": str(error)}
    except (MemoryError, pa.ArrowMemoryError):
        return {"status": "retry", "message": "the query needs more memory than it may use"}


def _answer(connection: Any, request: Mapping[str, Any], reply: _Reply) -> dict[str, Any]:
    limits, files = request["limits"], request["files"]
    location = request["location"]
    held = _lock_process(request)
    statement = check(connection, request["sql"])
    connection.execute(f"SET threads = {int(limits['threads'])}")
    connection.execute(f"SET memory_limit = '{int(limits['memory_mib'])}MiB'")
    store = None if location is None else Location(location["root"], location["options"])
    session = Session(
        Snapshot(files, frozenset(request["evolved"]), store, past=request["past"]),
        connection=connection,
        catalog=CATALOG,
        only=_wanted(statement),
        reads=statement.tables,
    )
    lock(session.connection, {} if store else files)
    header = {
        "tables": statement.tables,
        "parameters": statement.parameters,
        "confined": held,
    }
    with explained(past=request["past"]):
        reader = _rows(session.connection, request, statement.parameters)
        schema = stock_types(reader.schema)
        reply.begin(schema, header)
        if request["describe"]:
            return {"rows": 0, "bytes": 0, "truncated": False}
        return _copy(_cast(reader, schema), reply, limits)


def _wanted(statement: Statement) -> tuple[str, ...] | None:
    """Return the tables that the statement needs: all of them if it lists tables or misspells a name."""
    if statement.asks_what_there_is or not KNOWN.issuperset(statement.tables):
        return None
    return statement.tables


def _lock_process(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Give up what the query does not need; a lake in an object store leaves connections to others."""
    limits = request["limits"]
    limit(
        memory_mib=limits["memory_mib"] + _OVERHEAD_MIB,
        cpu_seconds=int(limits["seconds"] * limits["threads"]) + 2,
    )
    if request["location"] is not None:
        options = request["location"]["options"]
        # Some of them name a file with a token or a key; others are too long for a name.
        named = [one for one in options.values() if os.path.isfile(one)]  # noqa: PTH113
        return confine(named, network=True)
    # Relative names: a view's text and an error's tell nothing of the machine.
    os.chdir(request["root"])
    return confine(file for files in request["files"].values() for file in files)


def _rows(connection: Any, request: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    given = from_json(request["parameters"])
    if request["describe"]:
        given = dict.fromkeys(names)
    relation = connection.sql(request["sql"], params=given or None)
    if relation is None:
        raise QueryError("the statement gives no rows; ask with SELECT, SHOW or DESCRIBE")
    if request["describe"]:
        relation = relation.limit(0)
    return relation.to_arrow_reader(_BATCH_ROWS)


def _cast(reader: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as error:  # DuckDB's error, as Arrow's stream tells it
            if "Memory" in str(error):
                raise MemoryError from error
            raise QueryError(str(error)) from error
        yield batch if batch.schema.equals(schema) else batch.cast(schema)


def _copy(
    batches: Iterator[pa.RecordBatch], reply: _Reply, limits: Mapping[str, Any]
) -> dict[str, Any]:
    rows = size = 0
    for batch in batches:
        room = limits["rows"] - rows
        size += batch.nbytes
        if size > limits["result_mib"] << 20:
            raise QueryError(
                f"the result is larger than {limits['result_mib']} MiB; "
                "select fewer columns or rows"
            )
        if batch.num_rows > room:
            if room:
                reply.batch(batch.slice(0, room))
            return {"rows": limits["rows"], "bytes": size, "truncated": True}
        rows += batch.num_rows
        reply.batch(batch)
    return {"rows": rows, "bytes": size, "truncated": False}


def lock(connection: Any, files: Mapping[str, list[str]]) -> None:
    """Leave the active files readable and nothing else, for good."""
    allowed = ", ".join(literal(path) for paths in files.values() for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


if __name__ == "__main__":
    main()
