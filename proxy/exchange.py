"""One exchange in flight: its request on the way out, and its end; its response is an object of its own.

Nothing here knows who speaks HTTP. A listener reads a request, hands it in, and does what
:class:`InFlight` then says. So what changes requests and responses is written once for all
listeners.
"""

import logging
import time
from collections.abc import Callable

from proxy.admission import AdmittedRequest, RequestRefusal
from proxy.artifacts.bodies import ModelBody
from proxy.clients.credentials import RawFields
from proxy.clients.limits import session_of
from proxy.clients.paid_calls import paid_call
from proxy.clients.usage import UsageMeter, is_estimable
from proxy.exchange_response import ResponseInFlight
from proxy.guard.request import GuardedRequest
from proxy.guard.route import CallGuard
from proxy.heads import value_of, with_header
from proxy.inline.heads import HeadTexts, head_texts, headers_of_people
from proxy.inline.kept_histories import HistoryOwner
from proxy.inline.kept_objects import from_the_start, kept_object
from proxy.inline.openai import ResponsesRequest
from proxy.inline.route import (
    PseudonymisedCall,
    Reads,
    RouteInline,
    UnpseudonymisedError,
    is_for_responses,
)
from proxy.inline.socket import ResponsesSocket, ToldMessage
from proxy.recording.capture import Capture
from proxy.recording.capture_factory import CaptureFactory
from proxy.recording.tokens import AddedFields, ask, token_dialect
from proxy.recording.websocket import WebSocketCapture
from proxy.responses import LocalReply, Reason, answer
from proxy.routes.model_versions import with_model
from proxy.routes.route import Level
from proxy.routes.shadow import ShadowedCall
from proxy.routes.upstream_request import END_USER, RewrittenHeaders, rewrite_trailers
from proxy.services import Services
from proxy.telemetry.spans import SpanExporter
from trajectory.exchange import ExchangeOutcome

_log = logging.getLogger(__name__)


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
        "_guarded",
        "_kept",
        "_level",
        "_listener",
        "_read",
        "_sent_bytes",
        "_services",
        "_set",
        "_subjects",
        "_wire",
        "added",
        "admitted",
        "answered_at",
        "capture",
        "conversation",
        "fields",
        "meter",
        "method",
        "path",
        "plan",
        "reads_whole",
        "response",
        "socket",
        "started",
        "status",
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
        self.meter: UsageMeter | None = None
        """Counts tokens, for keys that have a budget of them."""
        self._sent_bytes = 0
        """Length of the request's body, where its head says it and it is text or speech."""
        self.status = 0
        self.answered_at = 0.0
        self.response: ResponseInFlight | None = None
        """Its response, once that has begun."""
        self._kept: bytes | None = None
        self._level: tuple[Level, str] | None = None
        self._set: dict[bytes, bytes | None] = {}
        self._dialect: type[ModelBody] | None = None
        """How its body is written, where artefacts may be added."""
        self._artifacts: tuple[str, ...] = ()
        """What was added to it."""
        self._wire: Reads | None = None
        """How its body is written, where surrogates are put into it."""
        self._call: PseudonymisedCall | None = None
        """It has surrogates."""
        self._subjects: tuple[str, ...] | None = None
        """Whom they name."""
        self.socket: ResponsesSocket | None = None
        """Puts surrogates into the messages of the connection that it becomes."""
        self._guarded: GuardedRequest | None = None
        """Its tool calls, where they are judged before it is sent."""
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
        return self.admitted.refusal(Reason.BODY_TOO_LARGE)

    def _begin(self, level: Level | None, note: str) -> None:
        services, plan = self._services, self.plan
        if plan.inline is not None:
            self._begin_inline(plan.inline)
        if plan.guard is not None:
            guarded = GuardedRequest(services, plan.guard, self.admitted, self.method)
            if not guarded.says_nothing(self.fields):  # else it passes as it streams
                self._guarded, self.reads_whole = guarded, True
        if plan.answers is not None:
            self._begin_answers(plan.answers)
        limits = services.admission.limits_of(self.admitted.client)
        if limits is not None and limits.counts_usage and plan.kind == "model":
            upgrade = (value_of(self.fields, b"upgrade") or b"").lower() == b"websocket"
            call = paid_call(self.method, self.path)
            if upgrade or call is not None:
                self._meter(UsageMeter(call))
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

    def _meter(self, meter: UsageMeter) -> None:
        """Count the tokens of the answer; only what is not compressed can be read as it passes."""
        self.meter = meter
        length = value_of(self.fields, b"content-length") or b""
        kind = value_of(self.fields, b"content-type") or b""
        if length.isdigit() and (meter.call.hears or is_estimable(kind)):
            self._sent_bytes = int(length)
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
            raise self.admitted.refusal(error.reason) from None
        if self._wire is not None:
            self.reads_whole = True
            self._header(b"accept-encoding", b"identity")
        if is_for_responses(self.path, value_of(self.fields, b"upgrade") or b""):
            session = session_of(self.admitted.asked, self.admitted.session)
            headers = headers_of_people(self.admitted.asked)
            fault = self._services.fault
            self.socket = ResponsesSocket(inline, self._owner, session, headers, fault)

    def _begin_answers(self, guard: CallGuard) -> None:
        """Ask for an answer that can be read.

        Raises:
            RequestRefusal: it would come as messages of a WebSocket.
        """
        if value_of(self.fields, b"upgrade") is not None:
            guard.unreadable(self.plan.name)
            if not guard.passes_answers(self.plan.name):
                raise self.admitted.refusal(Reason.UNREADABLE_ANSWER)
        self._header(b"accept-encoding", b"identity")
        if self._goes_on_from_response:
            self.reads_whole = True

    @property
    def _goes_on_from_response(self) -> bool:
        """Whether it may go on from a response that its provider keeps."""
        bare = self.path.partition(b"?")[0]
        return self.method == b"POST" and bare.endswith(ResponsesRequest.ends)

    def _header(self, name: bytes, value: bytes | None) -> None:
        """Set a header, or take it off, wherever the request goes in the end."""
        self._set[name] = value
        if value is None:
            self.fields = tuple([each for each in self.fields if each[0].lower() != name])
        else:
            self.fields = with_header(self.fields, name, value)

    def _record(self, recording: CaptureFactory, level: Level, note: str) -> None:
        capture, self.capture = self.capture, None
        try:
            admitted = self._with_end_user(self.admitted)
            said = admitted, self.method, self._artifacts, self._subjects
            if capture is None:
                capture = recording.begin(*said, level, note)
            else:
                recording.tell(capture, *said)
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
        dialect = token_dialect(self.method, self.path, self.fields)
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
    def _owner(self) -> HistoryOwner:
        client = self.admitted.client
        return HistoryOwner(client.tenant_id, client.key_id, self.plan.name)

    def begin_turn(self, told: ToldMessage) -> None:
        """End the record of what was said so far, so that the next names whom its surrogates name."""
        capture, recording = self.capture, self._services.recording
        before, of_head = self._subjects, None if self._call is None else self._call.subjects
        self._subjects = told.subjects
        if of_head is not None:
            self._subjects = (*of_head, *(told.subjects or ()))
        if self._subjects == before or capture is None or recording is None:
            return
        try:
            following = recording.again(capture, self.admitted, self._artifacts, self._subjects)
            capture.end(ExchangeOutcome.COMPLETE)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)
            return
        self.capture, self.conversation = following, None

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
                read,
                body,
                head=head_texts(self.path, self.fields, admitted.asked),
                owner=self._owner,
                session=session_of(admitted.asked, admitted.session),
                about=kept_object(self.method, self.path),
                headers=headers_of_people(admitted.asked),
            )
            if self._call is None:
                return body
            self._subjects = self._call.subjects
            self._put_head(self._call.head)
            self._ask_from_the_start()
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
        return self._guarded is not None

    async def guarded(
        self, body: bytes, *, send: Callable[[bytes], None] | None, gone: Callable[[], bool]
    ) -> LocalReply | None:
        """Judge the tool calls of a request; return what its client hears instead of an answer.

        Args:
            body: all of it.
            send: sends events to a client that waits; its answer has begun then. None where none may.
            gone: tells whether the client has left.
        """
        guarded = self._guarded
        assert guarded is not None  # noqa: S101 - for the type checker
        told = await guarded.judged(body, self.fields, self.capture, send=send, gone=gone)
        if guarded.waited is not None:
            self._header(
                b"accept-encoding", b"identity"
            )  # what comes goes on in the client's stream
        if told is None:
            return None
        if told.is_answer:
            self._answered(body, told.reply)
        return told.reply

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
        return self._guarded is not None and self._guarded.waited is not None

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

    def _ask_from_the_start(self) -> None:
        """Ask for all of a stream that is restored: no surrogate of it is cut."""
        if self._call is not None and self._call.surrogates.after is not None:
            self.path = from_the_start(self.path)
            self.admitted = self.admitted._replace(path=self.path)

    def request_whole(self, body: bytes) -> bytes:
        """Return the body of a buffered request as it goes upstream."""
        self._read = True
        came = body
        if self.plan.answers is not None and self._goes_on_from_response:
            body = self._with_results(self.plan.answers, body)
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
        if (body is not came or self.added is not None) and self._listener != "plain":
            self._header(b"content-length", b"%d" % len(body))
        self._kept = kept
        return body

    def _with_results(self, guard: CallGuard, body: bytes) -> bytes:
        """Return the body with results of denied calls; without them its provider refuses it."""
        try:
            return guard.completed(self.admitted.client, body)
        except Exception as error:  # noqa: BLE001 - the call goes on, and the provider says why not
            self._services.fault("guard", error)
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
            self._ask_from_the_start()
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

    def begin_response(self, status: int, fields: RawFields) -> ResponseInFlight:
        """Take the head of the response; what is returned says how it passes."""
        self.status, self.answered_at = status, time.monotonic()
        if self._guarded is not None:
            self._guarded.answered(status, fields)
        self.response = ResponseInFlight(
            self._services,
            self.admitted,
            listener=self._listener,
            capture=self.capture,
            meter=self.meter,
            added=self.added,
            surrogates=None if self._call is None else self._call.surrogates,
            waited=None if self._guarded is None else self._guarded.waited,
        )
        self.response.begin(status, fields)
        return self.response

    # The end.

    def end(self, outcome: ExchangeOutcome) -> None:
        """End the exchange, once; whatever fails here, the call itself is over."""
        services, capture = self._services, self.capture
        services.leave(self.admitted)
        if self._call is not None and self.plan.inline is not None:
            self.plan.inline.returned(self.plan.name, self._call.surrogates)
        services.counters.exchanges[self.plan.name, self.admitted.mode, outcome.value] += 1
        services.counters.observe(time.monotonic() - self.started)
        if self.response is not None:
            self.response.account(outcome, self._sent_bytes)
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
