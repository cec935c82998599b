"""The index of near-duplicates: grows by segments, so that a day's increment costs the day.

What is added is compared with what was kept before and with itself; a document that is near to a
better one is reported and not kept. Documents that share a group (attempts at one task) are never
compared with each other. Several processes may use one folder: who changes it holds its lock, and
each sees what the others wrote at its next question.
"""

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from governance.near.features import Features, Measure, NearDocument
from governance.near.minhash import Signatures, estimates
from governance.near.segment import Segment, note_of
from governance.near.shingles import SIZE, Shingles, shared, similarity
from trajectory.files import locked

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
class Compared:
    """What a comparison found; nothing is kept until the index is told so."""

    documents: Sequence[NearDocument]
    features: Features
    matches: dict[int, NearMatch] = field(default_factory=dict)
    """Place of a document → the better one that it is near to."""
    beaten: dict[str, NearMatch] = field(default_factory=dict)
    """Kept document → the added one that is near to it and better."""

    def settle(self) -> None:
        """Forget what was beaten by documents that lost against another one."""
        lost = {match.document_id for match in self.matches.values()}
        self.beaten = {
            name: match for name, match in self.beaten.items() if match.kept_id not in lost
        }


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
            folder: where segments are kept; None keeps them in memory.
            threshold: least Jaccard similarity of near-duplicates.
            shingle: bytes of normalised text in one shingle.
            answers: whether documents' answers must be as similar as their texts.
        """
        self._folder = folder
        self._threshold = threshold
        self._measure = Measure(shingle, answers)
        self._segments: list[Segment] = []
        self._names: list[str] = []
        self._gone: set[str] = set()
        with self._lock():
            self._clear()
            self._refresh()

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

    def compare(self, documents: Sequence[NearDocument]) -> Compared:
        """Compare documents with what is kept and with each other, better ones first in order."""
        with self._lock():
            self._refresh()
        compared = Compared(documents, self._measure.features(documents))
        for segment in self._segments:
            self._compare_with(segment, compared)
        self._compare_with_each_other(compared)
        compared.settle()
        return compared

    def keep(self, compared: Compared, names: Collection[str]) -> None:
        """Keep those of the compared documents that are named and near to no better one."""
        chosen = [
            at
            for at, one in enumerate(compared.documents)
            if at not in compared.matches and one.document_id in names
        ]
        if not chosen:
            return
        documents = [compared.documents[at] for at in chosen]
        better = {one.document_id for one in documents}
        gone = {name for name, match in compared.beaten.items() if match.kept_id in better}
        with self._lock():
            self._refresh()
            self._append(Segment.build(documents, compared.features.of(chosen)), gone)

    def forget(self, names: Collection[str]) -> int:
        """Take documents out of the index's files; return how many there were."""
        with self._lock():
            self._refresh()
            count = 0
            for segment in list(self._segments):
                rest = segment.without(names)
                if rest is not segment:
                    count += len(segment.documents) - len(rest.documents)
                    self._replace(segment, rest)
            return count

    def names(self) -> list[str]:
        """Return the documents that are kept, and those that something better stands for."""
        with self._lock():
            self._refresh()
        return [one.document_id for segment in self._segments for one in segment.documents]

    def __len__(self) -> int:
        """Return how many documents are kept."""
        return sum(name not in self._gone for name in self.names())

    def _compare_with(self, segment: Segment, compared: Compared) -> None:
        features = compared.features
        pairs = segment.candidates(features.keys)
        for mine, theirs in self._likely(pairs, features.rows, segment.rows):
            document, kept = compared.documents[mine], segment.documents[theirs]
            if mine in compared.matches or kept.document_id in self._gone:
                continue
            if not set(document.groups).isdisjoint(kept.groups):
                continue
            found = self._similarity(features, mine, segment, theirs)
            if found < self._threshold:
                continue
            if document.rank > segment.ranks[theirs]:
                match = NearMatch(kept.document_id, document.document_id, found)
                compared.beaten.setdefault(kept.document_id, match)
            else:
                match = NearMatch(document.document_id, kept.document_id, found)
                compared.matches[mine] = match

    def _compare_with_each_other(self, compared: Compared) -> None:
        """Compare the added documents with each other, earlier ones first."""
        features, documents = compared.features, compared.documents
        own = Segment.build(documents, features)
        for later, earlier in self._likely(own.candidates(features.keys), own.rows, own.rows):
            if earlier >= later or later in compared.matches or earlier in compared.matches:
                continue
            if not set(documents[later].groups).isdisjoint(documents[earlier].groups):
                continue
            found = self._similarity(features, later, own, earlier)
            if found >= self._threshold:
                kept = documents[earlier].document_id
                name = documents[later].document_id
                compared.matches[later] = NearMatch(name, kept, found)

    def _similarity(self, features: Features, mine: int, segment: Segment, theirs: int) -> float:
        """Return how similar two documents are; 0 where their answers do not vouch for it.

        A long instruction makes any two texts behind it alike, and one word of an answer says
        nothing of what was asked. So two texts may differ by some letters, and beyond them by as
        much as their answers have in common.
        """
        texts: tuple[Shingles, Shingles] = (features.texts[mine], segment.text(theirs))
        said = similarity(*texts)
        if not self._measure.answers or said < self._threshold:
            return said
        answers: tuple[Shingles, Shingles] = (features.answers[mine], segment.answer(theirs))
        differing = sum(one.size for one in texts) - 2 * shared(*texts)
        if differing > 2 * self._measure.shingle + shared(*answers):
            return 0.0
        return min(said, similarity(*answers))

    def _likely(
        self, pairs: NDArray[np.int64], mine: Signatures, theirs: Signatures
    ) -> Iterator[tuple[int, int]]:
        """Yield the candidate pairs whose signatures do not rule them out, in order."""
        for start in range(0, len(pairs), 100_000):
            part = pairs[start : start + 100_000]
            guess = estimates(mine[part[:, 0]], theirs[part[:, 1]])
            yield from part[guess >= self._threshold - _SURELY_LESS].tolist()

    def _append(self, segment: Segment, gone: Collection[str]) -> None:
        """Add a segment, joined with its neighbours as soon as they are no larger than it.

        So sizes at least double from the newest to the oldest: few segments to search, and each
        document is copied only as often as its segment doubles.
        """
        self._gone |= set(gone)
        replaced: list[str] = []
        while self._segments and len(self._segments[-1].documents) <= len(segment.documents):
            segment = self._swept(self._segments.pop()).joined(segment)
            replaced += [self._names.pop()] if self._folder is not None else []
        self._segments.append(segment)
        self._write(segment, replaced)

    def _swept(self, segment: Segment) -> Segment:
        """Return a segment without what something better stands for."""
        rest = segment.without(self._gone)
        if rest is not segment:
            self._gone -= {one.document_id for one in segment.documents}
        return rest

    def _replace(self, segment: Segment, rest: Segment) -> None:
        """Put another segment in the place of one; its name is new, so that others see it."""
        at = next(at for at, one in enumerate(self._segments) if one is segment)
        name = self._names.pop(at) if self._folder is not None else ""
        del self._segments[at]
        if rest.documents:
            self._segments.append(rest)
            self._write(rest, [name])
        elif self._folder is not None:
            shutil.rmtree(self._folder / name)

    def _write(self, segment: Segment, replaced: Sequence[str]) -> None:
        if self._folder is None:
            return
        numbers = [int(path.name) for path in self._paths()]
        name = f"{max(numbers, default=0) + 1:06d}"
        here = {one.document_id for one in segment.documents}
        segment.write(
            self._folder / name,
            self._measure.algorithm,
            replaces=replaced,
            gone=self._gone - here,
        )
        self._names.append(name)
        for old in replaced:
            shutil.rmtree(self._folder / old)

    def _refresh(self) -> None:
        """Open what another process wrote, and let go of what it replaced."""
        if self._folder is None:
            return
        paths = {path.name: path for path in self._paths()}
        if [*paths] == self._names:
            return
        opened = dict(zip(self._names, self._segments, strict=True))
        algorithm = self._measure.algorithm
        self._segments = [
            opened.get(name) or Segment.read(path, algorithm) for name, path in paths.items()
        ]
        self._names = [*paths]
        self._gone = {name for path in paths.values() for name in note_of(path).gone}

    def _clear(self) -> None:
        """Remove segments that a joined one stands for, and unfinished ones, left by a crash."""
        paths = self._paths()
        replaced = {name for path in paths for name in note_of(path).replaces}
        unfinished = self._folder.glob("*.part") if self._folder is not None else ()
        for path in [*(path for path in paths if path.name in replaced), *unfinished]:
            shutil.rmtree(path)

    def _paths(self) -> list[Path]:
        """Return the folders of segments, oldest first."""
        if self._folder is None or not self._folder.exists():
            return []
        return sorted(path for path in self._folder.iterdir() if path.name.isdigit())

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold off other processes that use this folder."""
        if self._folder is None:
            yield
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._folder.with_name(self._folder.name + ".lock")
        with locked(lock, wait=True):
            yield
