"""The addon through which every request and response passes; it fails closed.

Every hook of mitmproxy fails open: an exception in it lets the request go on as it came. So the
refusal is what remains when anything here goes wrong, and admission is the last thing done.
"""

import logging
import time
from collections.abc import Awaitable

from mitmproxy import connection, http, tcp, websocket

from proxy.admission import AdmissionControl, Admitted, Refused, mode_of
from proxy.api.endpoints import Endpoints, is_endpoint
from proxy.counters import Counters
from proxy.credentials import CREDENTIAL_HEADERS, RawFields, holds_client_key
from proxy.exchange import Endings, InFlight, Passing, Sending
from proxy.keys import UNKNOWN_CLIENT, KeyRegistry
from proxy.limits import Budgets
from proxy.mitm.replies import answer_at_head, proxy_refusal, response_of
from proxy.mitm.wire import forget_way, mark_way, shape_of_errors
from proxy.recording import Recording
from proxy.responses import LocalReply, Reason, answer
from proxy.rewriting import Rewritten, take_session
from proxy.route import Level
from proxy.routing import Router
from proxy.shadow import Shadows
from proxy.telemetry import Tracing
from proxy.usage import costs
from proxy.websocket import WebSocketCapture
from trajectory.exchange import ExchangeOutcome

_KEPT_PER_SECOND = 50
_KEPT = frozenset(
    {
        Reason.NO_KEY,
        Reason.NO_MODEL,
        Reason.SPOOL_FULL,
        Reason.RATE,
        Reason.TOKENS,
        Reason.SESSION_STEPS,
    }
)
_SILENT = frozenset({b"HEAD", b"OPTIONS"})
"""Methods by which clients look whether anybody is there: there is no call to remember."""


class Refusals:
    """Answers refused requests."""

    def __init__(self, router: Router, counters: Counters, recording: Recording | None) -> None:
        self._router = router
        self._counters = counters
        self._recording = recording
        self._kept = (0, 0)

    def refuse(self, flow: http.HTTPFlow, refusal: Refused) -> None:
        """Answer a request ourselves, at its head: whatever its body is, it is not kept."""
        request, reason = flow.request, refusal.reason
        self._counters.refusals[reason] += 1
        if reason is Reason.NO_KEY and mode_of(flow.client_conn) == "forward":
            response = proxy_refusal()
        else:
            shape = shape_of_errors(request)
            response = response_of(answer(reason, shape, retry_after=refusal.retry_after))
        answer_at_head(flow, response)
        kept = reason in _KEPT and request.data.method not in _SILENT
        if kept and self._recording is not None:
            self._keep(self._recording, flow, response, refusal)

    def _keep(
        self, recording: Recording, flow: http.HTTPFlow, response: http.Response, refusal: Refused
    ) -> None:
        """Record that a request was refused, without its body; only so many each second."""
        second, kept = self._kept
        now = int(time.monotonic())
        kept = kept + 1 if second == now else 1
        self._kept = (now, kept)
        if kept > _KEPT_PER_SECOND:
            return
        path, plan = flow.request.data.path.partition(b"?")[0], refusal.plan
        if plan is None and mode_of(flow.client_conn) == "base_url":
            plan = self._router.by_path(take_session(path)[0])
        admitted = Admitted(
            refusal.client or UNKNOWN_CLIENT,
            plan or self._router.other,
            mode_of(flow.client_conn),
            Rewritten((), _without_odd_keys(flow.request.headers.fields)),
            path,
        )
        capture = recording.begin(flow, admitted, Level.METADATA, "refused")
        capture.response_head(response.status_code, response.headers.fields)
        capture.end(ExchangeOutcome.REFUSED)


def _without_odd_keys(fields: RawFields) -> RawFields:
    """Leave out client keys in headers where no credential is looked for."""
    return tuple(
        (name, value)
        for name, value in fields
        if name.lower() in CREDENTIAL_HEADERS or not holds_client_key(value)
    )


_log = logging.getLogger(__name__)
_CALLER = "headrace_caller"
"""Who asks the gateway's own API."""
_NO_WORD = 1006
"""Close code of a WebSocket connection that broke off."""


class GatewayAddon:
    """Admits requests, captures what passes, lets everything through as it comes."""

    name = "headrace"

    def __init__(
        self,
        admission: AdmissionControl,
        *,
        router: Router,
        endpoints: Endpoints,
        registry: KeyRegistry,
        budgets: Budgets,
        recording: Recording | None,
        counters: Counters,
        tracing: Tracing | None = None,
        shadows: Shadows | None = None,
    ) -> None:
        self._admission = admission
        self._callers = admission.callers
        self._shadows = shadows
        self._endpoints = endpoints
        self._registry = registry
        self._recording = recording
        self._counters = counters
        self._refusals = Refusals(router, counters, recording)
        self._passing = Passing(counters, recording)
        self._endings = Endings(counters, budgets, tracing)
        self.live: dict[str, InFlight] = {}
        """Exchanges in flight, by flow id."""

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Let a CONNECT pass only with a client key."""
        if not self._callers.connects(flow.client_conn, flow.request.headers.fields):
            flow.response = proxy_refusal()
            self._counters.refusals[Reason.NO_KEY] += 1

    def client_disconnected(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._callers.disconnects(client)

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
            reply = self._endpoints.at_head(request)
            if isinstance(reply, LocalReply):
                answer_at_head(flow, response_of(reply))
            else:
                flow.metadata[_CALLER] = reply
            return
        admitted = self._admission.admit(flow)
        plan = admitted.plan
        level, note = self._admission.level(flow, admitted)
        live = self.live[flow.id] = InFlight(plan, admitted.mode)
        sending = live.sending = Sending(
            flow,
            live,
            admitted,
            admission=self._admission,
            counters=self._counters,
            shadows=self._shadows,
        )
        mark_way(request, sending)
        request.stream = True
        limits = self._registry.limits.get(admitted.client.key_id)
        if limits is not None and limits.tokens_per_day is not None and plan.kind == "model":
            upgrade = request.headers.get("upgrade", "").lower() == "websocket"
            if upgrade or costs(request.data.method, admitted.path):
                sending.meter()
        if level is not None and self._recording is not None:
            sending.record(self._recording, level, note)
            if plan.tokens and level and live.capture is not None and plan.asks_tokens:
                sending.prepare_to_ask()
        if admitted.served is not None:
            request.stream = False
            self._counters.served[plan.name, admitted.served.label] += 1

    def _refuse(self, flow: http.HTTPFlow, refusal: Refused) -> None:
        self.live.pop(flow.id, None)
        self._refusals.refuse(flow, refusal)

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The request has been read whole."""
        live = self.live.get(flow.id)
        if live is not None:
            if live.sending is not None:
                live.sending.read_whole()
        elif _CALLER in flow.metadata:
            return self._endpoints.answer(flow, flow.metadata[_CALLER])
        return None

    # Responses.

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Stream every response, whatever its type."""
        live = self.live.get(flow.id)
        if live is not None and flow.response is not None:
            self._passing.head(flow.response, live)

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The response has been passed on whole, or is about to be where it was held back."""
        live = self.live.get(flow.id)
        if live is None:
            return None
        response = flow.response
        if response is not None and response.stream is False:
            self._passing.whole(response, live)
        if flow.websocket is None:
            self._end(flow, live, ExchangeOutcome.COMPLETE)
        durable = live.plan.durability == "durable" and live.capture is not None
        if durable and self._recording is not None:
            return self._passing.durable(flow, live, self._recording)
        return None

    def error(self, flow: http.HTTPFlow) -> None:
        """The exchange broke off; it is the client's doing where the client had closed its side."""
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
                    live.conversation = WebSocketCapture(live.capture)
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

    def _end(self, flow: http.HTTPFlow, live: InFlight, outcome: ExchangeOutcome) -> None:
        del self.live[flow.id]
        forget_way(flow.request)
        self._endings.end(flow, live, outcome)


def _ending(conversation: websocket.WebSocketData | None) -> ExchangeOutcome:
    """Return how a WebSocket conversation ended: who goes without a word aborts it."""
    if conversation is None or conversation.close_code not in (None, _NO_WORD):
        return ExchangeOutcome.COMPLETE
    if conversation.closed_by_client:
        return ExchangeOutcome.CLIENT_ABORT
    return ExchangeOutcome.UPSTREAM_ABORT
