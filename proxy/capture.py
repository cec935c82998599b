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
from proxy.spool import RecordKind, SpoolUnavailableError, SpoolWriter, records
from proxy.spool.frames import MAX_RECORD_BYTES
from trajectory.exchange import ExchangeOutcome

_log = logging.getLogger(__name__)
_random = random.SystemRandom()
_generator = random.Random(_random.getrandbits(256))  # noqa: S311 - names, not secrets
_PIECE = MAX_RECORD_BYTES // 2
_BATCH_SECONDS = 0.05
_SWITCHING = 101


class Level(IntEnum):
    """How much of an exchange is recorded."""

    METADATA = 0
    """Heads and end only."""
    FULL = 1


def new_exchange_id() -> bytes:
    """Return sixteen bytes: six of milliseconds since 1970, ten random ones."""
    stamp = int(time.time() * 1000) & 0xFFFFFFFFFFFF
    return stamp.to_bytes(6, "big") + _generator.getrandbits(80).to_bytes(10, "big")


class Recorder:
    """Writes captures into the spool of this process."""

    def __init__(self, spool: SpoolWriter, counters: Counters) -> None:
        self.spool = spool
        self.counters = counters
        self._owed: deque[bytes] = deque()
        """Ends of exchanges that the spool could not take: without them their segments stay."""
        self._waiting: list[bytes] = []
        """Ends of exchanges that wait in memory with the rest of their batch."""
        self._flush_due = False
        self._lost_batches = 0

    def write(self, pieces: list[tuple[int, bytes]], *, batch: bool = False) -> bool:
        """Append records; tell whether the spool took them."""
        try:
            while self._owed:
                self.spool.append(RecordKind.END, self._owed[0])
                self._owed.popleft()
            kind, record = records.bundle(pieces)
            if batch:
                self._batch(kind, record, pieces[-1])
            else:
                self.spool.append(kind, record)
        except SpoolUnavailableError:
            self.counters.uncaptured["spool-unavailable"] += 1
            self._look_for_losses()
            return False
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.fault(error)
            return False
        return True

    def _batch(self, kind: int, record: bytes, last: tuple[int, bytes]) -> None:
        """Let a record wait in memory for those that come soon."""
        if last[0] == RecordKind.END:
            self._waiting.append(last[1])
        self.spool.append(kind, record, batch=True)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_later(_BATCH_SECONDS, self.flush)

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

    def takes_bodies(self) -> bool:
        """Tell whether pieces of bodies may still go into the spool."""
        return not self.spool.shedding

    def owe(self, end: bytes) -> None:
        """Remember an end record for when the spool takes records again."""
        self._owed.append(end)

    def fault(self, error: Exception) -> None:
        """Count an error of our own; its text may hold content, so only its type is logged."""
        self.counters.faults += 1
        if self.counters.faults <= 100:
            _log.error("capture fault: %s", type(error).__name__)


class Capture:
    """Records one exchange. Records that must not precede others wait for the next piece."""

    __slots__ = (
        "_batch",
        "_begun",
        "_expected",
        "_level",
        "_mandatory",
        "_note",
        "_pending",
        "_received",
        "_recorder",
        "_sequence",
        "_switch",
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
        self._switch: list[tuple[bytes, bytes]] | None = None
        """Headers of the answer that made this a WebSocket connection."""
        self._pending: list[tuple[int, bytes]] = [(RecordKind.REQUEST_HEAD, head)]
        self._sequence = 1
        self._level = level
        self._note = note
        self._begun = False
        self._expected = -1
        self._received = 0
        self.ended = False

    @property
    def level(self) -> Level:
        """How much is recorded; it sinks when the spool runs out of room."""
        return self._level

    def _flush(self) -> None:
        if self._pending:
            pieces, self._pending = self._pending, []
            if self._recorder.write(pieces, batch=self._batch):
                self._begun = True
            elif not self._begun:
                self.ended = True

    def request_data(self, data: bytes) -> None:
        """Record a piece of the request's body."""
        self._recorder.counters.request_bytes += len(data)
        if self._takes_body() and not self.ended:
            for piece in _pieces(data):
                record = records.request_chunk(self.exchange, self._sequence, piece)
                self._add(RecordKind.REQUEST_CHUNK, record)
                self._flush()

    def request_done(self) -> None:
        """Record what waits; the request has been read whole."""
        if not self.ended:
            self._flush()

    def response_head(
        self, status: int, headers: Iterable[tuple[bytes, bytes]], *, length: int
    ) -> None:
        """Record the response's head; ``length`` is its Content-Length, -1 without one."""
        if self.ended:
            return
        self._expected = length
        if status == _SWITCHING:
            headers = self._switch = list(headers)
        record = records.response_head(
            self.exchange, self._sequence, at=time.time(), status=status, headers=headers
        )
        self._add(RecordKind.RESPONSE_HEAD, record)

    def response_data(self, data: bytes) -> None:
        """Record a piece of the response's body, before the client gets it."""
        self._recorder.counters.response_bytes += len(data)
        self._received += len(data)
        if self.ended:
            return
        if self._takes_body():
            now = time.time()
            for piece in _pieces(data):
                if len(self._pending) > 1:
                    self._flush()
                record = records.response_chunk(self.exchange, self._sequence, at=now, data=piece)
                self._add(RecordKind.RESPONSE_CHUNK, record)
        if self._received == self._expected:
            self.end(ExchangeOutcome.COMPLETE)
        else:
            self._flush()

    def on_request(self, data: bytes) -> bytes:
        """Tee of the request's body: record, and give back what came."""
        if data:
            try:
                self.request_data(data)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                self.abandon(error)
        return data

    def on_response(self, data: bytes) -> bytes:
        """Tee of the response's body: record, and give back what came; empty data is the end."""
        try:
            if data:
                self.response_data(data)
            else:
                self.end(ExchangeOutcome.COMPLETE)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.abandon(error)
        return data

    def abandon(self, error: Exception) -> None:
        """Stop recording after a fault of our own; what was recorded is marked as cut off."""
        self._recorder.fault(error)
        if not self.ended and self._begun:
            last = records.end(
                self.exchange,
                self._sequence + 1,
                at=time.time(),
                outcome=ExchangeOutcome.LOST_END,
                note="capture-fault",
            )
            self._recorder.owe(last)
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

    def _takes_body(self) -> bool:
        if self._level == Level.FULL and not self._mandatory and not self._recorder.takes_bodies():
            self._level, self._note = Level.METADATA, "spool-full"
            self._recorder.counters.uncaptured["spool-full"] += 1
        return self._level == Level.FULL

    def _add(self, kind: int, record: bytes) -> None:
        self._pending.append((kind, record))
        self._sequence += 1

    def end(self, outcome: ExchangeOutcome) -> None:
        """Record the end; further calls do nothing."""
        if self.ended:
            return
        self.ended = True
        last = records.end(
            self.exchange, self._sequence, at=time.time(), outcome=outcome, note=self._note
        )
        pieces, self._pending = [*self._pending, (int(RecordKind.END), last)], []
        if not self._recorder.write(pieces, batch=self._batch) and self._begun:
            self._recorder.owe(last)


def _pieces(data: bytes) -> Iterable[bytes]:
    if len(data) <= _PIECE:
        return (data,)
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
