"""Capture: the bytes of each exchange go into the spool as they pass, and nothing else happens.

A fault here never changes a byte of the call: every failure to record is counted, the exchange
is marked as not whole, and the data goes on.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum

from proxy.counters import Counters
from proxy.spool import RecordKind, SpoolUnavailableError, SpoolWriter, pieces, records
from proxy.spool.frames import MAX_RECORD_BYTES
from trajectory.exchange import ExchangeOutcome

_log = logging.getLogger(__name__)
_random = random.SystemRandom()
_generator = random.Random(_random.getrandbits(256))  # noqa: S311 - names, not secrets
_PIECE = MAX_RECORD_BYTES // 2
_BATCH_SECONDS = 0.05
_PATIENCE_SECONDS = 0.1
_SWITCHING = 101
_PART = int(RecordKind.PART)
_LAST_PART = int(RecordKind.LAST_PART)


class Level(IntEnum):
    """How much of an exchange is recorded."""

    METADATA = 0
    """Heads and end only."""
    FULL = 1


def new_exchange_id() -> bytes:
    """Return sixteen bytes: six of milliseconds since 1970, ten random ones."""
    stamp = int(time.time() * 1000) & 0xFFFFFFFFFFFF
    return (stamp << 80 | _generator.getrandbits(80)).to_bytes(16, "big")


class Recorder:
    """Writes captures into the spool of this process.

    A patient recorder lets a request wait a moment for its answer, so that one frame and one
    write hold both. Somebody then calls :meth:`settle` before bytes go out, so that no client
    gets anything of an exchange that the spool does not know.
    """

    def __init__(self, spool: SpoolWriter, counters: Counters, *, patient: bool = False) -> None:
        self.spool = spool
        self.counters = counters
        self.patient = patient
        self.asking: set[Capture] = set()
        """Requests that wait for their answers, and that only memory knows."""
        self.answered: list[Capture] = []
        """The same, once their answers have begun: the spool must know before their clients do."""
        self._sweep_due = False
        self._owed: deque[bytes] = deque()
        """Ends of exchanges that the spool could not take: without them their segments stay."""
        self._waiting: list[bytes] = []
        """Ends of exchanges that wait in memory with the rest of their batch."""
        self._flush_due = False
        self._lost_batches = 0

    def write(self, kind: int, record: bytes) -> bool:
        """Append a record; tell whether the spool took it."""
        try:
            if self._owed:
                self._pay()
            self.spool.append(kind, record)
        except SpoolUnavailableError:
            self._unavailable()
            return False
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.fault(error)
            return False
        return True

    def write_later(self, kind: int, record: bytes, end: bytes | None) -> bool:
        """Let a record wait in memory for those that come soon; ``end`` is the END record in it."""
        if end is not None:
            self._waiting.append(end)
        try:
            self._pay()
            self.spool.append(kind, record, batch=True)
        except SpoolUnavailableError:
            self._unavailable()
            return False
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.fault(error)
            return False
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_later(_BATCH_SECONDS, self.flush)
        return True

    def _pay(self) -> None:
        while self._owed:
            self.spool.append(RecordKind.END, self._owed[0])
            self._owed.popleft()

    def _unavailable(self) -> None:
        self.counters.uncaptured["spool-unavailable"] += 1
        self._look_for_losses()

    def flush(self) -> None:
        """Hand what waits in memory to the disk."""
        self._flush_due = False
        with suppress(SpoolUnavailableError):
            self.spool.flush()
        self._look_for_losses()
        self._waiting.clear()

    def _look_for_losses(self) -> None:
        """Count what waited and is lost; the ends are owed, or their segments would stay."""
        if self.spool.lost_batches != self._lost_batches:
            self._lost_batches = self.spool.lost_batches
            self.counters.uncaptured["batch-lost"] += len(self._waiting)
            self._owed.extend(self._waiting)
            self._waiting.clear()

    # Requests that wait for their answers.

    def await_answer(self, capture: "Capture") -> None:
        """Let a request wait until its answer comes, or until the time for that is over."""
        self.asking.add(capture)
        if not self._sweep_due:
            self._sweep_due = True
            asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Write the requests that have waited since the last time."""
        self._sweep_due = False
        for capture in tuple(self.asking):
            capture.lose_patience()
        if self.asking:
            self._sweep_due = True
            asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._sweep)

    def settle(self) -> None:
        """Write what the spool must know before bytes go out."""
        if self.answered:
            for capture in self.answered:
                if not capture.ended:
                    capture.settle()
            self.answered.clear()

    def owe(self, end: bytes) -> None:
        """Remember an end record for when the spool takes records again."""
        self._owed.append(end)

    def fault(self, error: Exception) -> None:
        """Count an error of our own; its text may hold content, so only its type is logged."""
        self.counters.faults += 1
        if self.counters.faults <= 100:
            _log.error("capture fault: %s", type(error).__name__)


class Capture:
    """Records one exchange. Parts that must not precede others wait for the next ones."""

    __slots__ = (
        "_batch",
        "_bytes",
        "_expected",
        "_impatient",
        "_level",
        "_mandatory",
        "_note",
        "_parts",
        "_received",
        "_recorder",
        "_sequence",
        "_switch",
        "begun",
        "ended",
        "exchange",
        "head",
    )

    def __init__(
        self,
        recorder: Recorder,
        exchange: bytes,
        head: bytes,
        level: Level,
        note: str,
        *,
        mandatory: bool = False,
        batch: bool = False,
    ) -> None:
        self._recorder = recorder
        self._mandatory = mandatory
        self._batch = batch
        self.exchange = exchange
        self.head = head
        """The request's head as recorded."""
        self._switch: bytes | None = None
        """Headers of the answer that made this a WebSocket connection."""
        self._bytes = len(head)
        self._parts = [pieces.request_head(self._bytes), head]
        """What waits, as parts of one frame."""
        self._sequence = 1
        self._level = level
        self._note = note
        self.begun = False
        """The spool knows of it."""
        self._impatient = False
        self._expected = -1
        self._received = 0
        self.ended = False

    @property
    def level(self) -> Level:
        """How much is recorded; it sinks when the spool runs out of room."""
        return self._level

    def on_request(self, data: bytes) -> bytes:
        """Tee of the request's body: record, and give back what came."""
        if data:
            try:
                self._recorder.counters.request_bytes += len(data)
                if not self.ended and self._level:
                    self._request_data(data)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                self.abandon(error)
        return data

    def _request_data(self, data: bytes) -> None:
        """Record a piece of the request's body; the first one may wait for the answer."""
        recorder = self._recorder
        if recorder.spool.shedding and self._sheds():
            return
        sequence, size = self._sequence, len(data)
        if self._bytes + size <= _PIECE:
            length = pieces.REQUEST_CHUNK_BYTES + size
            self._parts += (pieces.request_chunk(length, self.exchange, sequence), data)
            self._sequence = sequence + 1
            self._bytes += size
        else:
            for piece in _cut(data):
                self._room_for(len(piece))
                length = pieces.REQUEST_CHUNK_BYTES + len(piece)
                before = pieces.request_chunk(length, self.exchange, self._sequence)
                self._add(before, piece)
        if sequence == 1 and recorder.patient:
            recorder.await_answer(self)
        else:
            self._write()

    def request_done(self) -> None:
        """The request has been read whole: it waits for its answer, or is written."""
        if self.begun or self.ended:
            return
        if not self._recorder.patient:
            self._write()
        elif self._sequence == 1:
            self._recorder.await_answer(self)

    def response_head(
        self, status: int, headers: records.RawHeaders | bytes, *, length: int
    ) -> None:
        """Record the response's head; ``length`` is its Content-Length, -1 without one."""
        if self.ended:
            return
        self._expected = length
        block = headers if isinstance(headers, bytes) else records.pack_headers(headers)
        if status == _SWITCHING:
            self._switch = block
        size, sequence = len(block), self._sequence
        length = pieces.RESPONSE_HEAD_BYTES + size
        before = pieces.response_head(length, self.exchange, sequence, time.time(), status)
        self._parts += (before, block)
        self._sequence = sequence + 1
        self._bytes += size
        if not self.begun and self._recorder.patient:
            self._recorder.answered.append(self)

    def on_response(self, data: bytes) -> bytes:
        """Tee of the response's body: record, and give back what came; empty data is the end."""
        try:
            if data:
                self._response_data(data)
            elif not self.ended:
                self._end(ExchangeOutcome.COMPLETE, time.time())
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.abandon(error)
        return data

    def _response_data(self, data: bytes) -> None:
        """Record a piece of the response's body, before the client gets it."""
        recorder, size = self._recorder, len(data)
        recorder.counters.response_bytes += size
        self._received += size
        if self.ended:
            return
        now = time.time()
        if self._level and not (recorder.spool.shedding and self._sheds()):
            if self._bytes + size <= _PIECE:
                length = pieces.RESPONSE_CHUNK_BYTES + size
                before = pieces.response_chunk(length, self.exchange, self._sequence, now)
                self._parts += (before, data)
                self._sequence += 1
                self._bytes += size
            else:
                for piece in _cut(data):
                    self._room_for(len(piece))
                    length = pieces.RESPONSE_CHUNK_BYTES + len(piece)
                    before = pieces.response_chunk(length, self.exchange, self._sequence, now)
                    self._add(before, piece)
        if self._received == self._expected:
            self._end(ExchangeOutcome.COMPLETE, now)
        else:
            self._write()

    def _room_for(self, size: int) -> None:
        """Write what waits where a frame could not hold so much more."""
        if self._bytes + size > _PIECE:
            self._write()

    def _add(self, before: bytes, piece: bytes) -> None:
        self._parts += (before, piece)
        self._sequence += 1
        self._bytes += len(piece)

    def _sheds(self) -> bool:
        """Leave bodies out from now on, where the spool has no room for what may be lost."""
        if not self._mandatory:
            self._level, self._note = Level.METADATA, "spool-full"
            self._recorder.counters.uncaptured["spool-full"] += 1
        return not self._mandatory

    def _write(self) -> None:
        """Write what waits."""
        if not self._parts:
            return
        record = b"".join(self._parts)
        self._parts.clear()
        self._bytes = 0
        recorder, begun = self._recorder, self.begun
        if not begun:
            recorder.asking.discard(self)
        if self._batch:
            taken = recorder.write_later(_PART, record, None)
        else:
            taken = recorder.write(_PART, record)
        if taken:
            self.begun = True
        elif not begun:
            self.ended = True

    def lose_patience(self) -> None:
        """Write a request that has waited long enough: the second time that this is called."""
        if self._impatient:
            self._recorder.asking.discard(self)
            self._write()
        self._impatient = True

    def settle(self) -> None:
        """Make sure that the spool knows of this exchange."""
        if not self.begun and not self.ended:
            self._write()

    def end(self, outcome: ExchangeOutcome) -> None:
        """Record the end; further calls do nothing."""
        if not self.ended:
            self._end(outcome, time.time())

    def _end(self, outcome: ExchangeOutcome, now: float) -> None:
        self.ended = True
        note, parts = self._note.encode(), self._parts
        length, number = pieces.END_BYTES + len(note), pieces.OUTCOMES[outcome]
        parts += (pieces.end(length, self.exchange, self._sequence, now, number), note)
        record = b"".join(parts)
        parts.clear()
        recorder = self._recorder
        if self._batch:
            end = self._last(outcome, now, self._note)
            taken = recorder.write_later(_LAST_PART, record, end)
        else:
            taken = recorder.write(_LAST_PART, record)
        if self.begun:
            if not taken:
                recorder.owe(self._last(outcome, now, self._note))
        else:
            recorder.asking.discard(self)

    def _last(self, outcome: ExchangeOutcome, now: float, note: str) -> bytes:
        return records.end(self.exchange, self._sequence, at=now, outcome=outcome, note=note)

    def abandon(self, error: Exception) -> None:
        """Stop recording after a fault of our own; what was recorded is marked as cut off."""
        self._recorder.fault(error)
        self._recorder.asking.discard(self)
        if not self.ended and self.begun:
            self._sequence += 1
            self._recorder.owe(self._last(ExchangeOutcome.LOST_END, time.time(), "capture-fault"))
        self.ended = True

    def again(self) -> "Capture":
        """Return a capture that begins now under the same heads: a connection's next turn."""
        exchange = new_exchange_id()
        following = Capture(
            self._recorder,
            exchange,
            records.renewed_head(self.head, exchange, time.time()),
            self._level,
            self._note,
            mandatory=self._mandatory,
            batch=self._batch,
        )
        if self._switch is not None:
            following.response_head(_SWITCHING, self._switch, length=-1)
        return following


def _cut(data: bytes) -> Iterable[bytes]:
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
