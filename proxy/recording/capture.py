"""Capture: the bytes of each exchange go into the spool as they pass, and nothing else happens.

A fault here never changes a byte of the call. Every failure to record is counted, the exchange is marked as not
whole, and the data goes on. What passes is only noted. Records are made of it when the recorder takes them, for
all exchanges of one turn of the event loop together. Code that runs for many in a row costs a third of the same
code run now and then.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from time import time
from typing import Any

from proxy.recording.recorder import Record, Recorder
from proxy.routes.route import Level, Terms
from proxy.spool import RecordKind, SpoolWriter, pieces, records
from proxy.spool.frames import MAX_RECORD_BYTES
from trajectory.canonical import JsonObject
from trajectory.exchange import ClientIdentity, ExchangeOutcome

_random = random.SystemRandom()
_generator = random.Random(_random.getrandbits(256))  # noqa: S311 - names, not secrets
_PIECE = MAX_RECORD_BYTES // 2
_SWITCHING = 101
# Plain numbers: looking up an enum's member costs more than noting it.
_REQUEST_CHUNK = int(RecordKind.REQUEST_CHUNK)
_RESPONSE_HEAD = int(RecordKind.RESPONSE_HEAD)
_RESPONSE_CHUNK = int(RecordKind.RESPONSE_CHUNK)
_END = int(RecordKind.END)
_PART = int(RecordKind.PART)
_LAST_PART = int(RecordKind.LAST_PART)
_COMPLETE = pieces.OUTCOMES[ExchangeOutcome.COMPLETE]
_LOST = pieces.OUTCOMES[ExchangeOutcome.LOST_END]

type Head = Callable[[bytes, float], bytes]
"""Makes the record of a request's head, for an exchange id and the time when it began."""
type Passed = tuple[int, float, Any, int]
"""What has passed: its kind, when, its content, a status or the number of an outcome."""


_NEVER: Passed = (_END, 0.0, b"", _LOST)


def new_exchange_id(now: float | None = None) -> bytes:
    """Return sixteen bytes: six of milliseconds since 1970, ten random ones."""
    stamp = int((time() if now is None else now) * 1000) & 0xFFFFFFFFFFFF
    return (stamp << 80 | _generator.getrandbits(80)).to_bytes(16, "big")


class Capture:
    """Records one exchange."""

    __slots__ = (
        "_asked",
        "_closed",
        "_ending",
        "_exchange",
        "_expected",
        "_head",
        "_note",
        "_passed",
        "_recorder",
        "_sequence",
        "_started",
        "_switch",
        "_waits",
        "begun",
        "ended",
        "level",
        "terms",
    )

    def __init__(
        self, recorder: Recorder, head: Head, level: Level, note: str, terms: Terms
    ) -> None:
        """Begin; nothing is written before something passes.

        Args:
            recorder: takes what is recorded.
            head: makes the record of the request's head.
            level: how much is recorded.
            note: why that is not everything.
            terms: of the route.
        """
        self._recorder = recorder
        self._head: Head | bytes = head
        self.level = level
        """How much is recorded; it sinks when the spool runs out of room."""
        self._note = note
        self.terms = terms
        self._exchange = b""
        self._started = time()
        self._passed: list[Passed] = []
        """What has passed since records were last made."""
        self._sequence = 0
        self._expected = -1
        """How much of the response is yet to come, where the exchange ends with it."""
        self._ending = _NEVER
        self._switch: records.HeaderBlock | None = None
        """Headers of the answer that made this a WebSocket connection."""
        self._asked = False
        """The request waits for its answer, or has."""
        self._waits = False
        """The recorder will take what has passed."""
        self._closed = False
        """Nothing more is recorded."""
        self.begun = False
        """The spool knows of it."""
        self.ended = False

    @property
    def exchange(self) -> bytes:
        """The exchange's id."""
        if not self._exchange:
            self._exchange = new_exchange_id(self._started)
        return self._exchange

    @property
    def head(self) -> bytes:
        """The request's head as recorded."""
        if not isinstance(self._head, bytes):
            self._head = self._head(self.exchange, self._started)
        return self._head

    def begin_with(self, head: Head) -> None:
        """Take another head, before anything has passed."""
        self._head = head

    def prepare(self) -> None:
        """Make the head's record at once: where a call must be recorded, a fault must show now."""
        _ = self.head

    # What passes is noted.

    def on_request(self, data: bytes) -> bytes:
        """Tee of the request's body: note, and give back what came."""
        if data:
            try:
                if len(data) <= _PIECE:
                    self._passed.append((_REQUEST_CHUNK, 0.0, data, 0))
                else:
                    self._passed += [(_REQUEST_CHUNK, 0.0, each, 0) for each in _cut(data)]
                if not self._asked:
                    self._ask()
                elif not self._waits:
                    self._waits = True
                    self._recorder.wait(self)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                self.abandon(error)
        return data

    def request_done(self) -> None:
        """The request has been read whole: it waits for its answer, or is written."""
        if not (self._asked or self.begun or self.ended):
            self._ask()

    def _ask(self) -> None:
        """Let the request wait for its answer, where anything waits."""
        self._asked = True
        if self._recorder.patient:
            self._recorder.ask(self)
        else:
            self._waits = True
            self._recorder.wait(self)

    def response_head(
        self, status: int, headers: records.RawHeaders | records.HeaderBlock, length: int = -1
    ) -> None:
        """Note the response's head.

        Args:
            status: its status.
            headers: as they came, or packed.
            length: of the body, where the exchange ends with it; -1 where :meth:`on_response` is
                told of the end before anything of it goes to the client.
        """
        if self.ended:
            return
        self._expected = length
        self._passed.append((_RESPONSE_HEAD, time(), headers, status))
        if status == _SWITCHING:
            self._switch = self._block(headers)
        if not self._waits and self._recorder.patient:
            self._waits = True
            self._recorder.wait(self)

    def on_response(self, data: bytes) -> bytes:
        """Tee of the response's body: note, and give back what came; empty data is the end."""
        try:
            if data:
                if len(data) <= _PIECE:
                    self._passed.append((_RESPONSE_CHUNK, time(), data, 0))
                else:
                    now = time()
                    self._passed += [(_RESPONSE_CHUNK, now, each, 0) for each in _cut(data)]
                if self._expected > 0:
                    self._expected -= len(data)
                    if self._expected == 0:
                        self._end(_COMPLETE)
                if not self._waits:
                    self._waits = True
                    self._recorder.wait(self)
            elif not self.ended:
                self._end(_COMPLETE)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.abandon(error)
        return data

    def request_cut(self) -> None:
        """Note that the answer came, whole, before the request had been read to its end."""
        self._note = self._note or "answered-early"

    def end(self, outcome: ExchangeOutcome) -> None:
        """Note the end; further calls do nothing."""
        if not self.ended:
            self._end(pieces.OUTCOMES[outcome])

    def _end(self, number: int) -> None:
        self.ended = True
        self._ending = ending = (_END, time(), b"", number)
        self._passed.append(ending)
        if not self._waits:
            self._waits = True
            self._recorder.wait(self)

    # Records are made of it.

    def take(self) -> list[Record]:
        """Return what has passed as records: mostly one, none where nothing is to be recorded."""
        self._waits = False
        passed, self._passed = self._passed, []
        shedding = self._recorder.spool.shedding and not self.terms.mandatory
        if self._closed or shedding or not self.level:
            passed = self._sift(passed)
        taken: list[Record] = []
        parts: list[bytes] = []
        add, size, closing = parts.append, 0, False
        sequence, counters = self._sequence, self._recorder.counters
        if not sequence and not self._closed:
            head = self.head
            add(pieces.request_head(len(head)))
            add(head)
            sequence = 1
        exchange = self._exchange
        for kind, at, content, number in passed:
            length = len(content)
            size += length
            if size > _PIECE and parts:
                taken.append((_PART, b"".join(parts)))
                parts.clear()
                size = length
            if kind == _RESPONSE_CHUNK:
                counters.response_bytes += length
                length += pieces.RESPONSE_CHUNK_BYTES
                add(pieces.response_chunk(length, exchange, sequence, at))
                add(content)
            elif kind == _REQUEST_CHUNK:
                counters.request_bytes += length
                length += pieces.REQUEST_CHUNK_BYTES
                add(pieces.request_chunk(length, exchange, sequence))
                add(content)
            elif kind == _END:
                note = self._note.encode()
                length = pieces.END_BYTES + len(note)
                add(pieces.end(length, exchange, sequence, at, number))
                add(note)
                closing = True
                break  # nothing follows it, and its number stays: it may have to be made once more
            else:
                block = self._block(content)
                length = pieces.RESPONSE_HEAD_BYTES + len(block)
                add(pieces.response_head(length, exchange, sequence, at, number))
                add(block)
            sequence += 1
        self._sequence = sequence
        if parts:
            taken.append((_LAST_PART if closing else _PART, b"".join(parts)))
        self._closed = self._closed or closing
        return taken

    def _sift(self, passed: list[Passed]) -> list[Passed]:
        """Count the bodies that are not to be recorded, and leave them out; after the end, all."""
        counters = self._recorder.counters
        kept = [each for each in passed if each[0] in (_RESPONSE_HEAD, _END)]
        if len(kept) < len(passed) and self.level and not self._closed:
            # The spool has no room for what may be lost.
            self.level, self._note = Level.METADATA, "spool-full"
            counters.uncaptured["spool-full"] += 1
        counters.request_bytes += sum(len(each[2]) for each in passed if each[0] == _REQUEST_CHUNK)
        counters.response_bytes += sum(
            len(each[2]) for each in passed if each[0] == _RESPONSE_CHUNK
        )
        return [] if self._closed else kept

    def _block(self, headers: records.RawHeaders | records.HeaderBlock) -> records.HeaderBlock:
        return headers if isinstance(headers, bytes) else self._recorder.block(headers)

    def written(self, *, taken: bool) -> None:
        """Learn whether the spool took the records."""
        if taken:
            self.begun = True
        elif self._closed:
            if self.begun:
                self._recorder.owe(self.last())
        elif not self.begun:
            self.ended = self._closed = True

    def last(self) -> bytes:
        """Return the END record once more."""
        _, at, _, number = self._ending
        outcome = records.OUTCOMES[number]
        return records.end(self.exchange, self._sequence, at=at, outcome=outcome, note=self._note)

    def abandon(self, error: Exception) -> None:
        """Stop recording after a fault of our own; what was recorded is marked as cut off."""
        self._recorder.fault(error)
        self._passed.clear()
        if self.begun and not self._closed:
            self._sequence += 1
            self._note, self._ending = "capture-fault", (_END, time(), b"", _LOST)
            self._recorder.owe(self.last())
        self.ended = self._closed = True

    def again(self, origin: bytes | None = None) -> "Capture":
        """Return a capture that begins now under the same heads: a connection's next turn.

        Args:
            origin: where the turn comes from; None for where this one does.
        """
        head = self.head
        if origin is not None:
            begin, rest = head[: records.BEGIN_BYTES], head[records.BEGIN_BYTES :]
            head = begin + records.with_origin(rest, origin)
        renewed = partial(records.renewed_head, head)
        following = Capture(self._recorder, renewed, self.level, self._note, self.terms)
        if self._switch is not None:
            following.response_head(_SWITCHING, self._switch)
        return following


def _cut(data: bytes) -> list[bytes]:
    """Cut a piece of a body that no frame could hold."""
    return [data[begin : begin + _PIECE] for begin in range(0, len(data), _PIECE)]


def write_signals(
    spool: SpoolWriter,
    client: ClientIdentity,
    signals: Sequence[tuple[str, JsonObject]],
    *,
    step_id: str,
) -> None:
    """Write signals about a step into the spool, so that the lake hears of them as of feedback.

    Raises:
        SpoolUnavailableError: the spool takes nothing now.
    """
    for name, body in signals:
        record = records.feedback(
            new_exchange_id(),
            client,
            received_at=time(),
            feedback_id=name,
            target_kind="step",
            target_id=step_id,
            body=body,
        )
        spool.append(RecordKind.FEEDBACK, record)
