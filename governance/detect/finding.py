"""What a detector gives back: a typed span with a score, never the value."""

from typing import NamedTuple, Protocol

from governance.detect.view import TextView


class Finding(NamedTuple):
    """One span of a text that a detector holds for personal data or a secret."""

    entity: str
    start: int
    """Offset in characters of the original text."""
    end: int
    score: float
    detector: str


class Detector(Protocol):
    """Finds spans in one text. Raises when it cannot tell; never passes silently."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def version(self) -> str:
        """Changes whenever the same text may be judged differently."""

    @property
    def entities(self) -> frozenset[str]:
        """The entity types that it can find."""

    def find(self, view: TextView, context: tuple[str, ...]) -> list[Finding]:
        """Return findings in ``view.original``; ``context`` are the words of the key path."""
