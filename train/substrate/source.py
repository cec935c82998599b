"""What training needs of a lake, so that it can be given any that answers these few questions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

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
        parameters: Sequence[Any] | None = None,
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
