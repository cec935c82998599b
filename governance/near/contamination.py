"""Contamination: training texts that hold pieces of what a model will be examined on."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from governance.near.shingles import normalised


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of an examined text a training text holds."""

    evaluation_id: str
    share: float
    """Share of the examined text's n-grams that the training text holds, 0 to 1."""


@dataclass(slots=True)
class EvaluationSet:
    """Texts that must not be learned from, by their runs of words.

    A text shorter than the run counts as one run of its own length.
    """

    words: int = 8
    """Length of a run; 8 to 13 are usual."""
    _runs: dict[bytes, set[str]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _short: set[int] = field(default_factory=set)

    def add(self, evaluation_id: str, text: str) -> None:
        """Add one text that models are examined on."""
        words = normalised(text).split()
        size = min(self.words, len(words))
        if size == 0:
            return
        if size < self.words:
            self._short.add(size)
        runs = set(_runs(words, size))
        self._sizes[evaluation_id] = len(runs)
        for run in runs:
            self._runs.setdefault(run, set()).add(evaluation_id)

    def overlaps(self, text: str, *, least: float = 0.5) -> list[Overlap]:
        """Return the evaluation texts that share at least ``least`` with ``text``, the largest share first."""
        words = normalised(text).split()
        held: dict[str, int] = {}
        sizes = [*sorted(self._short), self.words]
        for run in {run for size in sizes if size <= len(words) for run in _runs(words, size)}:
            for evaluation_id in self._runs.get(run, ()):
                held[evaluation_id] = held.get(evaluation_id, 0) + 1
        shares = [Overlap(name, count / self._sizes[name]) for name, count in held.items()]
        found = [overlap for overlap in shares if overlap.share >= least]
        return sorted(found, key=lambda overlap: (-overlap.share, overlap.evaluation_id))


def _runs(words: list[str], size: int) -> Iterable[bytes]:
    for at in range(len(words) - size + 1):
        run = " ".join(words[at : at + size])
        yield blake2b(f"{size} {run}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
