"""The few queries that training needs of a lake, as a protocol."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

type Progress = Callable[[str, int, int | None], None]
"""Called with a stage, how much of it is done, and how much there is (None when unknown)."""


def silent(stage: str, done: int, total: int | None) -> None:
    """The progress callback that shows nothing."""


class LearningSource(Protocol):
    """A lake as training sees it; ``lakehouse.lake.Lake`` is the one that ships."""

    def query(
        self,
        sql: str,
        *,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        as_of: Mapping[str, int] | None = None,
    ) -> pa.Table:
        """Return the rows of one SQL statement, at the present or at given table versions."""
        ...

    def append_rows(self, table: str, rows: Sequence[Any]) -> int:
        """Append rows to a table."""
        ...

    def versions(self) -> Mapping[str, int]:
        """Return the current version of each table."""
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Hold off erasure and the retention sweep for as long as the block lasts."""
        ...


def rows_by_id(
    source: LearningSource,
    table: str,
    key: str,
    columns: Sequence[str],
    ids: Iterable[str | None],
) -> pl.DataFrame:
    """Return ``tenant_id``, ``key`` and some columns of the rows whose ``key`` is one of ``ids``.

    What the lake does not hold has no row. What it holds twice, as batches of several governors
    may leave a message, has one.
    """
    selected = ", ".join(("tenant_id", key, *columns))
    found = source.query(
        f"SELECT {selected} FROM {table} "  # noqa: S608 - fixed names
        f"WHERE {key} IN (SELECT unnest(?::VARCHAR[]))",
        parameters=[sorted({name for name in ids if name})],
    )
    return frame_of(found).unique(["tenant_id", key], keep="last", maintain_order=True)


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Return a table as a frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
