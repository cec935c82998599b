"""What a detector gives back: a typed span with a score, never the value."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from governance.detect.normalized_text import TextView


class Finding(NamedTuple):
    """One span of a text that a detector holds for personal data or a secret."""

    entity: str
    start: int
    """Offset in characters of the original text."""
    end: int
    score: float
    detector: str


class Unit(NamedTuple):
    """One text to look at."""

    view: TextView
    keys: tuple[str, ...] = ()
    """The last keys of its key path, list indices left out."""
    is_digits: bool = False
    """Whether all of it is base64 or hexadecimal digits of what is looked at by itself, and no name."""


class Detector(Protocol):
    """Finds spans in texts. Raises when it cannot tell; never passes silently."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def version(self) -> str:
        """Changes whenever the same text may be judged differently."""

    @property
    def entities(self) -> frozenset[str]:
        """The entity types that it can find."""

    def find(
        self, units: Sequence[Unit], known: Sequence[Sequence[Finding]]
    ) -> list[list[Finding]]:
        """Return the findings of each unit, offsets in its ``view.original``.

        Args:
            units: texts to look at.
            known: what earlier detectors found in each of them; need not be found again.
        """
