"""What is computed of a document before it is compared: shingles, signature, bands."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from governance.near import minhash, texts
from governance.near.minhash import BandKeys, Signatures, band_keys, signatures
from governance.near.shingles import SIZE, Shingles, algorithm, shingle_sets


@dataclass(frozen=True, slots=True)
class NearDocument:
    """A text to compare; redacted, since its shingles are kept."""

    document_id: str
    text: str = field(repr=False)
    groups: tuple[str, ...] = ()
    """Documents that share one of these stay beside each other."""
    answer: str = field(default="", repr=False)
    """A second text that must be as similar, for an index that compares answers too."""
    rank: float = 0.0
    """Of two that are near, the one of higher rank stays; of equal ones, the one that was first."""


class Features(NamedTuple):
    """What is computed of some documents, in their order."""

    texts: list[Shingles]
    answers: list[Shingles]
    """Empty where answers are not compared."""
    rows: Signatures
    keys: BandKeys

    def of(self, chosen: Sequence[int]) -> "Features":
        """Return those of some of the documents."""
        answers = [self.answers[at] for at in chosen] if self.answers else []
        return Features(
            [self.texts[at] for at in chosen],
            answers,
            self.rows[list(chosen)],
            self.keys[list(chosen)],
        )


@dataclass(frozen=True, slots=True)
class Measure:
    """How documents are turned into what is compared."""

    shingle: int = SIZE
    answers: bool = False
    """Whether a document's answer is compared beside its text."""

    @property
    def algorithm(self) -> dict[str, str]:
        """What is kept beside everything computed with it."""
        said = {"shingles": algorithm(self.shingle), "signatures": minhash.ALGORITHM}
        return said | ({"answers": "rows-1-3", "texts": texts.ALGORITHM} if self.answers else {})

    def features(self, documents: Sequence[NearDocument]) -> Features:
        """Compute what is compared."""
        said = shingle_sets((one.text for one in documents), self.shingle)
        answers = []
        if self.answers:
            answers = shingle_sets((one.answer for one in documents), self.shingle)
        rows = signatures(said, answers)
        return Features(said, answers, rows, band_keys(rows))
