"""What is told of a held call beside its exchange: feedback on it, and whom its trace names.

One file per step, sealed as the held exchanges are. A release brings the exchange back; what was told of the call is
put to it when it is judged again, and goes once nothing holds the call any more. It goes with a dropped case too,
with an exchange that rested too long, and with an erasure.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from governance.records import GovernedBatch
from trajectory.assembly.result import Assembly, PlacedCall, PlacedFeedback
from trajectory.dialects.hints import with_people
from trajectory.exchange import ClientIdentity, Feedback, SpoolPosition
from trajectory.files import delete_lastingly, locked, make_folders, replace_file

_NONCE_BYTES = 12
_SUFFIX = ".note"
_OF_CALLS = frozenset({"response", "step"})
"""Targets of feedback that is about one call; any other is about a trajectory."""


@dataclass(frozen=True, slots=True)
class HeldNote:
    """What was told of one held call."""

    tenant_id: str
    kept_as: str
    """The held exchange that brings the call; empty where the call is on its way back to the governor."""
    people: tuple[str, ...] | None = None
    """Whom its trace names as who used the application; None where it is in no trace."""
    feedback: tuple[Feedback, ...] = ()

    def joined(self, later: "HeldNote") -> "HeldNote":
        """Return this note with what was told later."""
        said = {one.feedback_id: one for one in (*self.feedback, *later.feedback)}
        people = self.people if later.people is None else later.people
        kept_as = later.kept_as or self.kept_as
        return HeldNote(self.tenant_id, kept_as, people, tuple(said.values()))


class QuarantineNotes:
    """Sealed notes on held calls, by step. One governor writes them; whoever drops a case deletes its notes."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Keep them in ``folder``, that of the held exchanges, sealed with ``key``."""
        self._folder = folder
        self._seal = AESGCM(key)

    def of(self, step_id: str) -> HeldNote | None:
        """Return what was told of a step's call; None where nothing was, or it cannot be opened."""
        return self._opened(self._path(step_id))

    def put_to(self, assembly: Assembly) -> Assembly:
        """Return a batch with what was told of its released calls while they were held."""
        notes = self._of_released(assembly)
        if not notes:
            return assembly
        feedback = [
            PlacedFeedback(
                said,
                one.trajectory_id,
                one.step_id if said.target_kind in _OF_CALLS else None,
                was_held=True,
            )
            for one in assembly.placed
            if (note := notes.get(one.step_id)) is not None
            for said in note.feedback
        ]
        placed = tuple(_named(one, notes.get(one.step_id)) for one in assembly.placed)
        return replace(assembly, placed=placed, feedback=(*assembly.feedback, *feedback))

    def keep(
        self, assembly: Assembly, governed: GovernedBatch, there: Callable[[], Collection[str]]
    ) -> None:
        """Write what a batch tells of held calls, its own and those of earlier batches.

        Args:
            assembly: the batch.
            governed: what became of it.
            there: returns the held exchanges that are kept, those of this batch too.
        """
        held = {row.step_id: row.part_of or row.exchange_id for row in governed.quarantine}
        told: list[tuple[str, HeldNote]] = []
        for one in assembly.placed:
            call, kept_as = one.call, held.get(one.step_id)
            if kept_as is not None and call.span is not None:
                people = (*([call.end_user] if call.end_user else []), *call.also_named)
                tenant = call.exchange.client.tenant_id
                told.append((one.step_id, HeldNote(tenant, kept_as, people)))
        for person in assembly.people:
            if person.step_id not in held and self._path(person.step_id).exists():
                people = (*([person.end_user] if person.end_user else []), *person.also_named)
                told.append((person.step_id, HeldNote(person.tenant_id, "", people)))
        for said in governed.feedback_held:
            tenant = said.feedback.client.tenant_id
            for step_id, kept_as in said.calls:
                told.append((step_id, HeldNote(tenant, kept_as, feedback=(said.feedback,))))
        if not told:
            return
        make_folders(self._folder, 0o700)
        # Else a case that is dropped now would leave its note.
        with locked(self._folder, wait=True):
            kept = there()
            for step_id, note in told:
                before = self.of(step_id)
                kept_as = note.kept_as or (before.kept_as if before is not None else "")
                if not kept_as or kept_as in kept:
                    self._write(step_id, note if before is None else before.joined(note))

    def settle(self, assembly: Assembly, governed: GovernedBatch) -> None:
        """Delete the notes on released calls of a batch that are not held again."""
        held = {row.step_id for row in governed.quarantine}
        self.drop(self._of_released(assembly).keys() - held)

    def drop(self, step_ids: Iterable[str | None]) -> int:
        """Delete the notes on these steps; return how many there were."""
        return delete_lastingly(self._path(one) for one in step_ids if one is not None)

    def drop_of(self, tenant_id: str, *, kept: Collection[str]) -> int:
        """Delete a tenant's notes, but for those on calls of the exchanges that are kept; return how many."""
        return delete_lastingly(
            path
            for path, note in self._all()
            if note is not None and note.tenant_id == tenant_id and note.kept_as not in kept
        )

    def expire(self, there: Collection[str], gone: Collection[str], limit: float) -> int:
        """Delete the notes on calls whose exchange is gone, and what is left of others; return how many.

        Args:
            there: the held exchanges that are kept.
            gone: those that were deleted just now for their age.
            limit: what no exchange holds any more goes when it is older, in seconds since 1970.
        """
        due = []
        for path, note in self._all():
            kept_as = "" if note is None else note.kept_as
            if kept_as in gone or (kept_as not in there and path.stat().st_mtime < limit):
                due.append(path)
        return delete_lastingly(due)

    def _of_released(self, assembly: Assembly) -> Mapping[str, HeldNote]:
        steps = (one.step_id for one in assembly.placed if one.call.exchange.released_of)
        return {one: note for one in steps if (note := self.of(one)) is not None}

    def _path(self, step_id: str) -> Path:
        return self._folder / f"{sha256(step_id.encode()).hexdigest()[:40]}{_SUFFIX}"

    def _all(self) -> Iterator[tuple[Path, HeldNote | None]]:
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            yield path, self._opened(path)

    def _opened(self, path: Path) -> HeldNote | None:
        try:
            data = path.read_bytes()
            plain = self._seal.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], path.stem.encode())
        except (FileNotFoundError, InvalidTag, ValueError):
            return None
        return _read(json.loads(plain))

    def _write(self, step_id: str, note: HeldNote) -> None:
        path, nonce = self._path(step_id), os.urandom(_NONCE_BYTES)
        plain = json.dumps(asdict(note), default=datetime.isoformat).encode()
        replace_file(path, nonce + self._seal.encrypt(nonce, plain, path.stem.encode()))


def _named(one: PlacedCall, note: HeldNote | None) -> PlacedCall:
    """Return a call with whom its trace named while it was held: the trace may be forgotten by now."""
    if note is None or not note.people:
        return one
    return replace(one, call=with_people(one.call, note.people))


def _read(said: dict[str, Any]) -> HeldNote:
    feedback = tuple(
        Feedback(
            **{
                **one,
                "client": ClientIdentity(
                    **{**one["client"], "purposes": tuple(one["client"]["purposes"])}
                ),
                "received_at": datetime.fromisoformat(one["received_at"]),
                "position": SpoolPosition(**one["position"]),
            }
        )
        for one in said["feedback"]
    )
    people = None if said["people"] is None else tuple(said["people"])
    return HeldNote(said["tenant_id"], said["kept_as"], people, feedback)
