"""The governing process's memory between batches, written so that a crash at any point is harmless.

Three small files in the home's ``state`` folder, each replaced atomically:

``checkpoint.json``  a batch that is wholly in the lake: its number, the spool cursor after it, and
                     the assembler's state (keyed hashes and ids, never content)
``progress.json``    the batches that came into the lake since: the number of the last one, and the
                     cursor after each
``pending.json``     the batch that is being written: its number and the cursor after it

The assembler's state grows with the conversations that are open, so it is not written with every
batch; the spool keeps what came since, and at the start that is assembled again, batch by batch,
which gives the same state. A batch is announced in ``pending.json`` before its first commit. After
a crash the same records are taken again from the last cursor, assembled, and appended under the
same number; the lake skips the tables that have that number already.

All are copied into the lake, each right after it was written here. When the ones here are lost,
damaged or older than the copy, the copy holds, and a conversation that goes on stays one trajectory.
A copy may be one write behind: then its batch is carried again under the same number. With neither,
the spool is read from its beginning, and what stands in the lake's ledger already is passed over.
So it is when the lake lacks batches that were done (:func:`missing_batches`).
"""

import json
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headrace.govern.packing import packed, packed_json, unpacked
from lakehouse.lake import Lake
from trajectory.canonical import JsonObject
from trajectory.errors import IntegrityError, RetryableError
from trajectory.files import replacing

NO_MEMORY = packed_json({})
"""State of an assembler that has seen nothing."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after a batch that is wholly in the lake."""

    application: str
    """Name of this line of batches in the lake's application transactions."""
    batch: int
    cursor: JsonObject
    assembler: bytes
    """State after the batch, or, with a trail, where that begins, packed: many megabytes."""
    again: bool = False
    """Begun anew beside a lake that may hold what the spool brings: its ledger is asked first."""
    trail: tuple[JsonObject, ...] = ()
    """Cursors from the assembler's state to this batch's: what lies between is assembled again."""

    @property
    def hold(self) -> JsonObject:
        """The cursor from which on the spool must keep its records."""
        return self.trail[0] if self.trail else self.cursor


def begun_anew() -> Checkpoint:
    """Return a checkpoint that reads the spool from its beginning and asks the lake's ledger."""
    return Checkpoint(f"govern-{uuid.uuid4().hex}", 0, {}, NO_MEMORY, again=True)


def missing_batches(checkpoint: Checkpoint, lake: Lake) -> int:
    """Return how many batches were done and are not in the lake: it is another, older or damaged."""
    if checkpoint.batch == 0:
        return 0
    return max(0, checkpoint.batch - max(0, lake.committed_version(checkpoint.application)))


def lacks(missing: int, lake: str) -> str:
    """Return what to tell of batches that a lake lacks."""
    return (
        f"the lake at {lake} lacks {missing} of the batches that were done: it is another one, an "
        "older copy, or its disk lost them. What the spool still holds of them is governed again; "
        "restore a newer copy of the lake if you have one"
    )


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch whose rows may be partly in the lake."""

    batch: int
    cursor: JsonObject
    """Where the spool continues after this batch."""


class Copies(Protocol):
    """Where copies are kept; ``lakehouse.storage.notes.Notes`` is the one that ships."""

    def put(self, name: str, data: bytes) -> None:
        """Write one, whole or not at all."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return one, None when there is none."""
        ...


class CheckpointStore:
    """Reads and writes the files and their copies."""

    def __init__(self, folder: Path, copies: Copies | None = None, *, name: str = "") -> None:
        """Keep the files in ``folder``, and copies under ``name``."""
        self._checkpoint = folder / "checkpoint.json"
        self._progress = folder / "progress.json"
        self._pending = folder / "pending.json"
        self._copies = copies
        self._name = name
        self._restored = False

    def load(self) -> Checkpoint:
        """Return the last checkpoint, from here or from its copy; else a fresh one with batch 0.

        Raises:
            IntegrityError: the file is damaged and has no copy.
        """
        copy = _checkpoint_of(self._copy("checkpoint"), self._copy("progress"))
        try:
            here = _checkpoint_of(_read(self._checkpoint), self._read_progress())
        except IntegrityError:
            if copy is None:
                raise
            here = None
        if copy is not None and (here is None or here.batch < copy.batch):
            self._restored = True
            return copy
        return here or begun_anew()

    def _read_progress(self) -> dict[str, Any] | None:
        try:
            return _read(self._progress)
        except IntegrityError:
            # Without it the batches would be carried again under their numbers, perhaps otherwise
            # cut: it is the checkpoint that must go, then the ledger tells what is there.
            raise _damaged(self._checkpoint) from None

    def pending(self) -> PendingBatch | None:
        """Return the announced batch that is not yet in the checkpoint, if there is one."""
        raw = self._copy("pending") if self._restored else _read(self._pending)
        if raw is None:
            return None
        return PendingBatch(raw["batch"], raw["cursor"])

    def restart(self, checkpoint: Checkpoint) -> None:
        """Forget what was announced and done, and begin with a checkpoint."""
        self._pending.unlink(missing_ok=True)
        self._save(checkpoint)
        self._restored = False

    def announce(self, checkpoint: Checkpoint, pending: PendingBatch) -> None:
        """Write down what is about to be committed; the first call also fixes the application name."""
        if self._restored or not self._checkpoint.exists():
            self._save(checkpoint)
        announced = {"version": _VERSION, "batch": pending.batch, "cursor": pending.cursor}
        self._write(self._pending, "pending", announced)
        self._restored = False

    def complete(self, checkpoint: Checkpoint) -> None:
        """Write down that the announced batch is wholly in the lake.

        With a trail, the assembler's state must have been written where that begins.
        """
        if checkpoint.trail:
            self._write(self._progress, "progress", _progress_of(checkpoint))
        else:
            self._save(checkpoint)
        self._pending.unlink(missing_ok=True)

    def _save(self, checkpoint: Checkpoint) -> None:
        value = {
            "version": _VERSION,
            "application": checkpoint.application,
            "batch": checkpoint.batch - max(0, len(checkpoint.trail) - 1),
            "cursor": checkpoint.hold,
            "again": checkpoint.again,
        }
        self._write(self._checkpoint, "checkpoint", value, checkpoint.assembler)
        if checkpoint.trail:
            self._write(self._progress, "progress", _progress_of(checkpoint))

    def _write(
        self, path: Path, kind: str, value: dict[str, Any], assembler: bytes | None = None
    ) -> None:
        lead = json.dumps(value, separators=(",", ":")).encode()
        data = packed(lead)
        if assembler is not None:  # put in as it is: opened it is several times as large
            data = packed(lead[:-1] + b',"assembler":') + assembler + packed(b"}")
        _write(path, unpacked(data))
        if self._copies is not None:
            self._copies.put(f"{self._name}-{kind}", data)

    def _copy(self, kind: str) -> dict[str, Any] | None:
        """Return a copy; None when there is none that can be read."""
        data = None if self._copies is None else self._copies.get(f"{self._name}-{kind}")
        try:
            raw = None if data is None else json.loads(b"".join(unpacked(data)))
        except (zlib.error, ValueError):
            return None
        return raw if isinstance(raw, dict) and raw.get("version") == _VERSION else None


def _progress_of(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "application": checkpoint.application,
        "batch": checkpoint.batch,
        "trail": list(checkpoint.trail),
    }


def _checkpoint_of(
    whole: dict[str, Any] | None, progress: dict[str, Any] | None
) -> Checkpoint | None:
    """Return the checkpoint, moved on where the progress goes on from it."""
    if whole is None:
        return None
    batch, cursor = whole["batch"], whole["cursor"]
    trail: tuple[JsonObject, ...] = ()
    if (
        progress is not None
        and progress["application"] == whole["application"]
        and progress["batch"] == batch + len(progress["trail"]) - 1
    ):
        batch, trail = progress["batch"], tuple(progress["trail"])
        cursor = trail[-1]
    return Checkpoint(
        whole["application"],
        batch,
        cursor,
        packed_json(whole["assembler"]),
        again=whole.get("again", False),
        trail=trail,
    )


def installation_name(path: Path) -> str:
    """Return the name of an installation, made once and kept in a file of its own."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        _write(path, [uuid.uuid4().hex.encode()])
        return path.read_text(encoding="ascii").strip()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(raw, dict) or raw.get("version") != _VERSION:
        raise _damaged(path)
    return raw


def _damaged(path: Path) -> IntegrityError:
    return IntegrityError(
        f"{path} is damaged or of another version. Move it away to read the spool again from its "
        "beginning; records that are in the lake's ledger already are skipped."
    )


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Replace a file atomically.

    Raises:
        RetryableError: the disk is full or refuses; the file is as it was.
    """
    try:
        with replacing(path) as file:
            file.writelines(pieces)
    except OSError as error:
        raise RetryableError(
            f"{path} could not be written ({error.strerror}); nothing was lost: check disk space "
            "and permissions, then run the same again"
        ) from error
