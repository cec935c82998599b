"""The index of near-duplicates: candidates by the keys of their bands, verified exactly.

What is added is compared with what was kept before and with itself; a document that is near to a
better one is reported and not kept. Documents that share a group (attempts at one task) are never
compared with each other.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from governance.near.features import Features, Measure, NearDocument
from governance.near.minhash import estimates
from governance.near.shingles import SIZE, Shingles, shared, similarity
from governance.near.store import BUCKET, KeptDocument, NearStore, as_integers, as_signatures

_BATCH = 20_000
_SURELY_LESS = 0.2
"""An estimate this far below the threshold is not verified: four standard errors."""


@dataclass(frozen=True, slots=True)
class NearMatch:
    """A document that says almost the same as a better one."""

    document_id: str
    kept_id: str
    similarity: float
    """Exact Jaccard similarity of the shingles; of text and answer the lesser one."""


@dataclass(slots=True)
class NearComparison:
    """What a comparison found; nothing is kept until the index is told so."""

    documents: Sequence[NearDocument]
    features: Features
    matches: dict[int, NearMatch] = field(default_factory=dict)
    """Place of a document → the better one that it is near to."""
    beaten: dict[str, NearMatch] = field(default_factory=dict)
    """Kept document → the added one that is near to it and better."""


class NearIndex:
    """Finds near-duplicates incrementally; with a folder it goes on where it stopped."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        threshold: float = 0.8,
        shingle: int = SIZE,
        answers: bool = False,
    ) -> None:
        """Use the index in ``folder``, which need not exist yet.

        Args:
            folder: where documents are kept; None keeps them in memory.
            threshold: least Jaccard similarity of near-duplicates.
            shingle: bytes of normalised text in one shingle.
            answers: whether documents' answers must be as similar as their texts.

        Raises:
            IntegrityError: the index was made otherwise, or cannot be read.
        """
        self._threshold = threshold
        self._measure = Measure(shingle, answers)
        self._store = NearStore(folder, self._measure.algorithm)

    def add(self, documents: Sequence[NearDocument]) -> list[NearMatch]:
        """Add documents in their order; return those that are near to a kept one.

        Adding the same document again reports it as near to itself.
        """
        found: list[NearMatch] = []
        for start in range(0, len(documents), _BATCH):
            compared = self.compare(documents[start : start + _BATCH])
            self.keep(compared, {one.document_id for one in compared.documents})
            found += [compared.matches[at] for at in sorted(compared.matches)]
        return found

    def compare(self, documents: Sequence[NearDocument]) -> NearComparison:
        """Compare documents with what is kept and with each other, better ones first in order."""
        compared = NearComparison(documents, self._measure.features(documents))
        keys = as_integers(compared.features.keys) if documents else []
        if len(self._store):
            for at, numbers in self._store.sharing_a_band(compared.features.keys).items():
                self._compare_with_kept(compared, at, numbers)
        self._compare_with_each_other(compared, keys)
        lost = {match.document_id for match in compared.matches.values()}
        compared.beaten = {
            name: match for name, match in compared.beaten.items() if match.kept_id not in lost
        }
        return compared

    def keep(self, compared: NearComparison, names: Collection[str]) -> None:
        """Keep those of the compared documents that are named and near to no better one."""
        chosen = [
            at
            for at, one in enumerate(compared.documents)
            if at not in compared.matches and one.document_id in names
        ]
        if chosen:
            documents = [compared.documents[at] for at in chosen]
            better = {one.document_id for one in documents}
            gone = {name for name, match in compared.beaten.items() if match.kept_id in better}
            self._store.replace(documents, compared.features.of(chosen), gone)

    def forget(self, names: Collection[str]) -> int:
        """Take documents out of the index's file; return how many there were."""
        return self._store.forget(names)

    def names(self) -> list[str]:
        """Return the documents that are kept."""
        return self._store.names()

    def __len__(self) -> int:
        """Return how many documents are kept."""
        return len(self._store)

    def _compare_with_kept(self, compared: NearComparison, at: int, numbers: Sequence[int]) -> None:
        features, document = compared.features, compared.documents[at]
        for kept in self._likely(features, at, self._store.documents(numbers)):
            if not kept.groups.isdisjoint(document.groups):
                continue
            found = self._similarity(features, at, self._store.said(kept.number))
            if found < self._threshold:
                continue
            if document.rank <= kept.rank:
                match = NearMatch(document.document_id, kept.document_id, found)
                compared.matches[at] = match
                return
            match = NearMatch(kept.document_id, document.document_id, found)
            compared.beaten.setdefault(kept.document_id, match)

    def _likely(
        self, features: Features, at: int, candidates: Sequence[KeptDocument]
    ) -> Iterator[KeptDocument]:
        """Yield the candidates whose signatures do not rule them out."""
        if candidates:
            theirs = as_signatures([one.signature for one in candidates])
            guesses = estimates(features.rows[at][None, :], theirs)
            for one, guess in zip(candidates, guesses, strict=True):
                if guess >= self._threshold - _SURELY_LESS:
                    yield one

    def _compare_with_each_other(
        self, compared: NearComparison, keys: Sequence[Sequence[int]]
    ) -> None:
        """Compare the added documents with each other, earlier ones first."""
        features, documents = compared.features, compared.documents
        bands: dict[int, list[int]] = defaultdict(list)
        for at, document in enumerate(documents):
            if at in compared.matches:
                continue
            for earlier in sorted({one for key in keys[at] for one in bands.get(key, ())}):
                if not set(document.groups).isdisjoint(documents[earlier].groups):
                    continue
                found = self._similarity(features, at, _said(features, earlier))
                if found >= self._threshold:
                    kept = documents[earlier].document_id
                    compared.matches[at] = NearMatch(document.document_id, kept, found)
                    break
            else:
                for key in keys[at]:
                    if len(bands[key]) < BUCKET:
                        bands[key].append(at)

    def _similarity(self, features: Features, at: int, kept: tuple[Shingles, Shingles]) -> float:
        """Return how similar two documents are; 0 where their answers do not vouch for it.

        A long instruction makes any two texts behind it alike, and one word of an answer says
        nothing of what was asked. So two texts may differ by some letters, and beyond them by as
        much as their answers have in common.
        """
        text, answer = _said(features, at)
        said = similarity(text, kept[0])
        if not self._measure.answers or said < self._threshold:
            return said
        differing = text.size + kept[0].size - 2 * shared(text, kept[0])
        if differing > 2 * self._measure.shingle + shared(answer, kept[1]):
            return 0.0
        return min(said, similarity(answer, kept[1]))


def _said(features: Features, at: int) -> tuple[Shingles, Shingles]:
    text = features.texts[at]
    return text, features.answers[at] if features.answers else text
