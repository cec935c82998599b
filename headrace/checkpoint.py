"""The governing process's memory between batches, written so that a crash at any point is harmless.

Two small files in the home's ``state`` folder, each replaced atomically:

``checkpoint.json``  the last batch that is wholly in the lake: its number, the spool cursor after
                     it, and the assembler's state (keyed hashes and ids, never content)
``pending.json``     the batch that is being written: its number and the cursor after it

A batch is announced in ``pending.json`` before its first commit. After a crash the same records
are taken again from the checkpoint's cursor, assembled from the checkpoint's state, and appended
under the same number; the lake skips the tables that have that number already.
"""

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajectory.canonical import JsonObject
from trajectory.errors import IntegrityError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after a batch that is wholly in the lake."""

    application: str
    """Name of this line of batches in the lake's application transactions."""
    batch: int
    cursor: JsonObject
    assembler: JsonObject


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch whose rows may be partly in the lake."""

    batch: int
    cursor: JsonObject
    """Where the spool continues after this batch."""


class CheckpointStore:
    """Reads and writes the two files."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = folder / "checkpoint.json"
        self._pending = folder / "pending.json"

    def load(self) -> Checkpoint:
        """Return the last checkpoint, or a fresh one with batch 0.

        Raises:
            IntegrityError: the file is damaged.
        """
        raw = _read(self._checkpoint)
        if raw is None:
            return Checkpoint(f"govern-{uuid.uuid4().hex}", 0, {}, {})
        return Checkpoint(raw["application"], raw["batch"], raw["cursor"], raw["assembler"])

    def pending(self) -> PendingBatch | None:
        """Return the announced batch that is not yet in the checkpoint, if there is one."""
        raw = _read(self._pending)
        if raw is None:
            return None
        return PendingBatch(raw["batch"], raw["cursor"])

    def announce(self, checkpoint: Checkpoint, pending: PendingBatch) -> None:
        """Write down what is about to be committed; the first call also fixes the application name."""
        if not self._checkpoint.exists():
            self._save(checkpoint)
        _write(
            self._pending,
            {"version": _VERSION, "batch": pending.batch, "cursor": pending.cursor},
        )

    def complete(self, checkpoint: Checkpoint) -> None:
        """Write down that the announced batch is wholly in the lake."""
        self._save(checkpoint)
        self._pending.unlink(missing_ok=True)

    def _save(self, checkpoint: Checkpoint) -> None:
        _write(
            self._checkpoint,
            {
                "version": _VERSION,
                "application": checkpoint.application,
                "batch": checkpoint.batch,
                "cursor": checkpoint.cursor,
                "assembler": checkpoint.assembler,
            },
        )


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


def _write(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
