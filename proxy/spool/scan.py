"""One writer's records in order: frames become exchanges, and places become marks."""

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from proxy.spool import layout
from proxy.spool.cursor import Mark, Position
from proxy.spool.exchanges import OpenExchange, read_feedback, unbundle
from proxy.spool.frames import (
    SEGMENT_HEADER_BYTES,
    Frame,
    SegmentOpener,
    UnknownKeyError,
    is_cut_off,
)
from proxy.spool.keys import KeyRing
from proxy.spool.records import RECORD_HEADER_BYTES, RecordKind
from trajectory.errors import IntegrityError
from trajectory.exchange import Feedback, SpoolPosition, SpoolRecord

_STRETCH_BYTES = 4 * 1024 * 1024
"""How much of a segment is in memory at a time, beside what is made of it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of the spool that could not be read; it was skipped."""

    writer: str
    segment: int
    offset: int
    bytes: int
    reason: str
    """segment-header | frame | seal | record | head-missing"""


class Bound(NamedTuple):
    """Part of a writer that one take may read. It is fixed at the start, and so is the order."""

    alive: bool
    last: Position
    """End of the newest segment as it was then."""

    @classmethod
    def now(cls, directory: Path) -> "Bound":
        """Look at a writer: first whether it lives, then how far its files reach."""
        alive = layout.lives(directory)
        numbers = layout.segments(directory)
        if not numbers:
            return cls(alive, Position(0, 0))
        try:
            size = layout.segment_path(directory, numbers[-1]).stat().st_size
        except FileNotFoundError:  # as in ``_read``
            size = 0
        return cls(alive, Position(numbers[-1], size))


@dataclass(frozen=True, slots=True)
class ScannedItem:
    """Result of one end record, one feedback record or the end of a dead writer."""

    time: float
    records: tuple[SpoolRecord, ...]
    at: Position
    """The place after it."""
    ended: bool = False


class WriterScan:
    """Reads one writer from a mark on; :meth:`peek` and :meth:`pop` give its items in order."""

    def __init__(self, directory: Path, keys: KeyRing, mark: Mark) -> None:
        self._directory = directory
        self._writer = directory.name
        self._keys = keys
        self._from = mark.at
        self._taken = mark
        self._ended = mark.ended
        self._next = mark.hold
        self._open: dict[bytes, OpenExchange] = {}
        self._ready: deque[tuple[ScannedItem, Position]] = deque()
        """Items found and not yet popped, with the places where their exchanges begin."""
        self._openers: dict[int, SegmentOpener | None] = {}
        self._damaged: list[Damage] = []

    def peek(self, bound: Bound) -> ScannedItem | None:
        """Return the next item within ``bound``, or None when there is no more."""
        while not self._ready and self._read(bound):
            pass
        if not self._ready and not bound.alive and not self._ended:
            self._finish(bound)
        return self._ready[0][0] if self._ready else None

    def pop(self) -> tuple[ScannedItem, list[Damage]]:
        """Take the item that :meth:`peek` showed, and hand over the damage met so far."""
        item, _ = self._ready.popleft()
        self._taken = Mark(item.at, item.at, item.ended)
        self._ended = item.ended
        damaged, self._damaged = self._damaged, []
        return item, damaged

    @property
    def mark(self) -> Mark:
        """Position up to which the take has read this writer."""
        begins = [place for _, place in self._ready]
        begins += [Position(o.position.segment, o.position.offset) for o in self._open.values()]
        at = self._taken.at
        hold = min((place for place in begins if place < at), default=self._taken.hold)
        return Mark(at, hold, self._taken.ended)

    def _read(self, bound: Bound) -> bool:
        """Read on to the end of one segment or of the bound; tell whether anything was read."""
        numbers = [n for n in layout.segments(self._directory) if n >= self._next.segment]
        if not numbers or numbers[0] > bound.last.segment:
            return False
        if numbers[0] != self._next.segment:
            self._next = Position(numbers[0], 0)
        try:
            return self._read_segment(numbers[0], bound)
        except FileNotFoundError:  # it grew too old meanwhile (proxy.spool.expiry)
            self._next = Position(numbers[0] + 1, 0)
            return True

    def _read_segment(self, number: int, bound: Bound) -> bool:
        path = layout.segment_path(self._directory, number)
        final = number < bound.last.segment or not bound.alive
        limit = bound.last.offset if number == bound.last.segment else path.stat().st_size
        opener = self._opener(number, path, limit, final=final)
        if opener is not None:
            start = max(self._next.offset, SEGMENT_HEADER_BYTES)
            if self._frames(number, path, opener, start, limit):
                return True
            rest = max(self._next.offset, SEGMENT_HEADER_BYTES)
            if final and rest < limit and not self._was_being_written(path, rest, bound):
                self._damage(number, rest, limit, "frame")
        elif not final:
            return False
        if number < bound.last.segment:
            self._next = Position(number + 1, 0)
            return True
        self._next = Position(number, limit) if final else self._next
        return False

    @staticmethod
    def _was_being_written(path: Path, start: int, bound: Bound) -> bool:
        """Whether a writer was killed while it wrote what begins here: no client got any of it."""
        if bound.alive or layout.segment_path(path.parent, bound.last.segment) != path:
            return False
        with path.open("rb") as file:
            return is_cut_off(os.pread(file.fileno(), bound.last.offset - start, start), start)

    def _opener(self, number: int, path: Path, limit: int, *, final: bool) -> SegmentOpener | None:
        if number not in self._openers:
            if limit < SEGMENT_HEADER_BYTES and not final:
                return None
            with path.open("rb") as file:
                header = file.read(SEGMENT_HEADER_BYTES)
            try:
                self._openers = {number: self._unseal(header, str(path))}
            except UnknownKeyError:
                raise
            except IntegrityError:
                self._openers = {number: None}
                if limit:
                    self._damage(number, 0, limit, "segment-header")
        return self._openers[number]

    def _unseal(self, header: bytes, where: str) -> SegmentOpener:
        """Open a segment; a key that is not known may have come since the ring was read."""
        try:
            return SegmentOpener(header, self._keys.keys, where=where)
        except UnknownKeyError:
            if not self._keys.reload():
                raise
            return SegmentOpener(header, self._keys.keys, where=where)

    def _frames(
        self, number: int, path: Path, opener: SegmentOpener, start: int, limit: int
    ) -> bool:
        """Take up frames until an item is ready; tell whether one is.

        A stretch is read at a time, a longer one where a frame is longer.
        """
        size = _STRETCH_BYTES
        with path.open("rb") as file:
            while start < limit:
                data = os.pread(file.fileno(), min(size, limit - start), start)
                last = start
                for frame in opener.frames(data, start):
                    if frame.offset > last:
                        self._damage(number, last, frame.offset, "frame")
                    last = frame.end
                    self._next = Position(number, last)
                    self._take(number, frame)
                if self._ready or not data or (last == start and start + len(data) >= limit):
                    break
                size = size * 2 if last == start else _STRETCH_BYTES
                start = last
        return bool(self._ready)

    def _take(self, number: int, frame: Frame) -> None:
        if frame.record is None:
            self._damage(number, frame.offset, frame.end, "seal")
            return
        try:
            pieces = unbundle(frame.kind, frame.record)
        except ValueError:
            pieces = []
        if not pieces or any(len(record) < RECORD_HEADER_BYTES for _, record in pieces):
            self._damage(number, frame.offset, frame.end, "record")
            return
        for kind, record in pieces:
            self._take_record(number, frame, kind, record)

    def _take_record(self, number: int, frame: Frame, kind: int, record: bytes) -> None:
        place = Position(number, frame.offset)
        position = SpoolPosition(self._writer, number, frame.offset)
        if kind == RecordKind.FEEDBACK:
            self._take_feedback(record, position, frame.end)
            return
        name = record[:16]
        if kind == RecordKind.REQUEST_HEAD:
            self._open[name] = OpenExchange(position)
        exchange = self._open.get(name)
        if exchange is None:
            if place >= self._from and kind == RecordKind.END:
                self._damage(number, frame.offset, frame.end, "head-missing")
        elif kind != RecordKind.END:
            exchange.add(kind, record)
        else:
            del self._open[name]
            if place >= self._from:
                self._ready_up(exchange, record, Position(number, frame.end))

    def _take_feedback(self, record: bytes, position: SpoolPosition, end: int) -> None:
        place = Position(position.segment, position.offset)
        if place < self._from:
            return
        try:
            feedback = read_feedback(record, position)
        except ValueError:
            self._damage(position.segment, position.offset, end, "record")
            return
        item = ScannedItem(
            feedback.received_at.timestamp(), (feedback,), Position(position.segment, end)
        )
        self._ready.append((item, place))

    def _ready_up(self, exchange: OpenExchange, last: bytes, at: Position) -> None:
        begin = Position(exchange.position.segment, exchange.position.offset)
        try:
            built = exchange.build(last)
        except ValueError:
            self._damage(begin.segment, begin.offset, begin.offset, "record")
            return
        ended = built.ended_at or built.started_at
        self._ready.append((ScannedItem(ended.timestamp(), (built,), at), begin))

    def _finish(self, bound: Bound) -> None:
        """Make the item that ends a dead writer: its open exchanges, oldest first."""
        lost: list[SpoolRecord] = []
        for exchange in self._open.values():
            try:
                lost.append(exchange.build(None))
            except ValueError:
                where = exchange.position
                self._damage(where.segment, where.offset, where.offset, "record")
        time = max((exchange.last_at for exchange in self._open.values()), default=0.0)
        begins = [Position(o.position.segment, o.position.offset) for o in self._open.values()]
        self._open.clear()
        item = ScannedItem(time, tuple(lost), bound.last, ended=True)
        self._ready.append((item, min(begins, default=bound.last)))

    def _damage(self, number: int, start: int, end: int, reason: str) -> None:
        self._damaged.append(Damage(self._writer, number, start, end - start, reason))


def content_bytes(record: SpoolRecord) -> int:
    """Return about how much memory a record's content takes."""
    if isinstance(record, Feedback):
        return 1024
    response = len(record.response.body) if record.response else 0
    return len(record.request.body) + response
