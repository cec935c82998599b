"""The gate: the addon through which every request and response passes.

Every hook of mitmproxy fails open: an exception in it lets the request go on as it came. So the
refusal is what remains when anything here goes wrong, and admission is the last thing done.
"""

import logging
import time
from collections.abc import Awaitable

from mitmproxy import connection, http, tcp, websocket

from proxy.admission import Admission, Admitted, Mode, Refused, mode_of, named_host
from proxy.answers import Reason, Shape, answer
from proxy.capture import Capture, Level, Recorder, new_exchange_id
from proxy.conversation import Conversation
from proxy.counters import Counters
from proxy.credentials import Fingerprints
from proxy.endpoints import Endpoints, is_endpoint
from proxy.heads import content_length, may_be_huge
from proxy.identity import UNKNOWN_CLIENT, KeyRegistry
from proxy.limits import Budgets
from proxy.replies import proxy_refusal, response_of
from proxy.routing import Plan, Rewritten, Router, take_session
from proxy.serving import with_model
from proxy.shadowing import Copied, Shadows
from proxy.spool import SpoolUnavailableError, records
from proxy.tokens import (
    Asked,
    StreamStripper,
    TokenCheck,
    applies,
    ask,
    strip_json,
    stripping_stream,
)
from proxy.tracing import Tracing
from proxy.usage import UsageMeter
from trajectory.exchange import ExchangeOutcome

_log = logging.getLogger(__name__)
_REFUSALS_KEPT_PER_SECOND = 50
_KEPT_REFUSALS = frozenset(
    {
        Reason.NO_KEY,
        Reason.NO_MODEL,
        Reason.SPOOL_FULL,
        Reason.RATE,
        Reason.TOKENS,
        Reason.SESSION_STEPS,
    }
)
_NO_WORD = 1006
"""Close code of a WebSocket connection that broke off."""
_HELD_BYTES = 1024 * 1024
"""Responses of durable routes up to this length are held back whole until they are on the disk."""


class Live:
    """An exchange in flight."""

    __slots__ = (
        "admitted",
        "asked",
        "capture",
        "check",
        "conversation",
        "key_id",
        "meter",
        "mode",
        "plan",
        "sent_bytes",
        "started",
    )

    def __init__(self, plan: Plan, mode: Mode) -> None:
        self.capture: Capture | None = None
        self.conversation: Conversation | None = None
        """Its WebSocket messages, once there are any."""
        self.plan = plan
        self.mode = mode
        self.started = time.monotonic()
        self.admitted: Admitted | None = None
        """How it was admitted, where a registered version answers."""
        self.asked: Asked | None = None
        self.check: TokenCheck | None = None
        self.meter: UsageMeter | None = None
        """Counts tokens, for keys that have a budget of them."""
        self.key_id = ""
        self.sent_bytes = 0


class Gate:
    """Admits requests, captures what passes, lets everything through as it comes."""

    name = "headrace"

    def __init__(
        self,
        admission: Admission,
        *,
        router: Router,
        endpoints: Endpoints,
        registry: KeyRegistry,
        budgets: Budgets,
        recorder: Recorder | None,
        counters: Counters,
        fingerprints: Fingerprints,
        tracing: Tracing | None = None,
        shadows: Shadows | None = None,
    ) -> None:
        self._admission = admission
        self._shadows = shadows
        self._tracing = tracing
        self._router = router
        self._endpoints = endpoints
        self._registry = registry
        self._budgets = budgets
        self._recorder = recorder
        self._counters = counters
        self._fingerprints = fingerprints
        self.live: dict[str, Live] = {}
        """Exchanges in flight, by flow id."""
        self._refusals_kept = (0, 0)

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Let a CONNECT pass only with a client key."""
        if not self._admission.connects(flow):
            flow.response = proxy_refusal()
            self._counters.refusals[Reason.NO_KEY] += 1

    def client_disconnected(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._admission.disconnects(client)

    # Requests.

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Admit a request or refuse it; nothing is sent before this returns."""
        if flow.error is not None:
            return
        try:
            self._admit(flow)
        except Refused as refusal:
            self._refuse(flow, refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must not pass
            self._counters.faults += 1
            _log.error("admission fault: %s", type(error).__name__)
            self._refuse(flow, Refused(Reason.FAULT))

    def _admit(self, flow: http.HTTPFlow) -> None:
        request = flow.request
        if is_endpoint(request.data.path) and mode_of(flow.client_conn) == "base_url":
            if may_be_huge(request.headers.fields):
                flow.kill()  # type: ignore[no-untyped-call]
            flow.metadata["headrace_endpoint"] = True
            return
        admitted = self._admission.admit(flow)
        plan = admitted.plan
        level, note = self._admission.level(flow, admitted)
        request.headers.fields = admitted.rewritten.sent
        request.data.path = admitted.path
        live = Live(plan, admitted.mode)
        self.live[flow.id] = live
        request.stream = True
        limits = self._registry.limits.get(admitted.client.key_id)
        if limits is not None and limits.tokens_per_day is not None and plan.kind == "model":
            self._meter(flow, live, admitted)
        if level is not None and self._recorder is not None:
            try:
                live.capture = self._begin(flow, admitted, level, note)
            except Exception as error:
                self._recorder.fault(error)
                if plan.mandatory:
                    raise
            else:
                request.stream = live.capture.on_request
                if level == Level.FULL and plan.asks_tokens:
                    self._prepare_to_ask(request)
        if admitted.served is not None:
            live.admitted = admitted
            request.stream = False
            self._counters.served[plan.name, admitted.served.label] += 1

    @staticmethod
    def _meter(flow: http.HTTPFlow, live: Live, admitted: Admitted) -> None:
        """Count the tokens of the answer; only what is not compressed can be read as it passes."""
        live.meter = UsageMeter()
        live.key_id = admitted.client.key_id
        length = flow.request.headers.get("content-length", "")
        live.sent_bytes = int(length) if length.isdigit() else 0
        flow.request.headers["accept-encoding"] = "identity"

    @staticmethod
    def _prepare_to_ask(request: http.Request) -> None:
        if _asks(request):
            request.stream = False
            request.headers["accept-encoding"] = "identity"

    def _begin(self, flow: http.HTTPFlow, admitted: Admitted, level: Level, note: str) -> Capture:
        assert self._recorder is not None  # noqa: S101 - there is a level only with a recorder
        request, plan = flow.request, admitted.plan
        path, _, query = admitted.path.partition(b"?")
        host = request.data.host if admitted.mode != "transparent" else named_host(flow)
        upstream = f"{request.data.scheme.decode()}://{host}:{request.data.port}"
        exchange = new_exchange_id()
        head = records.request_head(
            exchange,
            started_at=time.time(),
            origin=plan.origin(
                admitted.client,
                admitted.mode,
                upstream,
                "" if admitted.served is None else admitted.served.label,
            ),
            method=request.data.method,
            path=path,
            query=self._fingerprints.query(query),
            headers=self._fingerprints.headers(admitted.rewritten.kept),
        )
        return Capture(
            self._recorder,
            exchange,
            head,
            level,
            note,
            mandatory=plan.mandatory,
            batch=plan.durability == "batch",
        )

    def _refuse(self, flow: http.HTTPFlow, refusal: Refused) -> None:
        request, reason = flow.request, refusal.reason
        self.live.pop(flow.id, None)
        self._counters.refusals[reason] += 1
        shape: Shape = getattr(request, "headrace_shape", Shape.OPENAI)
        flow.request.stream = False
        if may_be_huge(request.headers.fields):
            flow.kill()  # type: ignore[no-untyped-call]
            return
        if reason is Reason.NO_KEY and mode_of(flow.client_conn) == "forward":
            flow.response = proxy_refusal()
        else:
            flow.response = response_of(answer(reason, shape, retry_after=refusal.retry_after))
        if reason in _KEPT_REFUSALS:
            self._keep_refusal(flow, flow.response, refusal)

    def _keep_refusal(self, flow: http.HTTPFlow, response: http.Response, refusal: Refused) -> None:
        """Record that a request was refused, without its body; only so many each second."""
        second, kept = self._refusals_kept
        now = int(time.monotonic())
        kept = kept + 1 if second == now else 1
        self._refusals_kept = (now, kept)
        if self._recorder is None or kept > _REFUSALS_KEPT_PER_SECOND:
            return
        path = flow.request.data.path.partition(b"?")[0]
        plan = refusal.plan or self._router.by_path(take_session(path)[0]) or self._router.other
        admitted = Admitted(
            refusal.client or UNKNOWN_CLIENT,
            plan,
            mode_of(flow.client_conn),
            Rewritten((), flow.request.headers.fields),
            path,
        )
        capture = self._begin(flow, admitted, Level.METADATA, "refused")
        capture.response_head(response.status_code, response.headers.fields, length=-1)
        capture.end(ExchangeOutcome.REFUSED)

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The request has been read whole."""
        live = self.live.get(flow.id)
        if live is not None:
            if flow.request.stream is False:
                self._whole_request(flow, live)
            if live.capture is not None:
                live.capture.request_done()
        elif "headrace_endpoint" in flow.metadata:
            return self._endpoints.answer(flow)
        return None

    def _whole_request(self, flow: http.HTTPFlow, live: Live) -> None:
        """Add to a request that was read whole what the engine is to be told beside it."""
        body = kept = flow.request.raw_content or b""
        if live.capture is not None and live.plan.asks_tokens and _asks(flow.request):
            live.asked = ask(body)
            if live.asked is not None:
                body = kept = live.asked.body
        admitted = live.admitted
        if admitted is not None and admitted.served is not None:
            body = with_model(body, admitted.served.label)
        if body is not kept or live.asked is not None:
            flow.request.data.content = body
            flow.request.headers["content-length"] = str(len(body))
        if live.capture is not None:
            live.capture.on_request(kept)
            if admitted is not None:
                self._copy(live.capture, admitted, kept)

    def _copy(self, capture: Capture, admitted: Admitted, body: bytes) -> None:
        """Give another version a copy, where the route says so and the client did not opt out."""
        serving, served = admitted.plan.serving, admitted.served
        if self._shadows is None or serving is None or served is None:
            return
        version = serving.copies_to(served) if capture.level == Level.FULL else None
        if version is None:
            return
        own = len(served.target.upstream.path.encode())
        self._shadows.send(
            Copied(
                capture.exchange,
                admitted.client,
                admitted.plan.name,
                admitted.mode,
                admitted.path[own:],
                admitted.rewritten.sent,
                admitted.rewritten.kept,
                body,
            ),
            version,
        )

    # Responses.

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Stream every response, whatever its type."""
        live = self.live.get(flow.id)
        response = flow.response
        if live is None or response is None:
            return
        response.stream = True
        self._counters.statuses[live.plan.name, response.status_code // 100] += 1
        if live.capture is not None:
            self._tee(response, live, live.capture)
        if live.meter is not None and response.stream is not False:
            response.stream = live.meter.tee(response.stream)

    def _tee(self, response: http.Response, live: Live, capture: Capture) -> None:
        """Record the response as it passes; durable ones of known length are held back whole."""
        length = -1
        try:
            kept = self._fingerprints.headers(response.headers.fields)
            length = content_length(kept)
            capture.response_head(response.status_code, kept, length=length)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            capture.abandon(error)
            length = -1
        if live.plan.step_header:
            step = (b"x-headrace-step", capture.exchange.hex().encode())
            response.headers.fields = (*response.headers.fields, step)
        response.stream = capture.on_response
        if live.asked is not None:
            self._strip_tokens(response, live, capture, live.asked)
        if live.plan.durability == "durable" and 0 < length <= _HELD_BYTES:
            response.stream = False

    @staticmethod
    def _strip_tokens(response: http.Response, live: Live, capture: Capture, asked: Asked) -> None:
        """Give the client what it asked for; what is encoded or of another type passes whole."""
        if response.status_code == 200 and asked.token_ids:
            live.check = TokenCheck()
        kind = response.headers.get("content-type", "")
        if response.headers.get("content-encoding", "identity") != "identity":
            return
        if kind.startswith("text/event-stream") and "content-length" not in response.headers:
            response.stream = stripping_stream(
                capture.on_response, StreamStripper(asked, live.check)
            )
        elif kind.startswith("application/json"):
            response.stream = False

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The response has been passed on whole, or is about to be where it was held back."""
        live = self.live.get(flow.id)
        if live is None:
            return None
        response = flow.response
        if response is not None and response.stream is False:
            self._whole(response, live)
        if flow.websocket is None:
            self._end(flow, live, ExchangeOutcome.COMPLETE)
        if live.plan.durability == "durable" and live.capture is not None:
            return self._held(flow, live)
        return None

    def _whole(self, response: http.Response, live: Live) -> None:
        """Record a response that was held back, and take out what the client did not ask for."""
        body = response.raw_content or b""
        if live.meter is not None:
            live.meter.feed(body)
        if live.capture is None:
            return
        live.capture.on_response(body)
        if live.asked is not None:
            response.data.content = stripped = strip_json(body, live.asked, live.check)
            if "content-length" in response.headers:
                response.headers["content-length"] = str(len(stripped))

    async def _held(self, flow: http.HTTPFlow, live: Live) -> None:
        """Hold the end of the response until its record is on the disk.

        Where that fails and capture is mandatory, a response that was held back whole is not
        given; of a streamed one the client has all but the end.
        """
        assert self._recorder is not None  # noqa: S101 - there is a capture
        try:
            await self._recorder.spool.synced()
        except Exception as error:  # noqa: BLE001 - counted; the client has waited long enough
            if not isinstance(error, SpoolUnavailableError):
                self._recorder.fault(error)
            self._counters.uncaptured["not-durable"] += 1
            response = flow.response
            if live.plan.mandatory and response is not None and response.stream is False:
                shape: Shape = getattr(flow.request, "headrace_shape", Shape.OPENAI)
                flow.response = response_of(answer(Reason.SPOOL_FULL, shape))
                self._counters.refusals[Reason.SPOOL_FULL] += 1

    def error(self, flow: http.HTTPFlow) -> None:
        """The exchange broke off."""
        live = self.live.get(flow.id)
        if live is None:
            return
        client_there = bool(flow.client_conn.state & connection.ConnectionState.CAN_READ)
        self._end(
            flow,
            live,
            ExchangeOutcome.UPSTREAM_ABORT if client_there else ExchangeOutcome.CLIENT_ABORT,
        )

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Record a message and let go of it; mitmproxy would keep them all."""
        if flow.websocket is None:
            return
        message = flow.websocket.messages[-1]
        live = self.live.get(flow.id)
        if live is not None:
            if live.meter is not None and not message.from_client:
                live.meter.feed(message.content)
                live.meter.next_message()
            if live.capture is not None:
                if live.conversation is None:
                    live.conversation = Conversation(live.capture)
                live.conversation.message(
                    message.content, is_text=message.is_text, from_client=message.from_client
                )
                live.capture = live.conversation.capture
        del flow.websocket.messages[:-1]

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Let go of what passes through a raw connection; mitmproxy would keep it all."""
        del flow.messages[:-1]

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """The conversation is over."""
        live = self.live.get(flow.id)
        if live is not None:
            self._end(flow, live, _ending(flow.websocket))

    def _end(self, flow: http.HTTPFlow, live: Live, outcome: ExchangeOutcome) -> None:
        del self.live[flow.id]
        self._counters.exchanges[live.plan.name, live.mode, outcome.value] += 1
        self._counters.observe(time.monotonic() - live.started)
        if live.meter is not None:
            self._spend(live, live.meter)
        if live.check is not None and outcome is ExchangeOutcome.COMPLETE:
            live.plan.note_tokens(sound=live.check.sound)
        if self._tracing is not None:
            self._trace(self._tracing, flow, live, outcome)
        if live.capture is not None:
            try:
                live.capture.end(outcome)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                live.capture.abandon(error)

    def _trace(
        self, tracing: Tracing, flow: http.HTTPFlow, live: Live, outcome: ExchangeOutcome
    ) -> None:
        level = "none" if live.capture is None else live.capture.level.name.lower()
        try:
            tracing.exchange(
                flow,
                route=live.plan.name,
                mode=live.mode,
                outcome=outcome.value,
                level=level,
                seconds=time.monotonic() - live.started,
            )
        except Exception as error:  # noqa: BLE001 - the call goes on whatever tracing does
            self._counters.faults += 1
            _log.error("tracing fault: %s", type(error).__name__)

    def _spend(self, live: Live, meter: UsageMeter) -> None:
        """Take the tokens of an answer off the key's budget."""
        if not meter.answered:
            return
        if not meter.reported:
            self._counters.unlimited["estimated"] += 1
        self._budgets.spend(live.key_id, meter.tokens(live.sent_bytes))


def _asks(request: http.Request) -> bool:
    """Tell from a request's head whether token ids can be asked for in its body."""
    lower = [(name.lower(), value) for name, value in request.headers.fields]
    return applies(request.data.method, request.data.path, lower)


def _ending(conversation: websocket.WebSocketData | None) -> ExchangeOutcome:
    """Return how a WebSocket conversation ended: who goes without a word aborts it."""
    if conversation is None or conversation.close_code not in (None, _NO_WORD):
        return ExchangeOutcome.COMPLETE
    if conversation.closed_by_client:
        return ExchangeOutcome.CLIENT_ABORT
    return ExchangeOutcome.UPSTREAM_ABORT
