"""A DuckDB of ours: what it may do, how its rows leave it, and what its errors mean."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse.errors import PastGoneError, QueryError
from lakehouse.read.sources import stock_types
from trajectory.errors import IntegrityError, RetryableError, WorkError

SETTINGS: dict[str, Any] = {
    "python_enable_replacements": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    # Its threads read ahead; a query that ends early (LIMIT, an error) may then wait for ever
    # (duckdb/duckdb#23885). From a local disk they gain nothing.
    "async_threads": 0,
}

_GONE = ("No files found", "Cannot open file", "No such file")


@contextmanager
def explained(*, past: bool = False) -> Iterator[None]:
    """Turn DuckDB's errors into ours; files of the past do not come back."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise RetryableError(
            f"the query needs more memory than it may use ({error}); "
            "select fewer columns or rows, or raise the limit"
        ) from error
    except duckdb.IOException as error:
        if past and any(words in str(error) for words in _GONE):
            raise PastGoneError(
                "files of that earlier state were removed since; `headrace lake status` shows how "
                "far back --as-of reaches"
            ) from error
        raise RetryableError(
            f"a file of the lake could not be read ({error}); run the query again"
        ) from error
    except duckdb.InterruptException as error:
        raise WorkError("the query was interrupted; nothing was changed") from error
    except duckdb.InvalidInputException as error:
        if "parquet" not in str(error):
            raise QueryError(str(error)) from error
        raise IntegrityError(
            f"a file of the lake is damaged ({error}); `headrace lake verify` lists such files"
        ) from error
    except duckdb.Error as error:
        raise QueryError(str(error)) from error


def connect(settings: Mapping[str, Any] | None = None) -> Any:
    """Return an empty DuckDB in memory that fetches no extensions and reads no Python variables."""
    connection = duckdb.connect(config={**SETTINGS, **(settings or {})})
    connection.execute("SET TimeZone = 'UTC'")
    # Files of a Delta table never change, and a view may read the same ones several times.
    connection.execute("SET parquet_metadata_cache = true")
    # In `python -c` and at Python's prompt it would draw on standard output.
    connection.execute("SET enable_progress_bar = false")
    return connection


def rows_of(
    connection: Any, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
) -> pa.Table:
    """Run one statement and return its rows; a statement without rows gives an empty table."""
    relation = connection.sql(sql, params=parameters)
    if relation is None:
        return pa.table({})
    table = relation.to_arrow_table()
    return table.cast(stock_types(table.schema))
