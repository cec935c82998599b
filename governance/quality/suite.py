"""A suite: named expectations over one projection, checked in plain Python or by Great Expectations."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol

from governance.policy.quality import ExpectationOf
from governance.quality.rows import Row, failing_rows

type Failures = dict[str, tuple[str, ...]]
"""Key of a row → names of the expectations that it does not meet."""
type Means = Literal["great_expectations", "rows"]


class Suite[R: Row](Protocol):
    """Tells which rows do not meet which expectations."""

    def failures(self, rows: Sequence[R]) -> Failures:
        """Return the rows that fail; raises when it cannot tell."""
        ...


class RowSuite[R: Row, C: StrEnum]:
    """Checks the expectations in plain Python: no import of seconds, same verdicts."""

    def __init__(self, expectations: Sequence[ExpectationOf[C]]) -> None:
        """Check these expectations."""
        self._expectations = expectations

    def failures(self, rows: Sequence[R]) -> Failures:
        """See :class:`Suite`."""
        found: dict[str, list[str]] = {}
        for expectation in self._expectations:
            for key in failing_rows(expectation, rows):
                found.setdefault(key, []).append(expectation.name)
        return {key: tuple(dict.fromkeys(names)) for key, names in found.items()}


def suite_of[R: Row, C: StrEnum](
    means: Means, name: str, expectations: Sequence[ExpectationOf[C]], row: type[R]
) -> Suite[R]:
    """Return the suite that the policy asks for; importing Great Expectations takes seconds."""
    if means == "rows":
        return RowSuite(expectations)
    from governance.quality.great_expectations import GreatExpectationsSuite

    return GreatExpectationsSuite(name, expectations, row)
