"""The response of an exchange: recorded, metered, changed and judged on its way to the client."""

import time
from collections.abc import Callable

from proxy.admission import AdmittedRequest
from proxy.clients.credentials import RawFields
from proxy.clients.usage import UsageMeter
from proxy.guard.answer_judge import AnswerJudge
from proxy.guard.answers import StreamedAnswer
from proxy.guard.calls import ReadRequest
from proxy.guard.route import CallGuard
from proxy.heads import content_length, value_of, with_header
from proxy.inline.answers import CallSurrogates
from proxy.inline.bodies import is_content, is_encoded, restored_stream, restorer_of
from proxy.inline.contents import BodyRestorer, restored_disposition
from proxy.recording.capture import Capture
from proxy.recording.capture_factory import CaptureFactory
from proxy.recording.tokens import (
    AddedFields,
    StreamStripper,
    TokenCheck,
    strip_json,
    stripping_stream,
)
from proxy.recording.websocket import tells_a_turn
from proxy.responses import LocalReply, Reason, answer
from proxy.services import Services
from proxy.spool import SpoolUnavailableError
from trajectory.exchange import ExchangeOutcome

_HELD_BYTES = 1024 * 1024
"""Responses of durable routes up to this length are held back whole until they are on the disk, and so
are files that are restored."""
_EVENTS = frozenset(
    {b"text/event-stream", b"application/x-ndjson", b"application/vnd.amazon.eventstream"}
)
"""Types of streams."""
_LOOK_SECONDS = 0.5
"""How often it is looked whether the client of a stream may go on."""
_ANSWERS = frozenset({101, *range(200, 300)})
"""Statuses of answers, the beginning of a WebSocket conversation among them."""

type Tee = Callable[[bytes], bytes | list[bytes]]
"""Takes a piece of a body, empty at its end, and returns what is passed on of it."""


class ResponseInFlight:
    """One response; slots, because there is one for each exchange."""

    __slots__ = (
        "_added",
        "_admitted",
        "_capture",
        "_check",
        "_encoding",
        "_is_joined",
        "_judge",
        "_listener",
        "_looked",
        "_plan",
        "_restoring",
        "_services",
        "_streams",
        "_surrogates",
        "_waited",
        "changes_length",
        "fields",
        "holds",
        "meter",
        "tee",
        "turns",
    )

    def __init__(
        self,
        services: Services,
        admitted: AdmittedRequest,
        *,
        listener: str,
        capture: Capture | None,
        meter: UsageMeter | None,
        added: AddedFields | None,
        surrogates: CallSurrogates | None,
        waited: ReadRequest | None,
    ) -> None:
        """Begin with what its request left.

        Args:
            services: of the worker.
            admitted: the request as it was sent.
            listener: that it came through.
            capture: what records the exchange; None where nothing is kept.
            meter: counts tokens; None for keys that have no budget of them.
            added: what was asked of the upstream that the client did not ask for.
            surrogates: what stands in the request in place of values.
            waited: the request, where its answer has begun as a stream of events.
        """
        self._services = services
        self._admitted = admitted
        self._plan = admitted.plan
        self._listener = listener
        self._capture = capture
        self.meter = meter
        self._added = added
        self._check: TokenCheck | None = None
        self._surrogates = surrogates
        self._waited = waited
        self.fields: RawFields = ()
        """The headers as the client gets them."""
        self.tee: Tee | None = None
        """Through which the body passes."""
        self.holds = False
        """It is held back until it is whole; then :meth:`whole` changes it."""
        self.changes_length = False
        """It becomes longer or shorter as it passes."""
        self._judge: AnswerJudge | None = None
        """Judges the tool calls in it."""
        self._is_joined = False
        """It is a stream that is held back: what changes its pieces changes all of them at once."""
        self._restoring: BodyRestorer | None = None
        """Restores it where it is held back."""
        self._encoding: bytes | None = None
        """Its content encoding, where its head leaves it out since what is restored has none."""
        self._streams = False
        """It is a stream of events, which may last."""
        self._looked = 0.0
        self.turns = 0
        """Of the model, over a WebSocket."""

    def begin(self, status: int, fields: RawFields) -> None:
        """Take its head, and decide how its body passes."""
        services = self._services
        services.counters.statuses[self._plan.name, status // 100] += 1
        kind = value_of(fields, b"content-type") or b""
        self._streams = kind.partition(b";")[0].strip().lower() in _EVENTS
        self._looked = time.monotonic()
        if status not in _ANSWERS:
            self.meter = None  # an upstream that fails or refuses has spent nothing
        if self.meter is not None:
            self.meter.head(fields)
        if self._capture is not None and services.recording is not None:
            fields = self._record(status, fields, self._capture, services.recording)
        if self.meter is not None and not self.holds:
            self.tee = self.meter.tee(self.tee or True)
        if self._surrogates is not None:
            fields = self._restore(fields, self._surrogates)
        if self._plan.answers is not None and status in _ANSWERS and status != 101:
            self._begin_to_judge(self._plan.answers, fields)
        if self._waited is not None:
            self.holds = False
            self.tee = _as_stream(self.tee, StreamedAnswer(self._waited, status, fields))
        if self._admitted.debug:
            fields = with_header(fields, b"x-headrace-listener", self._listener.encode())
        self.fields = fields

    def _record(
        self, status: int, fields: RawFields, capture: Capture, recording: CaptureFactory
    ) -> RawFields:
        """Record the response as it passes; durable ones of known length are held back whole."""
        durable, length = self._plan.durability == "durable", -1
        try:
            if durable or not recording.recorder.patient:
                length = content_length(fields)
            capture.response_head(status, fields, length=length)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)
            length = -1
        self.tee = capture.on_response
        if self._added is not None:
            self._strip_tokens(status, fields, capture, self._added)
        if durable and 0 < length <= _HELD_BYTES:
            self.holds = True
        if self._plan.step_header:
            # Once: feedback goes where it points, and the upstream may have sent one of its own.
            return with_header(fields, b"x-headrace-step", capture.exchange.hex().encode())
        return fields

    def _strip_tokens(
        self, status: int, fields: RawFields, capture: Capture, added: AddedFields
    ) -> None:
        """Give the client what it asked for; what is encoded or of another type passes whole."""
        if status == 200 and added.token_ids:
            self._check = TokenCheck()
        if (value_of(fields, b"content-encoding") or b"identity") != b"identity":
            return
        kind = value_of(fields, b"content-type") or b""
        if kind.startswith(b"text/event-stream") and value_of(fields, b"content-length") is None:
            self.tee = stripping_stream(capture.on_response, StreamStripper(added, self._check))
        elif kind.startswith(b"application/json"):
            self.holds = True

    def _restore(self, fields: RawFields, surrogates: CallSurrogates) -> RawFields:
        """Bring values back in the place of their surrogates: in a stream as it passes, else at once."""
        kind = (value_of(fields, b"content-type") or b"").partition(b";")[0].strip().lower()
        encoding = value_of(fields, b"content-encoding")
        restorer = restorer_of(kind, self._admitted.path, surrogates, encoding)
        if restorer is None:
            return fields
        length, is_file = content_length(fields), is_content(self._admitted.path)
        named = value_of(fields, b"content-disposition")
        if is_file and named is not None:
            told = restored_disposition(named, surrogates)
            fields = with_header(fields, b"content-disposition", told)
        streams = length < 0 or (length > _HELD_BYTES and is_file)
        if not is_encoded(encoding) and not self.holds and streams:
            self.changes_length = length >= 0
            self._is_joined = True  # where a judge holds it back after all
            self.tee = restored_stream(self.tee, restorer, self._services.fault)
            return tuple([each for each in fields if each[0].lower() != b"content-length"])
        self.holds = True
        self._restoring, self._encoding = restorer, encoding
        return tuple([each for each in fields if each[0].lower() != b"content-encoding"])

    def _begin_to_judge(self, guard: CallGuard, fields: RawFields) -> None:
        """Hold back what of the answer may not pass before its tool calls are judged."""
        judge = AnswerJudge(
            guard,
            self._plan.name,
            self._admitted.client,
            shape=self._admitted.shape,
            fields=fields,
        )
        if not judge.holds and not judge.streams:
            return
        self._judge = judge
        if judge.holds or self.holds:
            self.holds = True
        elif self._listener == "plain" and content_length(fields) < 0:
            self.tee = _judged(self.tee, judge)
        else:  # mitmproxy cannot wait behind the last piece of a stream
            self.holds = self._is_joined = True

    @property
    def is_judged(self) -> bool:
        """Whether the end of the response waits until the tool calls in it are judged."""
        return self._judge is not None

    async def judged(
        self, body: bytes | None, *, send: Callable[[bytes], None] | None, gone: Callable[[], bool]
    ) -> bytes | LocalReply:
        """Return the body, or what is left of it, as its client may see it; or the reply instead.

        Args:
            body: all of it, as :meth:`whole` gave it; None where it has streamed.
            send: sends to a client that waits.
            gone: tells whether the client has left.
        """
        guard, judge, step_id = self._plan.answers, self._judge, ""
        admission, admitted = self._services.admission, self._admitted
        assert guard is not None  # noqa: S101 - for the type checker
        assert judge is not None  # noqa: S101 - for the type checker
        if self._capture is not None:
            step_id = self._capture.exchange.hex()

        def is_over() -> bool:
            return gone() or not admission.is_known(admitted)

        try:
            if body is not None and not judge.streams:
                told = await judge.whole(body, step_id=step_id, gone=is_over)
            else:
                first = judge.feed(body) if body else b""
                told = await judge.rest(step_id=step_id, send=send, gone=is_over)
                told = told._replace(body=first + told.body)
            waited = any(one.approval is not None for one in told.decisions)
            if waited and not gone() and is_over():  # the key ended meanwhile
                self._services.counters.refusals[Reason.NO_KEY] += 1
                return answer(Reason.NO_KEY, admitted.shape)
            if told.decisions and not gone():
                self._services.tell(guard, admitted, told.decisions, self._capture)
        except Exception as error:  # noqa: BLE001 - whatever it is, the calls must not pass
            self._services.fault("guard", error)
            return answer(Reason.FAULT, admitted.shape)
        if told.refusal is not None:
            self._services.counters.refusals[Reason.UNREADABLE_ANSWER] += 1
            return told.refusal
        return told.body

    def whole(self, body: bytes) -> bytes:
        """Record a body that was held back; return it as its client gets it."""
        if self._is_joined and self.tee is not None:
            return _joined(self.tee(body)) + _joined(self.tee(b""))
        if self.meter is not None:
            self.meter.feed(body)
        if self._capture is not None:
            self._capture.on_response(body)
            if self._added is not None:
                body = strip_json(body, self._added, self._check)
        if self._restoring is None:
            return body
        try:
            body = self._restoring.feed(body) + self._restoring.close()
            self._encoding = None
        except Exception as error:  # noqa: BLE001 - the answer goes on as its provider wrote it
            self._services.fault("inline", error)
        return body

    def told(self) -> RawFields:
        """Return headers, or trailers, that are known once the response has passed."""
        said = () if self._surrogates is None else self._surrogates.fields()
        return said if self._encoding is None else ((b"content-encoding", self._encoding), *said)

    @property
    def waits_for_disk(self) -> bool:
        """Whether the end of the response waits until its record is on the disk."""
        return self._plan.durability == "durable" and self._capture is not None

    async def durable(self) -> LocalReply | None:
        """Wait until the record is on the disk; return what the client hears instead of the response.

        Where that fails and capture is mandatory, a response that was held back whole is not
        given; of a streamed one the client has all but the end.
        """
        recording = self._services.recording
        if recording is None:
            return None
        try:
            await recording.recorder.synced()
        except Exception as error:  # noqa: BLE001 - counted; the client has waited long enough
            if not isinstance(error, SpoolUnavailableError):
                recording.recorder.fault(error)
            self._services.counters.uncaptured["not-durable"] += 1
            if self._plan.mandatory and self.holds:
                self._services.counters.refusals[Reason.SPOOL_FULL] += 1
                return answer(Reason.SPOOL_FULL, self._admitted.shape)
        return None

    def message(self, content: bytes) -> None:
        """Meter a message of a WebSocket connection; what it reports is spent at once, for such connections last.

        The first turn goes with the request that opened the connection; each other one counts as a request.
        """
        if tells_a_turn(content):
            if self.turns:
                self._services.admission.turn(self._admitted.client)
            self.turns += 1
        meter = self.meter
        if meter is not None:
            meter.feed(content)
            if meter.reported:
                self._spend(meter, 0)
            meter.next_message()

    def ended(self) -> bool:
        """Tell whether no more of a stream of events may pass: its client's key ended.

        What an answer costs is owed once it began. So a budget that other calls use up cuts none.
        """
        now = time.monotonic()
        if not self._streams or self.holds or now < self._looked + _LOOK_SECONDS:
            return False
        self._looked = now
        known = self._services.admission.is_known(self._admitted)
        if not known:
            self._services.counters.refusals[Reason.NO_KEY] += 1
        return not known

    def account(self, outcome: ExchangeOutcome, sent_bytes: int) -> None:
        """Take the answer off the key's budgets, and note whether token ids came as asked.

        Args:
            outcome: of the exchange.
            sent_bytes: length of the request's body, where that is known and it is text.
        """
        if self.meter is not None and self._is_due(self.meter):
            self._spend(self.meter, sent_bytes)
        added = self._added
        if self._check is not None and added is not None and outcome is ExchangeOutcome.COMPLETE:
            self._plan.note_tokens(added.dialect, sound=self._check.sound)

    def _is_due(self, meter: UsageMeter) -> bool:
        """Tell whether usage is spent now: of what look-ups tell again once, whoever hears of it first."""
        if not meter.due:
            return False
        if meter.told_again is None or not meter.reported:
            return True
        scope = f"{self._admitted.client.tenant_id}:{self._plan.name}"
        first = self._services.budgets.once(scope, meter.told_again)
        return first or not meter.call.looks_up

    def _spend(self, meter: UsageMeter, sent_bytes: int) -> None:
        services, client = self._services, self._admitted.client
        if not meter.reported:
            services.counters.unlimited["estimated"] += 1
        services.budgets.spend(client.key_id, meter.tokens(sent_bytes))
        limits = services.admission.limits_of(client)
        if limits is None or limits.money_per_day is None:
            return
        if not services.budgets.charge(client.key_id, meter.model, meter.usage(sent_bytes)):
            services.counters.unlimited["unpriced"] += 1


def _as_stream(tee: Tee | None, answer_: StreamedAnswer) -> Tee:
    """Return a tee that gives what another one gives as events."""

    def stream(data: bytes) -> list[bytes]:
        told = data if tee is None else tee(data)
        pieces = told if isinstance(told, list) else [told]
        out = [answer_.feed(piece) for piece in pieces if piece]
        if not data:
            out.append(answer_.feed(b""))
        return [piece for piece in out if piece]

    return stream


def _joined(told: bytes | list[bytes]) -> bytes:
    return told if isinstance(told, bytes) else b"".join(told)


def _judged(tee: Tee | None, judge: AnswerJudge) -> Tee:
    """Return a tee that gives of what another one gives what may pass now."""

    def stream(data: bytes) -> list[bytes]:
        told = data if tee is None else tee(data)
        pieces = told if isinstance(told, list) else [told]
        out = [judge.feed(piece) for piece in pieces if piece]
        return [piece for piece in out if piece]

    return stream
