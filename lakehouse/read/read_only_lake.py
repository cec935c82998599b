"""A lake for notebooks: every table and view as a polars LazyFrame or an Arrow table, never written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehouse.lake import Lake
from lakehouse.read.snapshot import AsOf
from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema.tables import TABLES
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    import polars


class ReadOnlyLake:
    """What one lake holds, now or at an earlier state; use it in ``with``, or close it."""

    def __init__(self, lake: Lake, at: AsOf | None = None) -> None:
        """Read ``lake``, as it was ``at`` a moment or at table versions; None reads the present."""
        self._opened: Lake | None = lake
        self._at = at

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(TABLES)

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(view.name for view in VIEWS)

    def versions(self) -> dict[str, int]:
        """Return the present version of every table, which ``open_lake(at=…)`` takes later."""
        return self._lake.versions()

    def arrow(self, name: str) -> pa.Table:
        """Return all rows of a table or view.

        Raises:
            ConfigurationError: there is no such table or view, or the lake is closed.
        """
        return self.sql(f"SELECT * FROM {self._known(name)}")  # noqa: S608 - a known name

    def frame(self, name: str) -> "polars.LazyFrame":
        """Return a table or view as a LazyFrame, which reads the columns that it needs.

        The lake has to be open when the frame is collected.

        Raises:
            ConfigurationError: there is no such table or view, or the lake is closed.
        """
        from polars.io.plugins import register_io_source

        known = self._known(name)
        empty = _frame(self.sql(f"SELECT * FROM {known} LIMIT 0"))  # noqa: S608 - a known name

        def read(
            columns: list[str] | None,
            predicate: "polars.Expr | None",
            rows: int | None,
            _batch: int | None,
        ) -> "Iterator[polars.DataFrame]":
            wanted = ", ".join(f'"{one}"' for one in columns or empty.columns)
            limit = "" if rows is None else f" LIMIT {rows}"
            found = _frame(self.sql(f"SELECT {wanted} FROM {known}{limit}"))  # noqa: S608
            yield found if predicate is None else found.filter(predicate)

        return register_io_source(read, schema=empty.schema, explain_name=known)

    def sql(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> pa.Table:
        """Return the rows of one statement of DuckDB's SQL over tables and views.

        Args:
            sql: the statement; it is run as your own, so give no SQL of strangers.
            parameters: values for ``?`` or ``$name``.

        Raises:
            QueryError: the SQL is wrong.
            ConfigurationError: the lake is closed.
            RetryableError: files went away while reading; run the same again.
        """
        return self._lake.query(sql, parameters=parameters, as_of=self._at)

    def close(self) -> None:
        """Give memory back; a second call does nothing."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def __enter__(self) -> Self:
        """Return the lake itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the lake."""
        self.close()

    @property
    def _lake(self) -> Lake:
        if self._opened is None:
            raise ConfigurationError("this lake is closed; open it again with headrace.open_lake")
        return self._opened

    def _known(self, name: str) -> str:
        if name in self.tables or name in self.views:
            return name
        raise ConfigurationError(
            f"no table or view {name!r} in the lake; tables: {', '.join(self.tables)}; "
            f"views: {', '.join(self.views)}"
        )


def _frame(rows: pa.Table) -> "polars.DataFrame":
    import polars

    made = polars.from_arrow(rows)
    if not isinstance(made, polars.DataFrame):
        raise TypeError("a table is a frame")
    return made
