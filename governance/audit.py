"""The audit log: JSON lines in a hash chain, so that no edit, gap or reordering goes unnoticed.

Each entry's hash is keyed and covers the entry and the hash before it. How far the log goes stands beside it
(``audit.head``), so that a cut at its end is noticed, and entered before anything else follows; so is that this
file was taken away. What a full disk or a killed process left of an entry is cut back and entered too: nobody was
told that it is there. A head that was noted elsewhere shows if somebody deletes the log and that file, or takes
both back to an earlier day. The governing process notes one beside the lake's tables (a *witness*); a person can
note one by hand (:meth:`AuditLog.head`, an *anchor*).
"""

import fcntl
import hmac
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from governance.audit_entries import (
    BEGINNING,
    AuditHead,
    AuditPlace,
    entries_after,
    head_of,
    latest_entries,
    line_of,
    record_of,
    sealed,
)
from governance.records import AuditRecord
from trajectory.canonical import JsonValue, content_hash
from trajectory.errors import IntegrityError, RetryableError
from trajectory.files import make_folders, replace_file, sync_folder

_BLOCK = 65536
_ITSELF = "headrace:audit"
"""The actor of entries about the log itself."""
CUT = "audit.cut"
"""The action of an entry that tells that entries before it are gone."""
PROCESS = "headrace:"
"""How an actor begins that is a process of Headrace; a program's begins with ``client:`` and its key's id."""
GOVERNOR = f"{PROCESS}governor"
NOT_PEOPLE = (PROCESS, "client:")
"""Whatever begins otherwise is a person."""
HEADLESS = "audit.headless"
"""The action of an entry that tells that nobody could say how far the log went before it."""
TORN = "audit.torn"
"""The action of an entry that tells that a part of an entry was taken away before it."""


class Witness(Protocol):
    """A place away from the log that keeps how far it goes."""

    def get(self) -> bytes | None:
        """Return what was put last; None where there is nothing."""
        ...

    def put(self, data: bytes) -> None:
        """Keep this instead."""
        ...


class AuditLog:
    """Appends to one file; several processes may, one after the other.

    Promise: an entry is on disk when :meth:`append` returns.
    """

    def __init__(
        self,
        path: Path,
        key: bytes,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        witness: Witness | None = None,
    ) -> None:
        """Use the log at ``path``, which need not exist yet.

        Args:
            path: the file of JSON lines.
            key: keys the hashes; without it nobody can forge a chain.
            clock: the moment of an entry.
            witness: is told of each end, and asked for the last one.
        """
        self._witness = witness
        self._is_compared = witness is None
        self._path = path
        self._beside = path.with_suffix(".head")
        self._key = key
        self._clock = clock

    def append(
        self,
        *,
        actor: str,
        action: str,
        subject: str,
        detail: Mapping[str, JsonValue] | None = None,
    ) -> AuditRecord:
        """Append one entry and return it.

        Args:
            actor: who did it: a person's name, or what :data:`NOT_PEOPLE` tells.
            action: what was done, e.g. ``policy.changed``.
            subject: what it was done to: a hash, a version, a keyed pseudonym; no personal data.
            detail: counts and names; no personal data.

        Raises:
            IntegrityError: the last entry of the log is not intact.
            RetryableError: the disk is full or refuses; the log is as it was.
        """
        make_folders(self._path.parent, mode=0o700)
        with self._alone() as file:
            torn = self._cut_back(file)
            head, noted = self._last(file), self._noted()
            if (witnessed := self._witnessed()) is not None:
                noted = max(filter(None, (noted, witnessed)), key=lambda one: one.sequence)
                if not self._is_compared and noted.sequence <= head.sequence:
                    head = self._compared(file, head, witnessed)
            self._is_compared = True
            if noted is None:
                if head.sequence:
                    head = head_of(self._write(file, head, _ITSELF, HEADLESS, "audit.head", {}))
                else:
                    replace_file(self._beside, self._said(head))
            elif noted.sequence > head.sequence:
                head = head_of(self._write(file, head, _ITSELF, CUT, _gone(head, noted), {}))
            if torn:
                said: dict[str, JsonValue] = {"bytes": torn}
                head = head_of(self._write(file, head, _ITSELF, TORN, "the last line", said))
            record = self._write(file, head, actor, action, subject, detail or {})
            with suppress(OSError):  # the entry stands; the head may be behind
                replace_file(self._beside, self._said(head_of(record)))
            if self._witness is not None:
                with suppress(RetryableError):
                    self._witness.put(self._said(head_of(record)))
        return record

    def _compared(self, file: int, head: AuditHead, witnessed: AuditHead) -> AuditHead:
        """Enter that a log as long as the witness's is another one; return the end."""
        if any(head_of(one) == witnessed for one in self.entries()):
            return head
        said = f"what led to entry {witnessed.sequence}"
        return head_of(self._write(file, head, _ITSELF, CUT, said, {}))

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Give the open log, with no other writer at it."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise RetryableError(
                f"{self._path}: the audit entry could not be written ({error.strerror}); check disk "
                "space and permissions, then run the same again"
            ) from error

    def _write(
        self,
        file: int,
        head: AuditHead,
        actor: str,
        action: str,
        subject: str,
        detail: Mapping[str, JsonValue],
    ) -> AuditRecord:
        record = sealed(
            AuditRecord(
                sequence=head.sequence + 1,
                recorded_at=self._clock(),
                actor=actor,
                action=action,
                subject=subject,
                detail=json.dumps(dict(detail), sort_keys=True, ensure_ascii=False),
                previous_hash=head.entry_hash,
                entry_hash="",
            ),
            self._key,
        )
        before = os.fstat(file).st_size
        try:
            left = memoryview(line_of(record))
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        except BaseException:
            with suppress(OSError):  # else the next one cuts it back
                os.ftruncate(file, before)
            raise
        if before == 0:
            sync_folder(self._path.parent)
        return record

    def _cut_back(self, file: int) -> int:
        """Take away what stands behind the last whole line; return how many bytes that was."""
        size = start = os.fstat(file).st_size
        tail = b""
        while start > 0 and b"\n" not in tail:
            start = max(0, start - _BLOCK)
            tail = os.pread(file, size - start, start)
        torn = len(tail) - (tail.rfind(b"\n") + 1)
        if torn:
            os.ftruncate(file, size - torn)
        return torn

    def _said(self, head: AuditHead) -> bytes:
        """Return what tells beside the log how far it goes."""
        return json.dumps({**asdict(head), "sealed": self._seal(head)}).encode() + b"\n"

    def _noted(self) -> AuditHead | None:
        """Return how far the log went; None where nobody told, or somebody without the key."""
        try:
            return self._opened(self._beside.read_bytes())
        except OSError:
            return None

    def is_of_another_key(self) -> bool:
        """Tell whether another key made both the first entry and what stands beside the log.

        A log that cannot be read tells nothing of its key: a stolen client key ends all the same.
        """
        try:
            first = next(self.entries(), None)
        except (OSError, IntegrityError):
            return False
        if first is None or not self._beside.exists() or self._noted() is not None:
            return False
        return sealed(first, self._key).entry_hash != first.entry_hash

    def _witnessed(self) -> AuditHead | None:
        """Return how far the log went as the witness has it; None where it has nothing of ours."""
        data = None if self._witness is None else self._witness.get()
        return None if data is None else self._opened(data)

    def _opened(self, data: bytes) -> AuditHead | None:
        try:
            said = json.loads(data)
            head = AuditHead(int(said["sequence"]), str(said["entry_hash"]))
        except (ValueError, TypeError, KeyError):
            return None
        return head if hmac.compare_digest(str(said.get("sealed")), self._seal(head)) else None

    def _seal(self, head: AuditHead) -> str:
        return content_hash({"head": asdict(head)}, key=self._key[:64])

    def entries(self) -> Iterator[AuditRecord]:
        """Yield the entries as they are written, unverified; a line without its end is none yet.

        Raises:
            IntegrityError: a line is not an entry.
        """
        for record, _ in entries_after(self._path, BEGINNING):
            yield record

    def latest(self, count: int) -> list[AuditRecord]:
        """Return the last entries as they are written, unverified; only the end of the log is read.

        Raises:
            IntegrityError: one of these lines is not an entry.
        """
        return latest_entries(self._path, count)

    def head(self) -> AuditHead:
        """Return the end of the log."""
        latest = self.latest(1)
        return head_of(latest[0]) if latest else BEGINNING.head

    def verify(self, *anchors: AuditHead) -> AuditHead:
        """Check the whole chain and return its end.

        Args:
            anchors: ends that were noted earlier; the log must still contain each, and the witness's.

        Raises:
            IntegrityError: an entry was changed, removed, inserted or moved, or the log was cut
                before the anchor; the text names the first entry that is wrong.
        """
        return self.verify_after(BEGINNING, *anchors).head

    def verify_after(self, place: AuditPlace, *anchors: AuditHead) -> AuditPlace:
        """Check what follows a place that was verified before, and return the end.

        Entries before that place are not read: of them a change goes unnoticed here.

        Args:
            place: where an earlier call ended.
            anchors: see :meth:`verify`; those before the place are left out.

        Raises:
            IntegrityError: see :meth:`verify`; also where the entry of that place is no longer there.
        """
        noted = self._noted()  # before the log is read: others may append meanwhile
        witnessed = self._witnessed()
        self._require_end(place)
        head, end = place.head, place.offset
        others = {*anchors, *([] if witnessed is None else [witnessed])} - {head}
        missing = {one for one in others if one.sequence >= head.sequence}
        for record, offset in entries_after(self._path, place):
            self._check(record, head, head.sequence + 1)
            head, end = head_of(record), offset
            missing.discard(head)
        noted = noted or self._noted()
        if noted is None and head.sequence:
            raise IntegrityError(
                f"{self._beside.name} is gone, or was not written here, so that nobody can tell whether "
                f"{self._path.name} was cut off at its end. Restore both from a backup and compare."
            )
        if noted is not None and noted.sequence > head.sequence:
            raise IntegrityError(
                f"{self._path.name}: {_gone(head, noted)} cut off at its end. Restore the log from a "
                "backup and compare."
            )
        if missing:
            first = min(missing, key=lambda one: one.sequence)
            whose = (
                "that the lake's note"
                if first == witnessed
                else "that an anchor or an earlier check"
            )
            raise IntegrityError(
                f"{self._path.name}: entry {first.sequence} {whose} tells of is not in the log: it "
                "was cut off or written anew. Restore it from a backup and compare."
            )
        return AuditPlace(head, end)

    def _require_end(self, place: AuditPlace) -> None:
        """Refuse a log in which the entry of a place does not end there.

        Raises:
            IntegrityError: it is so.
        """
        if place == BEGINNING:
            return
        is_there = self._path.exists() and self._path.stat().st_size >= place.offset
        found = latest_entries(self._path, 1, before=place.offset) if is_there else []
        if [head_of(sealed(one, self._key)) for one in found] != [place.head]:
            raise IntegrityError(
                f"{self._path.name}: entry {place.head.sequence}, which was verified earlier, is not where "
                "it stood: the log was cut off or written anew. Restore it from a backup and compare."
            )

    def _check(self, record: AuditRecord, before: AuditHead, number: int) -> None:
        problem = ""
        if record.sequence != before.sequence + 1:
            problem = f"has sequence {record.sequence}, expected {before.sequence + 1}"
        elif record.previous_hash != before.entry_hash:
            problem = "does not follow the entry before it"
        elif sealed(record, self._key).entry_hash != record.entry_hash:
            problem = "was changed after it was written"
        elif record.action == CUT:
            problem = f"tells that {record.subject} had been cut off before it"
        elif record.action == HEADLESS:
            problem = (
                f"tells that {self._beside.name} was gone, so entries before it may be missing"
            )
        if problem:
            raise IntegrityError(
                f"{self._path.name}:{number}: the entry {problem}. The log is not intact from "
                "here on; restore it from a backup and compare."
            )

    def _last(self, file: int) -> AuditHead:
        """Return the end of an open log, whose last line is whole, by reading that line only."""
        size = start = os.fstat(file).st_size
        if size == 0:
            return BEGINNING.head
        tail = b""
        while start > 0 and tail.rstrip(b"\n").count(b"\n") == 0:
            start = max(0, start - _BLOCK)
            tail = os.pread(file, size - start, start)
        record = record_of(tail.splitlines()[-1], self._path.name)
        if sealed(record, self._key).entry_hash != record.entry_hash:
            raise IntegrityError(
                f"{self._path.name}: the last entry was changed, so nothing may follow it. "
                "See `headrace audit verify`."
            )
        return head_of(record)


def _gone(head: AuditHead, noted: AuditHead) -> str:
    first, last = head.sequence + 1, noted.sequence
    return f"entries {first} to {last}" if last > first else f"entry {last}"
