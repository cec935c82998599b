"""The spool's reader: finished exchanges and feedback of all writers, once along a cursor chain.

The order is fixed by what is on disk: records come by the time of their end, merged over all
writers. Taking from the same cursor again gives the same records in the same order; with
``until`` it gives exactly those of an earlier take, also after more has been written.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.spool import layout
from proxy.spool.cursor import Cursor, Mark, Position
from proxy.spool.frames import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, find_frame
from proxy.spool.keys import KeyRing
from proxy.spool.records import RecordKind
from proxy.spool.scan import Bound, Damage, ScannedItem, WriterScan, content_bytes
from trajectory.exchange import SpoolRecord

_COUNTED = (RecordKind.END, RecordKind.LAST_PART, RecordKind.FEEDBACK)
_HEAD_READ = 64


_MOST_BYTES = 16 * 1024 * 1024
"""Of bodies in a batch: read, judged and written, they take about fifteen times as much memory."""


@dataclass(frozen=True, slots=True)
class SpoolBatch:
    """Result of one take, and the cursor of the next."""

    records: tuple[SpoolRecord, ...]
    cursor: Cursor
    damaged: tuple[Damage, ...] = ()
    """Stretches met since the take before that could not be read."""
    size: int = 0
    """Bytes of the bodies in the records."""
    is_full: bool = False
    """A limit ended it: there may be more."""


@dataclass(frozen=True, slots=True)
class SpoolLag:
    """Records that are written and not yet taken."""

    bytes: int
    records: int
    """Finished exchanges and feedback; open exchanges of dead writers are not counted."""


class SpoolReader:
    """Takes records from a spool that gateways may be writing to at the same time.

    One reader object is for one thread. It keeps the exchanges that are still open in memory, so
    that a chain of takes reads every byte once.
    """

    def __init__(
        self,
        spool: Path,
        key: bytes,
        *,
        older_keys: Sequence[bytes] = (),
        key_file: Path | None = None,
    ) -> None:
        self._spool = spool
        self._given = (key, tuple(older_keys), key_file)
        self._keys = KeyRing(key, older=older_keys, file=key_file)
        self._cursor = Cursor()
        self._scans: dict[str, WriterScan] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Give another process a reader of the same spool, which has taken nothing yet."""
        return _reader, (self._spool, *self._given)

    def take(
        self,
        cursor: Cursor,
        *,
        limit: int = 1000,
        max_bytes: int = _MOST_BYTES,
        until: Cursor | None = None,
    ) -> SpoolBatch:
        """Take the next records after ``cursor``.

        Args:
            cursor: where the last committed batch ended; ``Cursor()`` for the beginning.
            limit: how many records at most; exchanges that a dead writer left open come together
                and may exceed it.
            max_bytes: stop after the record with which the bodies reach this size.
            until: take exactly what lies between the two cursors (the replay of an earlier take,
                whose cursor it is); the other limits then do not count.

        Raises:
            IntegrityError: a segment is sealed under a key that this reader was not given.
        """
        if cursor != self._cursor:
            self._scans = {}
        bounds = self._bounds(until)
        scans = {name: self._scan(name, cursor) for name in bounds}
        records: list[SpoolRecord] = []
        damaged: list[Damage] = []
        size = 0
        is_full = False
        while until is not None or not (is_full := len(records) >= limit or size >= max_bytes):
            heads = [
                (item.time, name)
                for name, scan in scans.items()
                if (item := scan.peek(bounds[name])) and _within(item, name, until)
            ]
            if not heads:
                break
            item, found = scans[min(heads)[1]].pop()
            damaged += found
            records += item.records
            size += sum(map(content_bytes, item.records))
        self._scans = scans
        self._cursor = Cursor({name: scan.mark for name, scan in scans.items()})
        return SpoolBatch(tuple(records), self._cursor, tuple(damaged), size, is_full)

    def _bounds(self, until: Cursor | None) -> dict[str, Bound]:
        """Fix what this take may read; writers that are gone from the disk fall out of the cursor."""
        bounds = {}
        for name in layout.writers(self._spool):
            bound = Bound.now(self._spool / name)
            if until is not None:
                goal = until.marks.get(name)
                if goal is None:
                    continue
                bound = Bound(alive=not goal.ended, last=bound.last)
            bounds[name] = bound
        return bounds

    def _scan(self, name: str, cursor: Cursor) -> WriterScan:
        if name in self._scans:
            return self._scans[name]
        return WriterScan(self._spool / name, self._keys, cursor.marks.get(name, Mark()))

    def lag(self, cursor: Cursor) -> SpoolLag:
        """Count what has been written after ``cursor``, without opening any seal."""
        size = count = 0
        for name in layout.writers(self._spool):
            mark = cursor.marks.get(name, Mark())
            if mark.ended:
                continue
            for number in layout.segments(self._spool / name):
                if number >= mark.at.segment:
                    start = mark.at.offset if number == mark.at.segment else 0
                    path = layout.segment_path(self._spool / name, number)
                    bytes_, records = _count(path, max(start, SEGMENT_HEADER_BYTES))
                    size += bytes_
                    count += records
        return SpoolLag(size, count)

    def release(self, cursor: Cursor) -> int:
        """Delete the segments that lie wholly before ``cursor``; return how many bytes came free.

        Call it only after the batch that ends at ``cursor`` has been committed.
        """
        before = layout.size(self._spool).bytes
        for name in layout.writers(self._spool):
            mark = cursor.marks.get(name)
            if mark is None:
                continue
            directory = self._spool / name
            if mark.ended:
                layout.remove(directory)
                continue
            numbers = layout.segments(directory)
            for number in numbers:
                if number < mark.hold.segment or (
                    number == mark.hold.segment != numbers[-1] and _read_to_its_end(directory, mark)
                ):
                    layout.segment_path(directory, number).unlink(missing_ok=True)
        return max(0, before - layout.size(self._spool).bytes)


def _reader(
    spool: Path, key: bytes, older_keys: tuple[bytes, ...], key_file: Path | None
) -> SpoolReader:
    return SpoolReader(spool, key, older_keys=older_keys, key_file=key_file)


def _read_to_its_end(directory: Path, mark: Mark) -> bool:
    """Whether a finished segment holds nothing behind the mark, and no exchange in it is open."""
    try:
        size = layout.segment_path(directory, mark.at.segment).stat().st_size
    except FileNotFoundError:
        return True
    return mark.hold == mark.at and mark.at.offset >= size


def _within(item: ScannedItem, name: str, until: Cursor | None) -> bool:
    if until is None:
        return True
    goal = until.marks[name]
    if item.ended:
        return goal.ended
    return item.at <= goal.at


def _count(path: Path, start: int) -> tuple[int, int]:
    """Return (bytes, finished records) of a segment from ``start`` on, hopping from head to head."""
    records = 0
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, 0
    try:
        size = os.fstat(file).st_size
        at = start
        while at < size:
            found = find_frame(os.pread(file, _HEAD_READ, at), 0, at)
            if found is None:
                found = find_frame(os.pread(file, size - at, at), 0, at)
                if found is None:
                    break
            kind, length, skipped = found
            records += kind in _COUNTED
            at += skipped + FRAME_HEADER_BYTES + length
    finally:
        os.close(file)
    return max(0, size - start), records


__all__ = ["Cursor", "Damage", "Position", "SpoolBatch", "SpoolLag", "SpoolReader"]
