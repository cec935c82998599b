"""What is told of a held call beside its exchange: feedback on it, and whom its trace names.

A release brings the exchange back; what was told of the call is put to it when it is judged again, and goes once
nothing holds the call any more. It goes with a dropped case too, with an exchange that rested too long, and with an
erasure.

Each telling is a file, sealed as the held exchanges are, in a folder of its step. Its name has a number and the
exchange that brings the call: so one that does not open goes when it has to. No call is judged without it.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from governance.records import GovernedBatch
from trajectory.assembly.result import Assembly, PlacedCall, PlacedFeedback
from trajectory.dialects.hints import with_people
from trajectory.errors import IntegrityError
from trajectory.exchange import ClientIdentity, Feedback, SpoolPosition
from trajectory.files import delete_lastingly, locked, make_folders, replace_file, sync_folder

DAMAGED = "release:damaged-note"
"""Why a released call is held again of which a note does not open."""
_NONCE_BYTES = 12
_SUFFIX = ".notes"
_OF_CALLS = frozenset({"response", "step"})
"""Targets of feedback that is about one call; any other is about a trajectory."""


@dataclass(frozen=True, slots=True)
class HeldNote:
    """What was told of one held call."""

    tenant_id: str
    people: tuple[str, ...] | None = None
    """Whom its trace names as who used the application; None where it is in no trace."""
    feedback: tuple[Feedback, ...] = ()

    def joined(self, later: "HeldNote") -> "HeldNote":
        """Return this note with what was told later."""
        said = {one.feedback_id: one for one in (*self.feedback, *later.feedback)}
        people = self.people if later.people is None else later.people
        return HeldNote(self.tenant_id, people, tuple(said.values()))


class QuarantineNotes:
    """Sealed notes on held calls, by step. One governor writes them; whoever drops a case deletes its notes."""

    def __init__(self, folder: Path, key: bytes) -> None:
        """Keep them in ``folder``, that of the held exchanges, sealed with ``key``."""
        self._folder = folder
        self._seal = AESGCM(key)

    def of(self, step_id: str) -> HeldNote | None:
        """Return what was told of a step's call; None where nothing was.

        Raises:
            IntegrityError: a note was changed, or sealed under another key.
        """
        notes = [self._read(path) for path in _tellings(self._place(step_id))]
        return reduce(HeldNote.joined, notes) if notes else None

    def damage(self, step_id: str | None) -> str:
        """Return what of a step's notes does not open, with the remedy; empty where all does."""
        try:
            if step_id is not None:
                self.of(step_id)
        except IntegrityError as error:
            return str(error)
        return ""

    def put_to(self, assembly: Assembly) -> Assembly:
        """Return a batch with what was told of its released calls while they were held.

        A call of which a note does not open has a problem then: nobody knows whose it is.
        """
        if not any(one.call.exchange.released_of for one in assembly.placed):
            return assembly
        placed: list[PlacedCall] = []
        feedback: list[PlacedFeedback] = []
        for one in assembly.placed:
            try:
                note = self.of(one.step_id) if one.call.exchange.released_of else None
            except IntegrityError:
                placed.append(replace(one, problem=DAMAGED))
                continue
            placed.append(_named(one, note))
            feedback += _placed_with(one, note)
        return replace(assembly, placed=tuple(placed), feedback=(*assembly.feedback, *feedback))

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
        told: list[tuple[str, str | None, HeldNote]] = []
        for one in assembly.placed:
            call, kept_as = one.call, held.get(one.step_id)
            if kept_as is None:
                continue
            if call.exchange.released_of:
                self._move(one.step_id, kept_as)
            if call.span is not None and one.problem is None:  # else its people are not all known
                tenant = call.exchange.client.tenant_id
                told.append((one.step_id, kept_as, HeldNote(tenant, call.people)))
        for person in assembly.people:
            if person.step_id not in held and self._place(person.step_id).exists():
                note = HeldNote(person.tenant_id, person.people)
                told.append((person.step_id, None, note))
        for said in governed.feedback_held:
            tenant = said.feedback.client.tenant_id
            for step_id, kept_as in said.calls:
                told.append((step_id, kept_as, HeldNote(tenant, feedback=(said.feedback,))))
        if not told:
            return
        make_folders(self._folder, 0o700)
        # Else a case that is dropped now would leave its note.
        with locked(self._folder, wait=True):
            kept = there()
            for step_id, kept_as, note in told:
                self._add(step_id, kept_as, note, kept)

    def settle(self, assembly: Assembly, governed: GovernedBatch) -> None:
        """Delete the notes on released calls of a batch that are not held again."""
        held = {row.step_id for row in governed.quarantine}
        released = (one.step_id for one in assembly.placed if one.call.exchange.released_of)
        self.drop(one for one in released if one not in held)

    def drop(self, step_ids: Iterable[str | None]) -> int:
        """Delete the notes on these steps; return on how many there were some."""
        return delete_lastingly(self._place(one) for one in step_ids if one is not None)

    def drop_of(self, tenant_id: str, *, kept: Collection[str]) -> int:
        """Delete a tenant's notes, but for those on calls of the exchanges that are kept; return on how many steps.

        Of those that do not open nobody knows the tenant: they go with their age.
        """
        return delete_lastingly(
            place
            for place, last in self._all()
            if _kept_as(last) not in kept and self._tenant(place) == tenant_id
        )

    def expire(self, there: Collection[str], gone: Collection[str], limit: float) -> int:
        """Delete the notes on calls whose exchange is gone, and what is left of others; return on how many steps.

        Args:
            there: the held exchanges that are kept.
            gone: those that were deleted just now for their age.
            limit: what no exchange holds any more goes when it is older, in seconds since 1970.
        """
        return delete_lastingly(
            place
            for place, last in self._all()
            if (kept_as := _kept_as(last)) in gone
            or (kept_as not in there and last.stat().st_mtime < limit)
        )

    def _place(self, step_id: str) -> Path:
        return self._folder / f"{sha256(step_id.encode()).hexdigest()[:40]}{_SUFFIX}"

    def _all(self) -> Iterator[tuple[Path, Path]]:
        """Yield the folder of each step, with its last telling."""
        for place in sorted(self._folder.glob(f"*{_SUFFIX}")):
            if tellings := _tellings(place):
                yield place, tellings[-1]

    def _tenant(self, place: Path) -> str | None:
        for path in _tellings(place):
            with suppress(IntegrityError):
                return self._read(path).tenant_id
        return None

    def _add(
        self, step_id: str, kept_as: str | None, note: HeldNote, kept: Collection[str]
    ) -> None:
        """Write a telling.

        Args:
            step_id: of the call that it is about.
            kept_as: the exchange that brings the call, empty where it is on its way back to the governor; None
                where those told before know it.
            note: what is told.
            kept: the held exchanges that are kept.
        """
        place = self._place(step_id)
        before = _tellings(place)
        if kept_as is None:
            if not before:  # its case was dropped meanwhile
                return
            kept_as = _kept_as(before[-1])
        if kept_as and kept_as not in kept:
            return
        make_folders(place, 0o700)
        path = place / f"{_number(before[-1]) + 1 if before else 0:08d}.{kept_as}"
        plain = json.dumps(asdict(note), default=datetime.isoformat).encode()
        nonce = os.urandom(_NONCE_BYTES)
        replace_file(path, nonce + self._seal.encrypt(nonce, plain, _bound(path)))

    def _move(self, step_id: str, kept_as: str) -> None:
        """Name the exchange that brings a call now, which is held again: its first one went with the release."""
        place = self._place(step_id)
        if tellings := _tellings(place):
            last = tellings[-1]
            last.rename(place / f"{_number(last):08d}.{kept_as}")
            sync_folder(place)

    def _read(self, path: Path) -> HeldNote:
        """Open a telling.

        Raises:
            IntegrityError: it was changed, or sealed under another key.
        """
        data = path.read_bytes()
        try:
            plain = self._seal.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(path))
        except (InvalidTag, ValueError):  # the latter where it is shorter than any
            raise IntegrityError(
                f"note {path.parent.name}/{path.name} on a held call does not open: it was changed, or the master key "
                "was. It may say whose the call is. Put its file back from a backup, or drop the call's case."
            ) from None
        return _note(json.loads(plain))


def _tellings(place: Path) -> list[Path]:
    """Return what was told of a step, in order; what a killed process left is none."""
    return sorted(place.glob("[0-9]*"))


def _bound(path: Path) -> bytes:
    """Return what a telling is sealed with: its step and number, since another exchange may bring the call."""
    return f"{path.parent.name}/{_number(path)}".encode()


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _kept_as(path: Path) -> str:
    return path.name.partition(".")[2]


def _named(one: PlacedCall, note: HeldNote | None) -> PlacedCall:
    """Return a call with whom its trace named while it was held: the trace may be forgotten by now."""
    if note is None or not note.people:
        return one
    return replace(one, call=with_people(one.call, note.people))


def _placed_with(one: PlacedCall, note: HeldNote | None) -> list[PlacedFeedback]:
    """Return the feedback of a note in the place of its call."""
    return [
        PlacedFeedback(
            said,
            one.trajectory_id,
            one.step_id if said.target_kind in _OF_CALLS else None,
            was_held=True,
        )
        for said in (note.feedback if note is not None else ())
    ]


def _note(said: dict[str, Any]) -> HeldNote:
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
    return HeldNote(said["tenant_id"], people, feedback)
