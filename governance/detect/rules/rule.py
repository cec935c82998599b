"""A pattern rule as data. Patterns are written for RE2, most of them on one byte per character.

No lookaround, no backreference: no text costs more than linear time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from governance.detect.gate import Gate

VERSION = "23"

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""What the names of months begin with."""

type Spans = Callable[[Gate, int, int], Iterator[tuple[int, int, bool | None]]]
"""Yields the values within a match, each with the verdict of its check."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern that names one entity."""

    name: str
    entity: str
    regex: str
    score: float
    """Score before context; a finding needs its entity's threshold."""
    group: int = 0
    """Which group of the pattern is the value."""
    needs: tuple[str, ...] = ()
    """Lower-case literals; the pattern is tried only if one of them is in the text.

    Where the pattern is ``wide`` they are as people write them, else as a view in Latin-1 shows them.
    """
    digits: bool = False
    """Whether the pattern needs a run of digits."""
    fewest_digits: int = 0
    """How many digits every match has at least; texts with fewer are not looked at."""
    digits_in_a_row: int = 0
    """How many of them stand next to each other in every match at least."""
    spaced: bool = False
    """Whether there is a space in every match."""
    shortest: int = 1
    """How many characters every match has at least; shorter texts are not looked at."""
    context: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    """Words right before the value that speak against it."""
    check: Callable[[str], bool | None] | None = None
    """True makes the score 1, False makes it 0, None leaves it to context."""
    spans: Spans | None = None
    """Takes over from ``check`` where the value may be a part of the match."""
    around: Callable[[str, int, int], bool] | None = None
    """Whether what stands around a match lets it count."""
    ignore_case: bool = True
    left: str = ""
    """Characters (a class body) that may not stand before the value."""
    right: str = ""
    """Characters that may not follow it."""
    not_in_queries: bool = False
    """Whether what stands in the query of an address is left: it asks for many people's."""
    wide: bool = False
    """Whether the pattern has letters beyond Latin-1: it runs on the text, where that has some too."""
    with_entity: str | None = None
    """Another entity that policy must ask for as well, else the pattern is not tried."""
