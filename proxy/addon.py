"""The addon through which every request and response of mitmproxy passes; it fails closed.

Every hook of mitmproxy fails open: an exception in it lets the request go on as it came. So the
refusal is what remains when anything here goes wrong, and admission is the last thing done.
"""

from collections.abc import Awaitable

from mitmproxy import connection, http, tcp, websocket

from proxy.admission import RequestRefusal
from proxy.api.endpoints import Endpoints
from proxy.clients.callers import Callers
from proxy.exchange import InFlight
from proxy.exchange_response import ResponseInFlight
from proxy.heads import content_length
from proxy.inline.socket import ResponsesSocket
from proxy.mitm.admission import FlowAdmission, method_of, mode_of, named_host
from proxy.mitm.replies import answer_at_head, response_of
from proxy.mitm.wire import (
    client_left,
    forget_expectation,
    forget_way,
    mark_shape,
    mark_way,
    shape_of_errors,
)
from proxy.mitm.wire.websocket import end_instead, put_instead
from proxy.recording.websocket import WebSocketCapture
from proxy.refusals import PROXY_REFUSAL, Refusals
from proxy.responses import LocalReply, Reason, answer
from proxy.services import Services
from trajectory.exchange import ClientIdentity, ExchangeOutcome

_CALLER = "headrace_caller"
"""Who asks the gateway's own API."""
_NO_WORD = 1006
"""Close code of a WebSocket connection that broke off."""


class _FlowDestination:
    """The way of one request, for mitmproxy's HTTP layer: what it asks before it sends."""

    def __init__(self, gate: "GatewayAddon", flow: http.HTTPFlow, live: InFlight) -> None:
        self._gate = gate
        self.body_bytes = gate.services.body_bytes
        self._flow = flow
        self._live = live

    def connected(self) -> None:
        """The connection stands, the request is about to be sent."""
        self._live.connected(self._flow.request.raw_content or b"")

    def another(self) -> bool:
        """Point the request at another upstream; False where there is none left."""
        if not self._live.another():
            return False
        _apply(self._flow.request, self._live)
        if self._live.reads_whole:  # it has had its ``100``; else the new upstream decides
            self._flow.request.headers.pop("expect", None)
        forget_expectation(self._flow.request)
        return True

    def refuse_body(self) -> None:
        """Answer a request whose chunks are more than a body may be."""
        self._gate.refuse_body(self._flow, self._live)

    def ended(self) -> bool:
        """Tell whether no more of the response may pass."""
        response = self._live.response
        return response is not None and response.ended()


def _apply(request: http.Request, live: InFlight) -> None:
    """Give mitmproxy's request the head with which it goes upstream."""
    request.headers.fields = live.fields
    request.data.path = live.path
    if live.admitted.mode == "base_url":
        request.data.scheme, request.data.host, request.data.port = live.admitted.origin
    if live.reads_whole:
        request.stream = False
    else:
        request.stream = live.capture.on_request if live.capture is not None else True


class GatewayAddon:
    """Admits requests, captures what passes, lets everything through as it comes."""

    name = "headrace"

    def __init__(
        self,
        services: Services,
        *,
        admission: FlowAdmission,
        callers: Callers,
        refusals: Refusals,
        endpoints: Endpoints,
    ) -> None:
        self.services = services
        self._admission = admission
        self._callers = callers
        self._counters = services.counters
        self.endpoints = endpoints
        self.refusals = refusals
        self.live: dict[str, InFlight] = {}
        """Exchanges in flight, by flow id."""

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Let a CONNECT pass only with a client key; whatever fails, the refusal stands."""
        flow.response = response_of(PROXY_REFUSAL)
        if self._callers.connects(flow.client_conn, flow.request.headers.fields):
            flow.response = None
        else:
            self._counters.refusals[Reason.NO_KEY] += 1

    def client_disconnected(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._callers.disconnects(client)

    def ended(self, client: connection.Client) -> bool:
        """Tell whether no more may pass in a tunnel: the key that let it in ended."""
        redirected = mode_of(client) == "transparent"
        callers = self._callers
        known = callers.of_redirected(None) if redirected else callers.of_forward(client, ())
        if known is None:
            self._counters.refusals[Reason.NO_KEY] += 1
        return known is None

    # Requests.

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Admit a request or refuse it; nothing is sent before this returns."""
        if flow.error is not None:
            return
        try:
            self._admit(flow)
        except RequestRefusal as refusal:
            self._refuse(flow, refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must not pass
            self.services.fault("admission", error)
            self._refuse(flow, RequestRefusal(Reason.FAULT, shape=shape_of_errors(flow.request)))

    def _admit(self, flow: http.HTTPFlow) -> None:
        request, data = flow.request, flow.request.data
        mode, fields = mode_of(flow.client_conn), flow.request.headers.fields
        if mode == "base_url" and self.endpoints.takes(data.path):
            reply = self.endpoints.at_head(data.method, data.path, fields)
            if isinstance(reply, LocalReply):
                answer_at_head(flow, response_of(reply))
            else:
                flow.metadata[_CALLER] = reply
            return
        data.authority = b""  # a target with a host of its own would go on as it is
        admitted = self._admission.admit(flow)
        mark_shape(request, admitted.shape)
        place = None if mode == "base_url" else (named_host(flow), data.port)
        level, note = self.services.admission.level(admitted, fields, place)
        live = InFlight(self.services, admitted, method_of(request), listener="mitmproxy")
        live.begin(level, note, content_length(fields))
        self.live[flow.id] = live
        mark_way(request, _FlowDestination(self, flow, live))
        _apply(request, live)

    def _refuse(self, flow: http.HTTPFlow, refusal: RequestRefusal) -> None:
        self.live.pop(flow.id, None)
        data, mode = flow.request.data, mode_of(flow.client_conn)
        host = named_host(flow) if mode == "transparent" else data.host
        reply = self.refusals.refuse(
            refusal,
            mode,
            data.method,
            data.path,
            flow.request.headers.fields,
            (data.scheme, host, data.port),
        )
        answer_at_head(flow, response_of(reply))

    def refuse_body(self, flow: http.HTTPFlow, live: InFlight) -> None:
        """Answer a request that is in flight already: its body is longer than it may be."""
        self._end(flow, live, ExchangeOutcome.CLIENT_ABORT)
        self._refuse(flow, live.too_long())

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The request has been read whole."""
        request, live = flow.request, self.live.get(flow.id)
        if live is None:
            caller = flow.metadata.get(_CALLER)
            return None if caller is None else self._answer(flow, caller)
        if request.trailers:
            fields = live.trailers(request.trailers.fields)
            request.trailers = http.Headers(fields) if fields else None
        if not live.reads_whole:
            live.request_read()
            return None
        body = request.raw_content or b""
        if live.is_guarded:
            return self._judge(flow, live, body)
        if live.is_inline:
            return self._pseudonymise(flow, live, body)
        self._send_whole(request, live, body)
        return None

    async def _pseudonymise(self, flow: http.HTTPFlow, live: InFlight, body: bytes) -> None:
        """Put surrogates into the body; whatever fails, the body as it came is not there to be sent."""
        flow.request.data.content = b""
        told = await live.pseudonymised(body)
        if self.live.get(flow.id) is not live:  # its client has left
            flow.response = response_of(answer(Reason.FAULT, live.admitted.shape))
        elif isinstance(told, LocalReply):
            self._end(flow, live, ExchangeOutcome.REFUSED)
            flow.response = response_of(told)
        else:
            self._send_whole(flow.request, live, told)

    async def _judge(self, flow: http.HTTPFlow, live: InFlight, body: bytes) -> None:
        """Judge the tool calls of a request; whatever fails, they are not there to be sent."""
        flow.request.data.content = b""

        def gone() -> bool:
            return self.live.get(flow.id) is not live or not _is_there(flow)

        told = await live.guarded(body, send=None, gone=gone)
        if gone():
            if self.live.get(flow.id) is live:
                self._end(flow, live, ExchangeOutcome.CLIENT_ABORT)
            flow.response = response_of(answer(Reason.FAULT, live.admitted.shape))
        elif told is None:
            self._send_whole(flow.request, live, body)
        else:
            judged = live.status != 0
            self._end(flow, live, ExchangeOutcome.COMPLETE if judged else ExchangeOutcome.REFUSED)
            flow.response = response_of(told)

    @staticmethod
    def _send_whole(request: http.Request, live: InFlight, body: bytes) -> None:
        request.data.content = live.request_whole(body)
        request.headers.fields = live.fields
        request.data.path = live.path

    async def _answer(self, flow: http.HTTPFlow, caller: ClientIdentity) -> None:
        """Answer a request to the gateway itself."""
        request = flow.request
        reply = await self.endpoints.answer(
            caller, request.data.path, request.headers.fields, request.raw_content or b""
        )
        flow.response = response_of(reply)

    # Responses.

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Stream every response, whatever its type."""
        live, response = self.live.get(flow.id), flow.response
        if live is None or response is None:
            return
        fields = response.headers.fields
        in_flight = live.begin_response(response.status_code, fields)
        if in_flight.fields is not fields:
            response.headers.fields = in_flight.fields
        if in_flight.changes_length and flow.request.is_http11:
            response.headers["transfer-encoding"] = "chunked"
        response.stream = False if in_flight.holds else in_flight.tee or True

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The response has been passed on whole, or is about to be where it was held back."""
        live, response = self.live.get(flow.id), flow.response
        if live is None:
            return None
        in_flight = live.response
        if response is not None and in_flight is not None and in_flight.holds:
            body = response.raw_content or b""
            told = in_flight.whole(body)
            if in_flight.is_judged:
                return self._judge_answer(flow, live, in_flight, told)
            _put_body(response, in_flight, body, told)
        if flow.websocket is None:
            self._end(flow, live, ExchangeOutcome.COMPLETE)
        if in_flight is None or not in_flight.waits_for_disk:
            return None
        return self._durable(flow, in_flight)

    async def _judge_answer(
        self, flow: http.HTTPFlow, live: InFlight, in_flight: ResponseInFlight, body: bytes
    ) -> None:
        """Hold the answer until its tool calls are judged; whatever fails, they are not there."""
        response = flow.response
        assert response is not None  # noqa: S101 - for the type checker
        response.data.content = b""

        def gone() -> bool:
            return self.live.get(flow.id) is not live or not _is_there(flow)

        told = await in_flight.judged(body, send=None, gone=gone)
        if gone():
            if self.live.get(flow.id) is live:
                self._end(flow, live, ExchangeOutcome.CLIENT_ABORT)
            return
        if isinstance(told, LocalReply):
            flow.response = response_of(told)
        else:
            _put_body(response, in_flight, b"", told)
        self._end(flow, live, ExchangeOutcome.COMPLETE)
        if in_flight.waits_for_disk:
            await self._durable(flow, in_flight)

    @staticmethod
    async def _durable(flow: http.HTTPFlow, in_flight: ResponseInFlight) -> None:
        """Hold the end of the response until its record is on the disk."""
        reply = await in_flight.durable()
        if reply is not None:
            flow.response = response_of(reply)

    def error(self, flow: http.HTTPFlow) -> None:
        """The exchange broke off; it is the client's doing where the client had closed its side."""
        live = self.live.get(flow.id)
        if live is None:
            return
        there = _is_there(flow)
        self._end(
            flow, live, ExchangeOutcome.UPSTREAM_ABORT if there else ExchangeOutcome.CLIENT_ABORT
        )

    def websocket_message(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Record a message and let go of it; mitmproxy would keep them all."""
        if flow.websocket is None:
            return None
        message = flow.websocket.messages[-1]
        del flow.websocket.messages[:-1]
        live = self.live.get(flow.id)
        if live is None:
            return None
        asks = live.response is not None and live.response.turns > 0
        if message.from_client and (
            reason := self.services.admission.ended(live.admitted, asks=asks)
        ):
            self._counters.refusals[reason] += 1
            end_instead(flow, message)
            return None
        if live.socket is None:
            self._record_message(live, message)
        elif message.from_client:
            return self._tell(flow, live, live.socket, message)
        else:
            self._record_message(live, message)
            heard = live.socket.from_server(message.content, is_text=message.is_text)
            put_instead(flow, message, to_client=heard)
        return None

    async def _tell(
        self,
        flow: http.HTTPFlow,
        live: InFlight,
        responses: ResponsesSocket,
        message: websocket.WebSocketMessage,
    ) -> None:
        """Put surrogates into a client's message, or tell the client why it was not sent."""
        content = message.content
        message.dropped = True  # whatever fails, it does not go on as it came
        told = await responses.from_client(content, is_text=message.is_text)
        if told.content is None:
            refused = [] if told.refusal is None else [told.refusal]
            put_instead(flow, message, to_client=refused)
            return
        if self.live.get(flow.id) is not live:
            return
        if told.asks:
            live.begin_turn(told)
        message.content = told.content
        self._record_message(live, message)
        put_instead(flow, message, to_server=[told.content])

    @staticmethod
    def _record_message(live: InFlight, message: websocket.WebSocketMessage) -> None:
        if live.response is not None and not message.from_client:
            live.response.message(message.content)
        if live.capture is None:
            return
        if live.conversation is None:
            live.conversation = WebSocketCapture(live.capture)
        live.conversation.message(
            message.content, is_text=message.is_text, from_client=message.from_client
        )
        live.capture = live.conversation.capture

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
        live.end(outcome)


def _put_body(
    response: http.Response, in_flight: ResponseInFlight, body: bytes, told: bytes
) -> None:
    """Give a response that was held back the body that its client gets."""
    if told is not body:
        response.data.content = told
        if "content-length" in response.headers:
            response.headers["content-length"] = str(len(told))
    response.headers.fields = (*response.headers.fields, *in_flight.told())


def _is_there(flow: http.HTTPFlow) -> bool:
    """Tell whether the client of a request has not left."""
    reads = flow.client_conn.state & connection.ConnectionState.CAN_READ
    return bool(reads) and not client_left(flow.request)


def _ending(conversation: websocket.WebSocketData | None) -> ExchangeOutcome:
    """Return how a WebSocket conversation ended: who goes without a word aborts it."""
    if conversation is None or conversation.close_code not in (None, _NO_WORD):
        return ExchangeOutcome.COMPLETE
    if conversation.closed_by_client:
        return ExchangeOutcome.CLIENT_ABORT
    return ExchangeOutcome.UPSTREAM_ABORT
