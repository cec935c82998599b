"""The index of near-duplicates: grows by segments, so that a day's increment costs the day.

What is added is compared with what was kept before and with itself; a document that is near to a
kept one is reported and not kept. Documents of one group (attempts at one task) are never
compared with each other.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from governance.near.minhash import BandKeys, Signatures, band_keys, estimates, signatures
from governance.near.segment import Segment
from governance.near.shingles import Shingles, shingles, similarity

_BATCH = 20_000
_SURELY_LESS = 0.2
"""An estimate this far below the threshold is not verified: four standard errors."""


@dataclass(frozen=True, slots=True)
class NearDocument:
    """A text to compare; redacted, since its shingles are kept."""

    document_id: str
    text: str = field(repr=False)
    group: str = ""
    """Documents of one group stay beside each other; empty for a document of its own."""


@dataclass(frozen=True, slots=True)
class NearMatch:
    """A document that says almost the same as one that was kept before."""

    document_id: str
    kept_id: str
    similarity: float
    """Exact Jaccard similarity of the shingles."""


class NearIndex:
    """Finds near-duplicates incrementally; with a folder it goes on where it stopped."""

    def __init__(self, folder: Path | None = None, *, threshold: float = 0.8) -> None:
        """Use the index in ``folder``, which need not exist yet.

        Args:
            folder: where segments are kept; None keeps them in memory.
            threshold: least Jaccard similarity of near-duplicates.
        """
        self._folder = folder
        self._threshold = threshold
        self._clear()
        self._segments = [Segment.read(path) for path in self._paths()]

    def add(self, documents: Sequence[NearDocument]) -> list[NearMatch]:
        """Add documents in their order; return those that are near to a kept one.

        Adding the same document again reports it as near to itself.
        """
        found: list[NearMatch] = []
        for start in range(0, len(documents), _BATCH):
            found += self._add(documents[start : start + _BATCH])
        return found

    def __len__(self) -> int:
        """Return how many documents are kept."""
        return sum(len(segment.ids) for segment in self._segments)

    def _add(self, documents: Sequence[NearDocument]) -> list[NearMatch]:
        sets = [shingles(one.text) for one in documents]
        rows = signatures(sets)
        keys = band_keys(rows)
        matches: dict[int, NearMatch] = {}
        for segment in self._segments:
            for match in self._near_in(segment, documents, sets, rows, keys, matches):
                matches[match[0]] = match[1]
        own = Segment.build(
            [one.document_id for one in documents],
            [one.group for one in documents],
            sets,
            rows,
            keys,
        )
        self._near_each_other(own, documents, sets, keys, matches)
        kept = [at for at in range(len(documents)) if at not in matches]
        if kept:
            self._keep(
                Segment.build(
                    [documents[at].document_id for at in kept],
                    [documents[at].group for at in kept],
                    [sets[at] for at in kept],
                    rows[kept],
                    keys[kept],
                )
            )
        return [matches[at] for at in sorted(matches)]

    def _near_in(
        self,
        segment: Segment,
        documents: Sequence[NearDocument],
        sets: Sequence[Shingles],
        rows: Signatures,
        keys: BandKeys,
        matches: dict[int, NearMatch],
    ) -> Iterator[tuple[int, NearMatch]]:
        done: set[int] = set()
        for mine, theirs in self._likely(segment.candidates(keys), rows, segment.rows):
            group = documents[mine].group
            if mine in matches or mine in done or (group and group == segment.groups[theirs]):
                continue
            found = similarity(sets[mine], segment.shingles(theirs))
            if found >= self._threshold:
                done.add(mine)
                yield mine, NearMatch(documents[mine].document_id, segment.ids[theirs], found)

    def _near_each_other(
        self,
        own: Segment,
        documents: Sequence[NearDocument],
        sets: Sequence[Shingles],
        keys: BandKeys,
        matches: dict[int, NearMatch],
    ) -> None:
        """Compare the added documents with each other, earlier ones first."""
        for later, earlier in self._likely(own.candidates(keys), own.rows, own.rows):
            if earlier >= later or later in matches or earlier in matches:
                continue
            group = documents[later].group
            if group and group == documents[earlier].group:
                continue
            found = similarity(sets[later], sets[earlier])
            if found >= self._threshold:
                kept = documents[earlier].document_id
                matches[later] = NearMatch(documents[later].document_id, kept, found)

    def _likely(
        self, pairs: NDArray[np.int64], mine: Signatures, theirs: Signatures
    ) -> Iterator[tuple[int, int]]:
        """Yield the candidate pairs whose signatures do not rule them out, in order."""
        for start in range(0, len(pairs), 100_000):
            part = pairs[start : start + 100_000]
            guess = estimates(mine[part[:, 0]], theirs[part[:, 1]])
            yield from part[guess >= self._threshold - _SURELY_LESS].tolist()

    def _keep(self, segment: Segment) -> None:
        """Add a segment, joined with its neighbours as soon as they are no larger than it.

        So sizes at least double from the newest to the oldest: few segments to search, and each
        document is copied only as often as its segment doubles.
        """
        joined = 0
        while self._segments and len(self._segments[-1].ids) <= len(segment.ids):
            segment = self._segments.pop().joined(segment)
            joined += 1
        self._segments.append(segment)
        if self._folder is not None:
            paths = self._paths()
            replaced = paths[len(paths) - joined :]
            numbers = [int(path.name) for path in paths]
            segment.write(
                self._folder / f"{max(numbers, default=0) + 1:06d}",
                [path.name for path in replaced],
            )
            for path in replaced:
                shutil.rmtree(path)

    def _clear(self) -> None:
        """Remove segments that a joined one stands for, and unfinished ones, left by a crash."""
        paths = self._paths()
        replaced = {name for path in paths for name in Segment.replaced_by(path)}
        unfinished = self._folder.glob("*.part") if self._folder is not None else ()
        for path in [*(path for path in paths if path.name in replaced), *unfinished]:
            shutil.rmtree(path)

    def _paths(self) -> list[Path]:
        """Return the folders of segments, oldest first."""
        if self._folder is None or not self._folder.exists():
            return []
        return sorted(path for path in self._folder.iterdir() if path.name.isdigit())
