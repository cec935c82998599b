"""A segment of the index: documents that were added together, written once, read by memory map."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from governance.near import minhash, shingles
from governance.near.minhash import BandKeys, Signatures
from governance.near.shingles import Shingles
from trajectory.errors import IntegrityError

_FORMAT = {"shingles": shingles.ALGORITHM, "signatures": minhash.ALGORITHM}
_ARRAYS = ("keys", "order", "rows", "pieces", "edges")


@dataclass(frozen=True, slots=True)
class Segment:
    """Kept documents of one addition, searchable by band."""

    ids: tuple[str, ...]
    groups: tuple[str, ...]
    keys: NDArray[np.uint64]
    """(BANDS, documents), each band sorted."""
    order: NDArray[np.uint32]
    """(BANDS, documents): which document stands at each place of ``keys``."""
    rows: Signatures
    pieces: NDArray[np.uint32]
    """Shingles of all documents, one after the other."""
    edges: NDArray[np.int64]
    """Where each document's shingles begin, and the end."""

    @classmethod
    def build(
        cls,
        ids: Sequence[str],
        groups: Sequence[str],
        sets: Sequence[Shingles],
        rows: Signatures,
        keys: BandKeys,
    ) -> "Segment":
        """Make a segment of documents that were kept."""
        order = np.argsort(keys, axis=0, kind="stable").T
        return cls(
            tuple(ids),
            tuple(groups),
            np.take_along_axis(keys.T, order, axis=1),
            order.astype(np.uint32),
            rows,
            np.concatenate(sets) if sets else np.empty(0, np.uint32),
            np.cumsum([0, *(one.size for one in sets)], dtype=np.int64),
        )

    def shingles(self, number: int) -> Shingles:
        """Return the shingles of one document."""
        return self.pieces[self.edges[number] : self.edges[number + 1]]

    def candidates(self, keys: BandKeys) -> NDArray[np.int64]:
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
        count = len(self.ids)
        keys = np.concatenate([self.keys, other.keys], axis=1)
        order = np.concatenate([self.order, other.order + np.uint32(count)], axis=1)
        places = np.argsort(keys, axis=1, kind="stable")
        return Segment(
            self.ids + other.ids,
            self.groups + other.groups,
            np.take_along_axis(keys, places, axis=1),
            np.take_along_axis(order, places, axis=1),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.pieces, other.pieces]),
            np.concatenate([self.edges, other.edges[1:] + self.edges[-1]]),
        )

    def write(self, folder: Path, replaces: Sequence[str] = ()) -> None:
        """Write the segment into ``folder``, whole or not at all.

        Args:
            folder: the new folder.
            replaces: names of the segments that it was joined from; they no longer count.
        """
        scratch = folder.with_name(folder.name + ".part")
        scratch.mkdir(parents=True, exist_ok=True)
        for name in _ARRAYS:
            np.save(scratch / f"{name}.npy", getattr(self, name))
        about: dict[str, object] = {"format": _FORMAT, "ids": self.ids, "groups": self.groups}
        about["replaces"] = [*replaces]
        (scratch / "about.json").write_text(json.dumps(about), encoding="utf-8")
        scratch.replace(folder)

    @classmethod
    def read(cls, folder: Path) -> "Segment":
        """Open a segment; arrays stay on disk until they are needed.

        Raises:
            IntegrityError: another version wrote it, or part of it is missing.
        """
        about = _about(folder)
        try:
            arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS]
        except (OSError, ValueError) as error:
            raise _unreadable(folder, error) from None
        if about["format"] != _FORMAT:
            raise IntegrityError(
                f"near index {folder.name}: made with {about['format']}, this version uses "
                f"{_FORMAT}; delete the index's folder and build it again"
            )
        return cls(tuple(about["ids"]), tuple(about["groups"]), *arrays)

    @staticmethod
    def replaced_by(folder: Path) -> list[str]:
        """Return the names of the segments that the one in ``folder`` was joined from."""
        return list(_about(folder)["replaces"])


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        return {key: about[key] for key in ("format", "ids", "groups", "replaces")}
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error) from None


def _unreadable(folder: Path, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"near index {folder.name}: cannot be read ({type(error).__name__}); delete the index's "
        "folder and build it again"
    )


_BUCKET = 32
"""Most documents of one bucket that a new one is compared with; more are near each other anyway."""
