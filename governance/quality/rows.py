"""Expectations checked row by row in plain Python, with the meaning that Great Expectations gives them."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

from governance.policy.quality import (
    Between,
    ExpectationOf,
    InSet,
    NotInSet,
    NotNull,
    Null,
    PairEqual,
    Unique,
)


class Row(Protocol):
    """One row of a projection: a dataclass whose fields are the columns."""

    @property
    def key(self) -> str:
        """By what a failing row is named."""


def failing_rows[C: StrEnum](expectation: ExpectationOf[C], rows: Sequence[Row]) -> list[str]:
    """Return the keys of the rows that do not meet an expectation."""
    chosen = [row for row in rows if _is_meant(expectation, row)] if expectation.where else rows
    if isinstance(expectation, PairEqual):
        pairs = [
            (row, getattr(row, expectation.column_A), getattr(row, expectation.column_B))
            for row in chosen
        ]
        return [row.key for row, a, b in pairs if a is not None and b is not None and a != b]
    values = [(row, getattr(row, expectation.column)) for row in chosen]
    if isinstance(expectation, Unique):
        times = Counter(value for _, value in values)
        return [row.key for row, value in values if value is not None and times[value] > 1]
    return [row.key for row, value in values if not _holds(expectation, value)]


def _is_meant[C: StrEnum](expectation: ExpectationOf[C], row: Row) -> bool:
    return all(getattr(row, column) in wanted for column, wanted in expectation.where.items())


def _holds[C: StrEnum](
    expectation: NotNull[C] | Null[C] | Between[C] | InSet[C] | NotInSet[C], value: Any
) -> bool:
    if isinstance(expectation, NotNull):
        return value is not None
    if isinstance(expectation, Null):
        return value is None
    if value is None:
        return True
    if isinstance(expectation, Between):
        low, high = expectation.min_value, expectation.max_value
        return (low is None or value >= low) and (high is None or value <= high)
    if isinstance(expectation, InSet):
        return value in expectation.value_set
    return value not in expectation.value_set
