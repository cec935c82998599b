"""One exchange in flight: its request on the way out, its response on the way in, and its end.

Nothing here knows who speaks HTTP. A listener reads a request, hands it in, and does what
:class:`InFlight` then says; so what changes requests and responses
is written once for all listeners.
"""

import logging
import time
from collections.abc import Callable, Sequence

from proxy.admission import AdmissionControl, AdmittedRequest, RequestRefusal
from proxy.artifacts.bodies import ModelBody
from proxy.clients.credentials import RawFields
from proxy.clients.limits import Budgets, session_of
from proxy.clients.usage import UsageMeter, costs, is_estimable
from proxy.guard.answer_judge import AnswerJudge
from proxy.guard.answers import StreamedAnswer, comment, denial, progress, takes_events
from proxy.guard.calls import ReadRequest, UnreadableCallError
from proxy.guard.route import CallDecision, CallGuard, Waiting
from proxy.guard.rules import Ruling
from proxy.heads import content_length, value_of, with_header
from proxy.inline.answers import CallSurrogates
from proxy.inline.bodies import BodyRestorer, is_encoded, restored_stream, restorer_of
from proxy.inline.heads import HeadTexts, head_texts
from proxy.inline.requests import WireRequest
from proxy.inline.route import PseudonymisedCall, RouteInline, UnpseudonymisedError
from proxy.recording.capture import Capture, write_signals
from proxy.recording.capture_factory import CaptureFactory
from proxy.recording.tokens import (
    AddedFields,
    StreamStripper,
    TokenCheck,
    ask,
    strip_json,
    stripping_stream,
    token_dialect,
)
from proxy.recording.websocket import WebSocketCapture
from proxy.responses import LocalReply, Reason, answer
from proxy.routes.model_versions import with_model
from proxy.routes.route import Level
from proxy.routes.shadow import ShadowedCall, Shadows
from proxy.routes.upstream_request import END_USER, RewrittenHeaders, rewrite_trailers
from proxy.spool import SpoolUnavailableError
from proxy.telemetry.counters import Counters
from proxy.telemetry.spans import SpanExporter
from trajectory.exchange import ExchangeOutcome

_log = logging.getLogger(__name__)
_HELD_BYTES = 1024 * 1024
"""Responses of durable routes up to this length are held back whole until they are on the disk."""
_ANSWERS = frozenset({101, *range(200, 300)})
"""Statuses of answers, the beginning of a WebSocket conversation among them."""

type Tee = Callable[[bytes], bytes | list[bytes]]
"""Takes a piece of a body, empty at its end, and returns what is passed on of it."""


class Services:
    """State that all exchanges of one worker share."""

    def __init__(
        self,
        admission: AdmissionControl,
        *,
        budgets: Budgets,
        counters: Counters,
        recording: CaptureFactory | None,
        tracing: SpanExporter | None = None,
        shadows: Shadows | None = None,
        calls: int = 4096,
        calls_per_key: int = 1024,
        body_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self.admission = admission
        self.calls: dict[str, int] = {}
        """Calls in flight by client key."""
        self._most = calls
        self._most_per_key = calls_per_key
        self.body_bytes = body_bytes
        """Bytes that the body of a request may have."""
        self._all = 0
        self.budgets = budgets
        self.counters = counters
        self.recording = recording
        self.tracing = tracing
        self.shadows = shadows

    def enter(self, admitted: AdmittedRequest) -> None:
        """Count a call in.

        Raises:
            RequestRefusal: as many are in flight as may be.
        """
        key_id, reason = admitted.client.key_id, None
        calls = self.calls.get(key_id, 0)
        if self._all >= self._most:
            reason = Reason.CALLS
        elif calls >= self._most_per_key:
            reason = Reason.CALLS_OF_KEY
        if reason is not None:
            raise RequestRefusal(
                reason, client=admitted.client, plan=admitted.plan, shape=admitted.shape
            )
        self._all += 1
        self.calls[key_id] = calls + 1

    def leave(self, admitted: AdmittedRequest) -> None:
        """Count a call out."""
        key_id = admitted.client.key_id
        self._all -= 1
        left = self.calls[key_id] - 1
        if left:
            self.calls[key_id] = left
        else:
            del self.calls[key_id]

    def fault(self, where: str, error: Exception) -> None:
        """Count an error of our own; its text may hold content, so only its type is logged."""
        self.counters.faults += 1
        _log.error("%s fault: %s", where, type(error).__name__)


class InFlight:
    """One exchange; slots, because there is one for each.

    Its request goes to the upstream with :attr:`fields` and :attr:`path`. Until its upstream is
    connected nothing of it has been sent.
    """

    __slots__ = (
        "_artifacts",
        "_call",
        "_connected",
        "_dialect",
        "_guard",
        "_is_joined",
        "_judge_of_answer",
        "_kept",
        "_level",
        "_listener",
        "_read",
        "_restoring",
        "_services",
        "_set",
        "_subjects",
        "_waited",
        "_wire",
        "added",
        "admitted",
        "answered_at",
        "capture",
        "check",
        "conversation",
        "fields",
        "holds",
        "meter",
        "method",
        "path",
        "plan",
        "reads_whole",
        "sent_bytes",
        "started",
        "status",
        "tee",
    )

    def __init__(
        self, services: Services, admitted: AdmittedRequest, method: bytes, *, listener: str
    ) -> None:
        self._services = services
        self._listener = listener
        services.counters.listeners[listener] += 1
        self.admitted = admitted
        self.plan = admitted.plan
        self.method = method
        self.started = time.monotonic()
        self.fields = admitted.rewritten.sent
        """The request's headers as they go upstream."""
        self.path = admitted.path
        """Its target there."""
        self.reads_whole = False
        """Its body is read whole, and changed, before anything of it is sent."""
        self.capture: Capture | None = None
        """What records it; None where nothing is kept."""
        self.conversation: WebSocketCapture | None = None
        """Its WebSocket messages, once there are any."""
        self.added: AddedFields | None = None
        """What was asked of the upstream that the client did not ask for."""
        self.check: TokenCheck | None = None
        self.meter: UsageMeter | None = None
        """Counts tokens, for keys that have a budget of them."""
        self.sent_bytes = 0
        """Length of the request's body, where its head says it and it is text."""
        self.status = 0
        self.answered_at = 0.0
        self.tee: Tee | None = None
        """Through which the response's body passes."""
        self.holds = False
        """The response is held back until it is whole; then :meth:`response_whole` changes it."""
        self._kept: bytes | None = None
        self._level: tuple[Level, str] | None = None
        self._set: dict[bytes, bytes | None] = {}
        self._dialect: type[ModelBody] | None = None
        """How its body is written, where artefacts may be added."""
        self._artifacts: tuple[str, ...] = ()
        """What was added to it."""
        self._wire: type[WireRequest] | None = None
        """How its body is written, where surrogates are put into it."""
        self._call: PseudonymisedCall | None = None
        """It has surrogates."""
        self._subjects: tuple[str, ...] | None = None
        """Whom they name."""
        self._guard: CallGuard | None = None
        """Judges its tool calls, which nothing has looked at so far."""
        self._judge_of_answer: AnswerJudge | None = None
        """Judges the tool calls in its answer."""
        self._is_joined = False
        """It is a stream that is held back: what changes its pieces changes all of them at once."""
        self._waited: ReadRequest | None = None
        """Its answer has begun as a stream of events, because it waits for a person."""
        self._restoring: BodyRestorer | None = None
        """Restores an answer that is held back."""
        self._connected = False
        self._read = False

    # The request.

    def begin(self, level: Level | None, note: str, length: int) -> None:
        """Decide what is done with the request; where it must be recorded, a fault is raised.

        Args:
            level: how much of it is recorded.
            note: why that is not everything.
            length: of its body, where its head says it.

        Raises:
            RequestRefusal: its body is too long, or as many calls are in flight as may be.
        """
        if length > self._services.body_bytes:
            raise self.too_long()
        self._services.enter(self.admitted)
        try:
            self._begin(level, note)
        except Exception:
            self._services.leave(self.admitted)
            raise

    def too_long(self) -> RequestRefusal:
        """Return the refusal of a request whose body is longer than it may be."""
        admitted = self.admitted
        return RequestRefusal(
            Reason.BODY_TOO_LARGE,
            client=admitted.client,
            plan=admitted.plan,
            shape=admitted.shape,
        )

    def _begin(self, level: Level | None, note: str) -> None:
        services, plan = self._services, self.plan
        if plan.inline is not None:
            self._begin_inline(plan.inline)
        if plan.guard is not None:
            self._begin_guard(plan.guard)
        if plan.answers is not None:
            self._begin_answers(plan.answers)
        limits = services.admission.limits_of(self.admitted.client)
        if limits is not None and limits.counts_usage and plan.kind == "model":
            upgrade = (value_of(self.fields, b"upgrade") or b"").lower() == b"websocket"
            if upgrade or costs(self.method, self.path):
                self._meter()
        if level is not None and services.recording is not None:
            self._record(services.recording, level, note)
            if plan.tokens and level and self.capture is not None:
                self._prepare_to_ask()
        if plan.artifacts is not None:
            self._dialect = plan.artifacts.takes(
                self.method, self.path, self.fields, services.counters
            )
            self.reads_whole = self.reads_whole or self._dialect is not None
        if self.admitted.served is not None:
            self.reads_whole = True
            services.counters.served[plan.name, self.admitted.served.label] += 1

    def _meter(self) -> None:
        """Count the tokens of the answer; only what is not compressed can be read as it passes."""
        self.meter = UsageMeter()
        length = value_of(self.fields, b"content-length") or b""
        if length.isdigit() and is_estimable(value_of(self.fields, b"content-type") or b""):
            self.sent_bytes = int(length)
        self._header(b"accept-encoding", b"identity")

    def _begin_inline(self, inline: RouteInline) -> None:
        """Have the body read whole where surrogates are put into it.

        Raises:
            RequestRefusal: it cannot be read, and must not go on.
        """
        try:
            self._wire = inline.takes(
                self.plan.name, self.method, self.path, self.fields, self.admitted.asked
            )
        except UnpseudonymisedError as error:
            admitted = self.admitted
            raise RequestRefusal(
                error.reason, client=admitted.client, plan=admitted.plan, shape=admitted.shape
            ) from None
        if self._wire is not None:
            self.reads_whole = True
            self._header(b"accept-encoding", b"identity")

    def _begin_guard(self, guard: CallGuard) -> None:
        """Have the body read whole and judged; what says nothing passes as it streams.

        Raises:
            RequestRefusal: it cannot be read, and must not go on.
        """
        admitted, fields = self.admitted, self.fields
        empty = (value_of(fields, b"content-length") or b"0").strip() == b"0"
        if empty and value_of(fields, b"transfer-encoding") is None:
            try:
                read = self._read_calls(guard, b"")
            except UnreadableCallError:
                raise RequestRefusal(
                    Reason.UNREADABLE_CALL,
                    client=admitted.client,
                    plan=admitted.plan,
                    shape=admitted.shape,
                ) from None
            if read is None or not read.calls:
                return
        self._guard = guard
        self.reads_whole = True

    def _begin_answers(self, guard: CallGuard) -> None:
        """Ask for an answer that can be read.

        Raises:
            RequestRefusal: it would come as messages of a WebSocket.
        """
        if value_of(self.fields, b"upgrade") is not None:
            guard.unreadable(self.plan.name)
            if not guard.passes_answers(self.plan.name):
                admitted = self.admitted
                raise RequestRefusal(
                    Reason.UNREADABLE_ANSWER,
                    client=admitted.client,
                    plan=admitted.plan,
                    shape=admitted.shape,
                )
        self._header(b"accept-encoding", b"identity")

    def _read_calls(self, guard: CallGuard, body: bytes) -> ReadRequest | None:
        client = self.admitted.client
        return guard.read(self.plan.name, self.method, self.path, self.fields, body, client)

    def _header(self, name: bytes, value: bytes | None) -> None:
        """Set a header, or take it off, wherever the request goes in the end."""
        self._set[name] = value
        if value is None:
            self.fields = tuple([each for each in self.fields if each[0].lower() != name])
        else:
            self.fields = with_header(self.fields, name, value)

    def _record(self, recording: CaptureFactory, level: Level, note: str) -> None:
        self.capture = None
        try:
            admitted = self._with_end_user(self.admitted)
            capture = recording.begin(
                admitted, self.method, level, note, self._artifacts, self._subjects
            )
        except Exception as error:
            recording.recorder.fault(error)
            if self.plan.mandatory:
                raise
            return
        self.capture = capture
        self._level = level, note

    def _with_end_user(self, admitted: AdmittedRequest) -> AdmittedRequest:
        """Name the end user to the record, and to nobody else, whom surrogates hide in the body."""
        user = None if self._call is None else self._call.end_user
        if user is None or value_of(admitted.asked, END_USER) is not None:
            return admitted
        sent, kept = admitted.rewritten
        named = RewrittenHeaders(sent, (*kept, (END_USER, user.encode("utf-8", "replace"))))
        return admitted._replace(rewritten=named)

    def _asks(self) -> str | None:
        """Return the dialect in whose body token ids are asked for now; told from the request's head."""
        lower = [(name.lower(), value) for name, value in self.fields]
        dialect = token_dialect(self.method, self.path, lower)
        return dialect if dialect is not None and self.plan.asks_tokens(dialect) else None

    def _prepare_to_ask(self) -> None:
        """Buffer a request to whose upstream token ids may be asked for."""
        if self._asks() is not None:
            self.reads_whole = True
            self._header(b"accept-encoding", b"identity")

    def trailers(self, fields: RawFields) -> RawFields:
        """Return the trailers of the request that go upstream."""
        return rewrite_trailers(fields, keyed=self.plan.keyed)

    def request_read(self) -> None:
        """Note that a request that is passed on as it comes has been read to its end."""
        self._read = True
        if self._connected and self.capture is not None:
            self.capture.request_done()

    @property
    def is_inline(self) -> bool:
        """Whether surrogates are put into the body before anything else is done to it."""
        return self._wire is not None

    async def pseudonymised(self, body: bytes) -> bytes | LocalReply:
        """Return the body with surrogates in it, or the refusal that its client hears."""
        inline, read, admitted = self.plan.inline, self._wire, self.admitted
        assert inline is not None  # noqa: S101 - for the type checker
        assert read is not None  # noqa: S101 - for the type checker
        reason = Reason.FAULT
        try:
            self._call = await inline.pseudonymise(
                self.plan.name,
                read,
                body,
                head=head_texts(self.path, self.fields, admitted.asked),
                tenant=admitted.client.tenant_id,
                session=session_of(admitted.asked, admitted.session),
            )
            if self._call is None:
                return body
            self._subjects = self._call.subjects
            self._put_head(self._call.head)
            if self._level is not None and self._services.recording is not None:
                self._record(self._services.recording, *self._level)  # nothing was written yet
            self._header(b"transfer-encoding", None)
            self._header(b"content-length", b"%d" % len(self._call.body))
        except UnpseudonymisedError as error:
            reason = error.reason
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must not pass
            self._services.fault("inline", error)
        else:
            return self._call.body
        self._services.counters.refusals[reason] += 1
        return answer(reason, admitted.shape)

    @property
    def is_guarded(self) -> bool:
        """Whether its tool calls are judged before anything of it is sent."""
        return self._guard is not None

    async def guarded(
        self, body: bytes, *, send: Callable[[bytes], None] | None, gone: Callable[[], bool]
    ) -> LocalReply | None:
        """Judge the tool calls of a request; return what its client hears instead of an answer.

        Args:
            body: all of it.
            send: sends events to a client that waits; its answer has begun then. None where none may.
            gone: tells whether the client has left.
        """
        guard = self._guard
        assert guard is not None  # noqa: S101 - for the type checker
        reason, shape = Reason.FAULT, self.admitted.shape
        try:
            read = self._read_calls(guard, body)
            return None if read is None else await self._judge(guard, read, body, send, gone)
        except UnreadableCallError:
            reason = Reason.UNREADABLE_CALL
        except Exception as error:  # noqa: BLE001 - whatever it is, the calls must not pass
            self._services.fault("guard", error)
        self._services.counters.refusals[reason] += 1
        return answer(reason, shape)

    async def _judge(
        self,
        guard: CallGuard,
        read: ReadRequest,
        body: bytes,
        send: Callable[[bytes], None] | None,
        gone: Callable[[], bool],
    ) -> LocalReply | None:
        admitted, route = self.admitted, self.plan.name
        key_id = admitted.client.key_id
        step_id = "" if self.capture is None else self.capture.exchange.hex()
        decisions = guard.judge(route, read, key_id)
        if any(one.ruling is Ruling.HOLD for one in decisions):

            def tell(count: int) -> None:
                if send is not None and read.is_rpc and takes_events(admitted.asked):
                    self._wait_in_stream(read, count, send)

            decisions = await guard.ask(
                route,
                read,
                decisions,
                key_id=key_id,
                step_id=step_id,
                waiting=Waiting(tell, gone),
            )
            if gone():
                return answer(Reason.FAULT, admitted.shape)  # nobody hears it
        self._tell(guard, decisions, step_id)
        texts = {one.number: one.text for one in decisions if not one.goes_on}
        if not texts:
            return None
        reply = denial(read, texts, admitted.shape)
        self._answered(body, reply)
        return reply

    def _wait_in_stream(self, read: ReadRequest, count: int, send: Callable[[bytes], None]) -> None:
        """Tell a client that its call waits, as often as it must be told."""
        if self._waited is None:
            self._waited = read
            self._header(b"accept-encoding", b"identity")
        said = "Headrace: this call waits for a person."
        tokens = {one.progress: None for one in read.calls if one.progress is not None}
        send(comment(said) + b"".join(progress(token, count, said) for token in tokens))

    def _tell(
        self, guard: CallGuard | None, decisions: Sequence[CallDecision], step_id: str
    ) -> None:
        """Have the lake hear of decisions, as it hears of feedback."""
        services = self._services
        assert guard is not None  # noqa: S101 - somebody made the decisions
        said = guard.signals(self.plan.name, decisions, step_id)
        if services.recording is None or self.capture is None:
            return
        try:
            spool = services.recording.recorder.spool
            write_signals(spool, self.admitted.client, said, step_id=step_id)
        except SpoolUnavailableError:
            services.counters.uncaptured["feedback"] += 1

    def _answered(self, body: bytes, reply: LocalReply) -> None:
        """Record a request that the gateway has answered, and its answer."""
        self._read = True
        self.status = reply.status
        self._services.counters.statuses[self.plan.name, reply.status // 100] += 1
        capture = self.capture
        if capture is None:
            return
        try:
            capture.on_request(body)
            capture.request_done()
            capture.response_head(reply.status, reply.headers, length=len(reply.body))
            capture.on_response(reply.body)
        except Exception as error:  # noqa: BLE001 - the client hears its answer whatever capture does
            capture.abandon(error)

    @property
    def has_begun_to_answer(self) -> bool:
        """Whether its client has the head of an answer, which is a stream of events."""
        return self._waited is not None

    def _put_head(self, head: HeadTexts | None) -> None:
        """Put surrogates into the query and the headers, those of the record too."""
        if head is None:
            return
        admitted = self.admitted
        sent, kept = admitted.rewritten
        for name, text in head.headers:
            raw, value = (
                name.encode("utf-8", "surrogateescape"),
                text.encode("utf-8", "surrogateescape"),
            )
            self._header(raw, value)
            sent, kept = with_header(sent, raw, value), with_header(kept, raw, value)
        self.path = head.path(admitted.path)
        self.admitted = admitted._replace(rewritten=RewrittenHeaders(sent, kept), path=self.path)

    def request_whole(self, body: bytes) -> bytes:
        """Return the body of a buffered request as it goes upstream."""
        self._read = True
        kept = body
        if self.capture is not None and self.plan.tokens and (dialect := self._asks()):
            self.added = ask(body, dialect)
            if self.added is not None:
                body = kept = self.added.body
        if self._dialect is not None:
            body = self._with_artifacts(self._dialect, body)
        if self.admitted.served is not None:
            body = with_model(body, self.admitted.served.label)
        # The plain listener writes the length itself.
        if (body is not kept or self.added is not None) and self._listener != "plain":
            self._header(b"content-length", b"%d" % len(body))
        self._kept = kept
        return body

    def _with_artifacts(self, dialect: type[ModelBody], body: bytes) -> bytes:
        """Return the body with what artefacts add; whatever fails, it goes on as it is."""
        admitted, services = self.admitted, self._services
        assert self.plan.artifacts is not None  # noqa: S101 - for the type checker
        agent = value_of(admitted.asked, b"x-headrace-agent")
        try:
            applied = self.plan.artifacts.apply(
                dialect,
                body,
                tenant=admitted.client.tenant_id,
                agent=None if agent is None else agent.decode("latin-1").strip(),
                session=session_of(admitted.asked, admitted.session),
                counters=services.counters,
            )
        except Exception as error:  # noqa: BLE001 - the call goes on whatever an artefact does
            services.fault("artefact", error)
            return body
        if applied is None:
            return body
        self._artifacts = applied.labels
        if self._level is not None and services.recording is not None:
            self._record(services.recording, *self._level)  # nothing of it was written yet
        return applied.body

    def connected(self, body: bytes = b"") -> None:
        """Record the request that is about to be sent; one that streams is recorded as it passes."""
        self._connected = True
        capture = self.capture
        if capture is None or not self._read:
            return
        kept = self._kept if self._kept is not None else body
        try:
            capture.on_request(kept)
            capture.request_done()
            self._copy(capture, kept)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)

    def _copy(self, capture: Capture, body: bytes) -> None:
        """Give another version a copy, where the route says so and the client did not opt out."""
        admitted, shadows = self.admitted, self._services.shadows
        serving, served = admitted.plan.serving, admitted.served
        if shadows is None or serving is None or served is None:
            return
        version = serving.copies_to(served) if capture.level == Level.FULL else None
        if version is None:
            return
        shadows.send(
            ShadowedCall(
                capture.exchange,
                admitted.client,
                admitted.plan.name,
                admitted.mode,
                admitted.path[len(served.target.base) :],
                admitted.rewritten.sent,
                admitted.rewritten.kept,
                body,
            ),
            version,
        )

    def another(self) -> bool:
        """Point the request at another upstream of its route; False where there is none."""
        services = self._services
        try:
            admitted = services.admission.elsewhere(self.admitted)
            if admitted is None:
                return False
            self.admitted = admitted
            self.fields, self.path = admitted.rewritten.sent, admitted.path
            self._put_head(None if self._call is None else self._call.head)
            for name, value in [*self._set.items()]:
                self._header(name, value)
            if self._level is not None and services.recording is not None:
                self._record(services.recording, *self._level)
        except Exception as error:  # noqa: BLE001 - the call is answered as one that failed
            services.counters.faults += 1
            _log.error("fault in finding another upstream: %s", type(error).__name__)
            return False
        services.counters.elsewhere += 1
        return True

    # The response.

    def response_head(self, status: int, fields: RawFields) -> RawFields:
        """Record and meter the response as it passes; return its headers as the client gets them."""
        services = self._services
        services.counters.statuses[self.plan.name, status // 100] += 1
        self.status, self.answered_at = status, time.monotonic()
        if status not in _ANSWERS:
            self.meter = None  # an upstream that fails or refuses has spent nothing
        if self.capture is not None and services.recording is not None:
            fields = self._tee(status, fields, self.capture, services.recording)
        if self.meter is not None and not self.holds:
            self.tee = self.meter.tee(self.tee or True)
        if self._call is not None:
            fields = self._restore(fields, self._call.surrogates)
        if self.plan.answers is not None and status in _ANSWERS and status != 101:
            self._judge_answer(self.plan.answers, fields)
        if self._waited is not None:
            self.holds = False
            self.tee = _as_stream(self.tee, StreamedAnswer(self._waited, status, fields))
        if self.admitted.debug:
            return with_header(fields, b"x-headrace-listener", self._listener.encode())
        return fields

    def _tee(
        self, status: int, fields: RawFields, capture: Capture, recording: CaptureFactory
    ) -> RawFields:
        """Record the response as it passes; durable ones of known length are held back whole."""
        durable, length = self.plan.durability == "durable", -1
        try:
            if durable or not recording.recorder.patient:
                length = content_length(fields)
            capture.response_head(status, fields, length=length)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)
            length = -1
        self.tee = capture.on_response
        if self.added is not None:
            self._strip_tokens(status, fields, capture, self.added)
        if durable and 0 < length <= _HELD_BYTES:
            self.holds = True
        if self.plan.step_header:
            # Once: feedback goes where it points, and the upstream may have sent one of its own.
            return with_header(fields, b"x-headrace-step", capture.exchange.hex().encode())
        return fields

    def _strip_tokens(
        self, status: int, fields: RawFields, capture: Capture, added: AddedFields
    ) -> None:
        """Give the client what it asked for; what is encoded or of another type passes whole."""
        if status == 200 and added.token_ids:
            self.check = TokenCheck()
        if (value_of(fields, b"content-encoding") or b"identity") != b"identity":
            return
        kind = value_of(fields, b"content-type") or b""
        if kind.startswith(b"text/event-stream") and value_of(fields, b"content-length") is None:
            self.tee = stripping_stream(capture.on_response, StreamStripper(added, self.check))
        elif kind.startswith(b"application/json"):
            self.holds = True

    def _restore(self, fields: RawFields, surrogates: CallSurrogates) -> RawFields:
        """Bring values back in the place of their surrogates: in a stream as it passes, else at once."""
        kind = (value_of(fields, b"content-type") or b"").partition(b";")[0].strip().lower()
        encoding = value_of(fields, b"content-encoding")
        restorer = restorer_of(kind, self.path, surrogates, encoding)
        if restorer is None:
            return fields
        if not is_encoded(encoding) and not self.holds and content_length(fields) < 0:
            self.tee = restored_stream(self.tee, restorer, self._services.fault)
            return fields
        self.holds = True
        self._restoring = restorer
        return tuple([each for each in fields if each[0].lower() != b"content-encoding"])

    def _judge_answer(self, guard: CallGuard, fields: RawFields) -> None:
        """Hold back what of the answer may not pass before its tool calls are judged."""
        judge = AnswerJudge(
            guard,
            self.plan.name,
            self.admitted.client,
            shape=self.admitted.shape,
            fields=fields,
        )
        if not judge.holds and not judge.streams:
            return
        self._judge_of_answer = judge
        if judge.holds or self.holds:
            self.holds = True
        elif self._listener == "plain" and content_length(fields) < 0:
            self.tee = _judged(self.tee, judge)
        else:  # mitmproxy cannot wait behind the last piece of a stream
            self.holds = self._is_joined = True

    @property
    def is_judged(self) -> bool:
        """Whether the end of the response waits until the tool calls in it are judged."""
        return self._judge_of_answer is not None

    async def judged(
        self, body: bytes | None, *, send: Callable[[bytes], None] | None, gone: Callable[[], bool]
    ) -> bytes | LocalReply:
        """Return the body, or what is left of it, as its client may see it; or the answer instead.

        Args:
            body: all of it, as :meth:`response_whole` gave it; None where it has streamed.
            send: sends to a client that waits.
            gone: tells whether the client has left.
        """
        judge, step_id = self._judge_of_answer, ""
        assert judge is not None  # noqa: S101 - for the type checker
        if self.capture is not None:
            step_id = self.capture.exchange.hex()
        try:
            if body is not None and not judge.streams:
                told = await judge.whole(body, step_id=step_id, gone=gone)
            else:
                first = judge.feed(body) if body else b""
                told = await judge.rest(step_id=step_id, send=send, gone=gone)
                told = told._replace(body=first + told.body)
            if told.decisions and not gone():
                self._tell(self.plan.answers, told.decisions, step_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the calls must not pass
            self._services.fault("guard", error)
            return answer(Reason.FAULT, self.admitted.shape)
        if told.refusal is not None:
            self._services.counters.refusals[Reason.UNREADABLE_ANSWER] += 1
            return told.refusal
        return told.body

    def response_whole(self, body: bytes) -> bytes:
        """Record a response that was held back; return it as its client gets it."""
        if self._is_joined and self.tee is not None:
            return _joined(self.tee(body)) + _joined(self.tee(b""))
        if self.meter is not None:
            self.meter.feed(body)
        if self.capture is not None:
            self.capture.on_response(body)
            if self.added is not None:
                body = strip_json(body, self.added, self.check)
        if self._restoring is None:
            return body
        try:
            return self._restoring.feed(body) + self._restoring.close()
        except Exception as error:  # noqa: BLE001 - the answer goes on as its provider wrote it
            self._services.fault("inline", error)
            return body

    def told(self) -> RawFields:
        """Return headers, or trailers, that are known once the response has passed."""
        return () if self._call is None else self._call.surrogates.fields()

    @property
    def waits_for_disk(self) -> bool:
        """Whether the end of the response waits until its record is on the disk."""
        return self.plan.durability == "durable" and self.capture is not None

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
            if self.plan.mandatory and self.holds:
                self._services.counters.refusals[Reason.SPOOL_FULL] += 1
                return answer(Reason.SPOOL_FULL, self.admitted.shape)
        return None

    # The end.

    def end(self, outcome: ExchangeOutcome) -> None:
        """End the exchange, once; whatever fails here, the call itself is over."""
        services, capture = self._services, self.capture
        services.leave(self.admitted)
        if self._call is not None and self.plan.inline is not None:
            self.plan.inline.returned(self.plan.name, self._call.surrogates)
        services.counters.exchanges[self.plan.name, self.admitted.mode, outcome.value] += 1
        services.counters.observe(time.monotonic() - self.started)
        if self.meter is not None:
            self._spend(self.meter)
        if (
            self.check is not None
            and outcome is ExchangeOutcome.COMPLETE
            and self.added is not None
        ):
            self.plan.note_tokens(self.added.dialect, sound=self.check.sound)
        if services.tracing is not None:
            self._trace(services.tracing, outcome)
        if capture is not None and outcome is ExchangeOutcome.COMPLETE and not self._read:
            capture.request_cut()
        if capture is not None and not capture.ended:
            try:
                capture.end(outcome)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                capture.abandon(error)

    def _trace(self, tracing: SpanExporter, outcome: ExchangeOutcome) -> None:
        level = "none" if self.capture is None else self.capture.level.name.lower()
        try:
            tracing.exchange(
                self.method.decode("latin-1"),
                (value_of(self.fields, b"traceparent") or b"").decode("latin-1"),
                route=self.plan.name,
                mode=self.admitted.mode,
                outcome=outcome.value,
                level=level,
                status=self.status,
                head_seconds=self.answered_at - self.started,
                seconds=time.monotonic() - self.started,
            )
        except Exception as error:  # noqa: BLE001 - the call goes on whatever tracing does
            self._services.counters.faults += 1
            _log.error("tracing fault: %s", type(error).__name__)

    def _spend(self, meter: UsageMeter) -> None:
        """Take an answer off the key's budgets."""
        if not meter.answered:
            return
        services, client = self._services, self.admitted.client
        if not meter.reported:
            services.counters.unlimited["estimated"] += 1
        services.budgets.spend(client.key_id, meter.tokens(self.sent_bytes))
        limits = services.admission.limits_of(client)
        if limits is None or limits.money_per_day is None:
            return
        if not services.budgets.charge(client.key_id, meter.model, meter.usage(self.sent_bytes)):
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
