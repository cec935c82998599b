"""A segment of the index: documents that were added together, written once, read by memory map."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from governance.near import minhash
from governance.near.features import Features, NearDocument
from governance.near.minhash import Signatures
from governance.near.shingles import Shingles
from trajectory.errors import IntegrityError

_ARRAYS = ("keys", "order", "rows", "pieces", "edges", "answer_pieces", "answer_edges", "ranks")
_BUCKET = 32
"""Most documents of one bucket that a new one is compared with; more are near each other anyway."""
_NO_ANSWER: Shingles = np.empty(0, np.uint32)


class Named(NamedTuple):
    """Who a document of a segment is."""

    document_id: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Kept documents of one addition, searchable by band."""

    documents: tuple[Named, ...]
    keys: NDArray[np.uint64]
    """(BANDS, documents), each band sorted."""
    order: NDArray[np.uint32]
    """(BANDS, documents): which document stands at each place of ``keys``."""
    rows: Signatures
    pieces: NDArray[np.uint32]
    """Shingles of all documents, one after the other."""
    edges: NDArray[np.int64]
    """Where each document's shingles begin, and the end."""
    answer_pieces: NDArray[np.uint32]
    answer_edges: NDArray[np.int64]
    ranks: NDArray[np.float64]

    @classmethod
    def build(cls, documents: Sequence[NearDocument], features: Features) -> "Segment":
        """Make a segment of documents that were kept."""
        order = np.argsort(features.keys, axis=0, kind="stable").T
        return cls(
            tuple(Named(one.document_id, one.groups) for one in documents),
            np.take_along_axis(features.keys.T, order, axis=1),
            order.astype(np.uint32),
            features.rows,
            *_joined(features.texts),
            *_joined(features.answers or [_NO_ANSWER] * len(documents)),
            np.array([one.rank for one in documents], dtype=np.float64),
        )

    def text(self, number: int) -> Shingles:
        """Return the shingles of one document."""
        return self.pieces[self.edges[number] : self.edges[number + 1]]

    def answer(self, number: int) -> Shingles:
        """Return the shingles of one document's answer."""
        return self.answer_pieces[self.answer_edges[number] : self.answer_edges[number + 1]]

    def candidates(self, keys: minhash.BandKeys) -> NDArray[np.int64]:
        """Return pairs (row of ``keys``, document of this segment) that share a band, each once."""
        found: list[NDArray[np.int64]] = []
        for band in range(minhash.BANDS):
            first = np.searchsorted(self.keys[band], keys[:, band], side="left")
            last = np.searchsorted(self.keys[band], keys[:, band], side="right")
            hits = np.flatnonzero(last > first)
            if not hits.size:
                continue
            many = np.minimum(last[hits] - first[hits], _BUCKET)
            mine = np.repeat(hits, many)
            steps = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
            theirs = self.order[band][np.repeat(first[hits], many) + steps]
            found.append(np.stack([mine, theirs.astype(np.int64)], axis=1))
        if not found:
            return np.empty((0, 2), np.int64)
        return np.unique(np.concatenate(found), axis=0)

    def joined(self, other: "Segment") -> "Segment":
        """Return a segment of the documents of both, this one's first."""
        count = len(self.documents)
        keys = np.concatenate([self.keys, other.keys], axis=1)
        order = np.concatenate([self.order, other.order + np.uint32(count)], axis=1)
        places = np.argsort(keys, axis=1, kind="stable")
        return Segment(
            self.documents + other.documents,
            np.take_along_axis(keys, places, axis=1),
            np.take_along_axis(order, places, axis=1),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.pieces, other.pieces]),
            np.concatenate([self.edges, other.edges[1:] + self.edges[-1]]),
            np.concatenate([self.answer_pieces, other.answer_pieces]),
            np.concatenate([self.answer_edges, other.answer_edges[1:] + self.answer_edges[-1]]),
            np.concatenate([self.ranks, other.ranks]),
        )

    def without(self, gone: Collection[str]) -> "Segment":
        """Return the segment without some documents; nothing that was computed of them stays."""
        stays = [at for at, one in enumerate(self.documents) if one.document_id not in gone]
        if len(stays) == len(self.documents):
            return self
        place = np.full(len(self.documents), -1, dtype=np.int64)
        place[stays] = np.arange(len(stays))
        kept = place[self.order] >= 0
        shape = (minhash.BANDS, len(stays))
        return Segment(
            tuple(self.documents[at] for at in stays),
            self.keys[kept].reshape(shape),
            place[self.order[kept]].reshape(shape).astype(np.uint32),
            self.rows[stays],
            *_joined([self.text(at) for at in stays]),
            *_joined([self.answer(at) for at in stays]),
            self.ranks[stays],
        )

    def write(
        self,
        folder: Path,
        algorithm: dict[str, str],
        *,
        replaces: Sequence[str] = (),
        gone: Collection[str] = (),
    ) -> None:
        """Write the segment into ``folder``, whole or not at all.

        Args:
            folder: the new folder.
            algorithm: what it was computed with.
            replaces: names of the segments that it was joined from; they no longer count.
            gone: documents of other segments that something better stands for.
        """
        scratch = folder.with_name(folder.name + ".part")
        scratch.mkdir(parents=True, exist_ok=True)
        for name in _ARRAYS:
            np.save(scratch / f"{name}.npy", getattr(self, name))
        about = {
            "format": algorithm,
            "documents": [[one.document_id, *one.groups] for one in self.documents],
            "replaces": [*replaces],
            "gone": sorted(gone),
        }
        (scratch / "about.json").write_text(json.dumps(about), encoding="utf-8")
        scratch.replace(folder)

    @classmethod
    def read(cls, folder: Path, algorithm: dict[str, str]) -> "Segment":
        """Open a segment; arrays stay on disk until they are needed.

        Raises:
            IntegrityError: something else computed it, or part of it is missing.
        """
        about = _about(folder)
        try:
            arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS]
        except (OSError, ValueError) as error:
            raise _unreadable(folder, error) from None
        if about["format"] != algorithm:
            raise IntegrityError(
                f"near index {folder.name}: made with {about['format']}, this version uses "
                f"{algorithm}; delete the index's folder and build it again"
            )
        return cls(tuple(Named(name, tuple(of)) for name, *of in about["documents"]), *arrays)


class SegmentNote(NamedTuple):
    """What a segment says about others."""

    replaces: tuple[str, ...]
    """Names of the segments that it was joined from."""
    gone: tuple[str, ...]
    """Documents elsewhere that something better stands for."""


def note_of(folder: Path) -> SegmentNote:
    """Return what the segment in ``folder`` says about others."""
    about = _about(folder)
    return SegmentNote(tuple(about["replaces"]), tuple(about["gone"]))


def _joined(sets: Sequence[Shingles]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    edges = np.cumsum([0, *(one.size for one in sets)], dtype=np.int64)
    return (np.concatenate(sets) if sets else np.empty(0, np.uint32)), edges


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        return {key: about[key] for key in ("format", "documents", "replaces", "gone")}
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error) from None


def _unreadable(folder: Path, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"near index {folder.name}: cannot be read ({type(error).__name__}); delete the index's "
        "folder and build it again"
    )
