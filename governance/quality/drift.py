"""Drift: how far the rows of now lie from those of a reference window, column by column.

The measure is the population stability index: over fixed words, or over tenths of the reference where it has more
than ten numbers. Below 0.1 there is nothing to see; above 0.25 something changed. Small windows drift by chance,
so fewer than :data:`FEWEST` rows on either side give no verdict.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from governance.policy.quality import Between, DriftColumn, ItemDriftColumn
from governance.quality.suite import Row

STEP_NUMBERS = frozenset(
    {
        DriftColumn.STEP_INDEX,
        DriftColumn.TOOL_CALLS,
        DriftColumn.INVALID_TOOL_ARGUMENTS,
        DriftColumn.COMPLETION_TOKENS,
        DriftColumn.LATENCY_MS,
    }
)
"""Columns of a step that are counted by tenths; the others by their words."""
ITEM_NUMBERS = frozenset(
    {
        ItemDriftColumn.STEPS,
        ItemDriftColumn.MESSAGES,
        ItemDriftColumn.CHARACTERS,
        ItemDriftColumn.REWARD,
    }
)
FEWEST = 50
_SMALLEST_SHARE = 0.001
"""Stands for a share of nothing, so that one new word does not give an infinite index."""
_TENTHS = 10


@dataclass(frozen=True, slots=True)
class ColumnDrift:
    """One column's distance from its reference."""

    column: str
    index: float | None
    """The population stability index; None when there is too little to compare."""
    now: int
    """Rows with a value."""
    reference: int

    @property
    def key(self) -> str:
        """By what a failing row is named."""
        return self.column


class DriftField(StrEnum):
    """Fields of :class:`ColumnDrift` that an expectation may ask of."""

    COLUMN = "column"
    INDEX = "index"


def drift(
    now: Sequence[Row],
    reference: Sequence[Row],
    columns: Iterable[str] = tuple(DriftColumn),
    *,
    numbers: Collection[str] = STEP_NUMBERS,
) -> list[ColumnDrift]:
    """Return each column's drift, the largest first."""
    found = [_column(str(name), now, reference, numbers=name in numbers) for name in columns]
    return sorted(found, key=lambda one: -1.0 if one.index is None else one.index, reverse=True)


def drifted(found: Sequence[ColumnDrift], most: float) -> list[str]:
    """Return the columns whose index reaches ``most``."""
    return [one.column for one in found if one.index is not None and one.index >= most]


def drift_expectations(found: Sequence[ColumnDrift], most: float) -> list[Between[DriftField]]:
    """Return what :func:`drifted` asks, as expectations that Data Docs can show."""
    return [
        Between[DriftField].model_construct(  # its column is none that a policy may name
            name=one.column,
            expectation="expect_column_values_to_be_between",
            column=DriftField.INDEX,
            max_value=math.nextafter(most, 0),
            where={DriftField.COLUMN: (one.column,)},
        )
        for one in found
    ]


def _column(
    name: str, now: Sequence[Row], reference: Sequence[Row], *, numbers: bool
) -> ColumnDrift:
    mine = [value for row in now if (value := getattr(row, name)) is not None]
    theirs = [value for row in reference if (value := getattr(row, name)) is not None]
    if len(mine) < FEWEST or len(theirs) < FEWEST:
        return ColumnDrift(name, None, len(mine), len(theirs))
    if numbers and len(set(theirs)) > _TENTHS:
        edges = _edges(sorted(map(float, theirs)))
        mine = [bisect_right(edges, float(value)) for value in mine]
        theirs = [bisect_right(edges, float(value)) for value in theirs]
    return ColumnDrift(name, _index(mine, theirs), len(mine), len(theirs))


def _edges(values: list[float]) -> list[float]:
    """Return where the tenths of the reference begin, equal ones once."""
    places = (len(values) * tenth // _TENTHS for tenth in range(1, _TENTHS))
    return sorted({values[place] for place in places})


def _index(mine: Sequence[object], theirs: Sequence[object]) -> float:
    counted, expected = Counter(mine), Counter(theirs)
    total = 0.0
    for word in counted.keys() | expected.keys():
        share = max(counted[word] / len(mine), _SMALLEST_SHARE)
        before = max(expected[word] / len(theirs), _SMALLEST_SHARE)
        total += (share - before) * math.log(share / before)
    return total
