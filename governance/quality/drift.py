"""Drift: how far the steps of now lie from those of a reference window, column by column.

The measure is the population stability index over fixed words, or over tenths of the reference for
numbers: below 0.1 nothing to see, above 0.25 something changed. Small windows drift by chance, so
fewer than :data:`FEWEST` steps on either side give no verdict.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from governance.quality.facts import StepFacts

WORDS = ("kind", "role_in_graph", "dialect", "key_source", "outcome", "http_status", "finished")
NUMBERS = ("step_index", "tool_calls", "invalid_tool_arguments", "completion_tokens", "latency_ms")
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
    """Steps with a value."""
    reference: int


def drift(now: Sequence[StepFacts], reference: Sequence[StepFacts]) -> list[ColumnDrift]:
    """Return each column's drift, the largest first."""
    found = [_column(name, now, reference, numbers=False) for name in WORDS]
    found += [_column(name, now, reference, numbers=True) for name in NUMBERS]
    return sorted(found, key=lambda one: -1.0 if one.index is None else one.index, reverse=True)


def _column(
    name: str, now: Sequence[StepFacts], reference: Sequence[StepFacts], *, numbers: bool
) -> ColumnDrift:
    mine = [value for row in now if (value := getattr(row, name)) is not None]
    theirs = [value for row in reference if (value := getattr(row, name)) is not None]
    if len(mine) < FEWEST or len(theirs) < FEWEST:
        return ColumnDrift(name, None, len(mine), len(theirs))
    if numbers:
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
