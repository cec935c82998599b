"""Admission: who calls, where to, and may it pass; what is captured of it begins here.

Every hook of mitmproxy fails open: an exception in it lets the request go on as it came. So the
refusal is what remains when anything here goes wrong, and admission is the last thing done.
"""

import asyncio
import base64
import binascii
import logging
import time
from collections.abc import Awaitable
from typing import Literal, NamedTuple

from mitmproxy import connection, http, tcp
from mitmproxy.net.http import status_codes
from mitmproxy.proxy import server_hooks
from mitmproxy.proxy.mode_specs import RegularMode

from proxy.answers import Answer, Reason, Shape, answer, shape_of
from proxy.capture import Capture, Level, Recorder, new_exchange_id
from proxy.config import ENDPOINT_PREFIX, GatewayConfig
from proxy.counters import Counters
from proxy.credentials import Fingerprints, RawFields, presented_key
from proxy.endpoints import Endpoints
from proxy.identity import UNKNOWN_CLIENT, KeyRegistry
from proxy.routing import Plan, Rewritten, Router, rewrite_headers, take_session
from proxy.spool import records
from proxy.spool.writer import SpoolState
from proxy.tokens import Asked, StreamStripper, applies, ask, strip_json, stripping_stream
from proxy.wire import mark_shape
from trajectory.exchange import ClientIdentity, ExchangeOutcome

_log = logging.getLogger(__name__)
_REFUSALS_KEPT_PER_SECOND = 50
_HELD_BYTES = 1024 * 1024
"""Responses of durable routes up to this length are held back whole until they are on the disk."""

_BUFFERED_BYTES = 8 * 1024 * 1024
"""Requests that the gateway answers itself are read whole first, up to this size."""

type Mode = Literal["base_url", "forward"]


class Refused(Exception):  # noqa: N818 - not an error of ours: the client's request is refused
    """The request is answered by the gateway itself."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Live:
    """An exchange in flight."""

    __slots__ = ("asked", "capture", "mode", "plan", "started")

    def __init__(self, capture: Capture | None, plan: Plan, mode: Mode) -> None:
        self.capture = capture
        self.plan = plan
        self.mode = mode
        self.started = time.monotonic()
        self.asked: Asked | None = None


class Admitted(NamedTuple):
    """What admission found out about a request."""

    client: ClientIdentity
    plan: Plan
    mode: Mode
    rewritten: Rewritten
    path: bytes


class Gate:
    """The addon through which every request and response passes."""

    name = "headrace"

    def __init__(
        self,
        config: GatewayConfig,
        *,
        router: Router,
        registry: KeyRegistry,
        recorder: Recorder | None,
        counters: Counters,
        fingerprints: Fingerprints,
    ) -> None:
        self._config = config
        self._router = router
        self._registry = registry
        self._recorder = recorder
        self._counters = counters
        self._fingerprints = fingerprints
        self._endpoints = Endpoints(registry, recorder, counters)
        self._clients: dict[str, ClientIdentity] = {}
        self._connecting: dict[connection.Server, asyncio.TimerHandle] = {}
        self.live: dict[str, Live] = {}
        """Exchanges in flight, by flow id."""
        self._refusals_kept = (0, 0)

    # Clients of the forward proxy say who they are when they connect.

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Let a CONNECT pass only with a client key."""
        client = self._proxy_client(flow.request.headers.fields)
        if client is None:
            flow.response = _proxy_refusal()
            self._counters.refusals[Reason.NO_KEY] += 1
        else:
            self._clients[flow.client_conn.id] = client

    def client_disconnected(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._clients.pop(client.id, None)

    def _proxy_client(self, fields: RawFields) -> ClientIdentity | None:
        for name, value in fields:
            if name.lower() == b"proxy-authorization":
                return self._registry.authenticate(_proxy_key(value))
        return None

    # Requests.

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Admit a request or refuse it; nothing is sent before this returns."""
        if flow.error is not None:
            return
        try:
            self._admit(flow)
        except Refused as refusal:
            self._refuse(flow, refusal.reason)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must not pass
            self._counters.faults += 1
            _log.error("admission fault: %s", type(error).__name__)
            self._refuse(flow, Reason.FAULT)

    def _admit(self, flow: http.HTTPFlow) -> None:
        request = flow.request
        forward = isinstance(flow.client_conn.proxy_mode, RegularMode)
        fields = request.headers.fields
        names = frozenset(name.lower() for name, _ in fields)
        if not forward and request.data.path.startswith(ENDPOINT_PREFIX.encode()):
            if _may_be_huge(fields):
                flow.kill()  # type: ignore[no-untyped-call]
            flow.metadata["headrace_endpoint"] = True
            return
        admitted = self._forward(flow, fields) if forward else self._base_url(flow, fields)
        shape = shape_of(admitted.plan.shape, admitted.plan.kind, admitted.path, names)
        mark_shape(request, shape)
        level, note = self._level(flow, admitted)
        request.headers.fields = admitted.rewritten.sent
        request.data.path = admitted.path
        live = Live(None, admitted.plan, admitted.mode)
        self.live[flow.id] = live
        request.stream = True
        if level is not None and self._recorder is not None:
            try:
                live.capture = self._begin(flow, admitted, level, note)
            except Exception as error:
                self._recorder.fault(error)
                if self._config.spool.when_full == "refuse":
                    raise
            else:
                request.stream = live.capture.on_request
                lower = [(name.lower(), value) for name, value in request.headers.fields]
                if admitted.plan.tokens and applies(request.data.method, admitted.path, lower):
                    request.stream = False
                    request.headers["accept-encoding"] = "identity"

    def _base_url(self, flow: http.HTTPFlow, fields: RawFields) -> Admitted:
        request = flow.request
        path, session = take_session(request.data.path)
        plan = self._router.by_path(path)
        if plan is None or plan.target is None:
            raise Refused(Reason.NO_ROUTE)
        rest = path[len(plan.prefix) :]
        mark_shape(request, shape_of(plan.shape, plan.kind, rest, _names(fields)))
        presented, header = presented_key(fields)
        client = self._registry.authenticate(presented)
        if client is None:
            raise Refused(Reason.NO_KEY)
        if session is None:
            rest, session = take_session(rest)
        if not rest.startswith(b"/"):
            rest = b"/" + rest
        target = plan.target
        added = ((b"x-headrace-url-session", session),) if session is not None else ()
        rewritten = rewrite_headers(
            fields,
            host=plan.authority,
            key_header=header,
            credential=plan.credential,
            added=added,
        )
        request.data.host, request.data.port = target.host, target.port
        request.data.scheme = target.scheme.encode()
        return Admitted(client, plan, "base_url", rewritten, target.path.encode() + rest)

    def _forward(self, flow: http.HTTPFlow, fields: RawFields) -> Admitted:
        request = flow.request
        client = self._clients.get(flow.client_conn.id)
        if client is None:
            client = self._proxy_client(fields)
        elif not self._registry.valid(client.key_id):
            client = None
        if client is None:
            raise Refused(Reason.NO_KEY)
        host, port = request.data.host, request.data.port
        plan = self._router.by_host(host, port)
        https = request.data.scheme == b"https"
        same = plan.target is not None and https == (plan.target.scheme == "https")
        rewritten = rewrite_headers(
            fields, host=None, key_header=None, credential=plan.credential if same else None
        )
        return Admitted(client, plan, "forward", rewritten, request.data.path)

    def _level(self, flow: http.HTTPFlow, admitted: Admitted) -> tuple[Level | None, str]:
        """Decide how much is captured; None is nothing.

        Raises:
            Refused: capture is mandatory and cannot happen.
        """
        if self._recorder is None:
            return None, ""
        request = flow.request
        if admitted.mode == "forward" and not self._router.intercepts(
            request.data.host, request.data.port
        ):
            self._counters.tunnels += 1
            return None, ""
        wish = _capture_wish(flow.request.headers.fields)
        if wish is not None:
            self._counters.uncaptured["opt-out"] += 1
            return (None if wish == "none" else Level.METADATA), "opt-out"
        state = self._recorder.spool.state
        if state is SpoolState.OPEN:
            return Level.FULL, ""
        policy = self._config.spool.when_full
        if policy == "refuse":
            raise Refused(Reason.SPOOL_FULL)
        self._counters.uncaptured[f"spool-{state.value}"] += 1
        if policy == "shed" and state is SpoolState.FULL:
            return Level.METADATA, "spool-full"
        return None, ""

    def _begin(self, flow: http.HTTPFlow, admitted: Admitted, level: Level, note: str) -> Capture:
        assert self._recorder is not None  # noqa: S101 - _level gave a level
        request = flow.request
        path, _, query = admitted.path.partition(b"?")
        scheme = request.data.scheme.decode()
        upstream = f"{scheme}://{request.data.host}:{request.data.port}"
        exchange = new_exchange_id()
        head = records.request_head(
            exchange,
            started_at=time.time(),
            origin=admitted.plan.origin(admitted.client, admitted.mode, upstream),
            method=request.data.method,
            path=path,
            query=self._fingerprints.query(query),
            headers=self._fingerprints.headers(admitted.rewritten.kept),
        )
        return Capture(self._recorder, exchange, head, level, note)

    def _refuse(self, flow: http.HTTPFlow, reason: Reason) -> None:
        request = flow.request
        self.live.pop(flow.id, None)
        self._counters.refusals[reason] += 1
        shape: Shape = getattr(request, "headrace_shape", Shape.OPENAI)
        flow.request.stream = False
        if _may_be_huge(request.headers.fields):
            flow.kill()  # type: ignore[no-untyped-call]
            return
        if isinstance(flow.client_conn.proxy_mode, RegularMode) and reason is Reason.NO_KEY:
            flow.response = _proxy_refusal()
        else:
            flow.response = response_of(answer(reason, shape))
        if reason in (Reason.NO_KEY, Reason.SPOOL_FULL, Reason.RATE):
            self._keep_refusal(flow, flow.response)

    def _keep_refusal(self, flow: http.HTTPFlow, response: http.Response) -> None:
        """Record that a request was refused, without its body; only so many each second."""
        second, kept = self._refusals_kept
        now = int(time.monotonic())
        kept = kept + 1 if second == now else 1
        self._refusals_kept = (now, kept)
        if self._recorder is None or kept > _REFUSALS_KEPT_PER_SECOND:
            return
        mode: Mode = "base_url"
        if isinstance(flow.client_conn.proxy_mode, RegularMode):
            mode = "forward"
        path = flow.request.data.path.partition(b"?")[0]
        plan = self._router.by_path(take_session(path)[0]) or self._router.by_host("", 0)
        rewritten = Rewritten((), flow.request.headers.fields)
        admitted = Admitted(UNKNOWN_CLIENT, plan, mode, rewritten, path)
        capture = self._begin(flow, admitted, Level.METADATA, "refused")
        capture.response_head(response.status_code, response.headers.fields, length=-1)
        capture.end(ExchangeOutcome.REFUSED)

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The request has been read whole."""
        live = self.live.get(flow.id)
        if live is not None:
            if live.capture is not None:
                if flow.request.stream is False:
                    self._ask_for_tokens(flow, live, live.capture)
                live.capture.request_done()
        elif "headrace_endpoint" in flow.metadata:
            return self._endpoints.answer(flow)
        return None

    def _ask_for_tokens(self, flow: http.HTTPFlow, live: Live, capture: Capture) -> None:
        """Let the engine give token ids too, where the buffered request can be understood."""
        request = flow.request
        body = request.raw_content or b""
        live.asked = ask(body)
        if live.asked is not None:
            body = live.asked.body
            request.data.content = body
            request.headers["content-length"] = str(len(body))
        capture.on_request(body)

    # Responses.

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Stream every response, whatever its type."""
        live = self.live.get(flow.id)
        response = flow.response
        if live is None or response is None:
            return
        response.stream = True
        self._counters.statuses[live.plan.name, response.status_code // 100] += 1
        if live.capture is None:
            return
        try:
            fields = response.headers.fields
            kept = self._fingerprints.headers(fields)
            length = _length(kept)
            live.capture.response_head(response.status_code, kept, length=length)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            live.capture.abandon(error)
        else:
            if live.plan.durable and 0 < length <= _HELD_BYTES:
                response.stream = False
                return
        response.stream = live.capture.on_response
        if live.asked is not None:
            self._strip_tokens(response, live.capture, live.asked)

    def _strip_tokens(self, response: http.Response, capture: Capture, asked: Asked) -> None:
        """Give the client what it asked for; what is encoded or of another type passes whole."""
        kind = response.headers.get("content-type", "")
        if response.headers.get("content-encoding", "identity") != "identity":
            return
        if kind.startswith("text/event-stream") and "content-length" not in response.headers:
            response.stream = stripping_stream(capture.on_response, StreamStripper(asked))
        elif kind.startswith("application/json"):
            response.stream = False

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """The response has been passed on whole."""
        live = self.live.get(flow.id)
        if live is None:
            return None
        response = flow.response
        if live.capture is not None and response is not None and response.stream is False:
            body = response.raw_content or b""
            live.capture.on_response(body)
            if live.asked is not None:
                response.data.content = stripped = strip_json(body, live.asked)
                if "content-length" in response.headers:
                    response.headers["content-length"] = str(len(stripped))
        if flow.websocket is None:
            self._end(flow, live, ExchangeOutcome.COMPLETE)
        if live.plan.durable and live.capture is not None and self._recorder is not None:
            return self._held(self._recorder)
        return None

    async def _held(self, recorder: Recorder) -> None:
        """Hold the end of the response until its record is on the disk."""
        try:
            await recorder.spool.synced()
        except Exception as error:  # noqa: BLE001 - counted; the client has waited long enough
            recorder.fault(error)

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
        if live is not None and live.capture is not None:
            if message.from_client:
                live.capture.on_request(message.content + b"\n")
            else:
                live.capture.on_response(message.content + b"\n")
        del flow.websocket.messages[:-1]

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Let go of what passes through a raw connection; mitmproxy would keep it all."""
        del flow.messages[:-1]

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """The conversation is over."""
        live = self.live.get(flow.id)
        if live is not None:
            self._end(flow, live, ExchangeOutcome.COMPLETE)

    def _end(self, flow: http.HTTPFlow, live: Live, outcome: ExchangeOutcome) -> None:
        del self.live[flow.id]
        self._counters.exchanges[live.plan.name, live.mode, outcome.value] += 1
        self._counters.observe(time.monotonic() - live.started)
        if live.capture is not None:
            try:
                live.capture.end(outcome)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                live.capture.abandon(error)

    # Upstream connections: mitmproxy knows no time limit for them.

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Give a connection to an upstream its time limit."""
        task = asyncio.current_task()
        if task is not None:
            loop = asyncio.get_running_loop()
            handle = loop.call_later(self._config.connect_seconds, task.cancel)
            self._connecting[data.server] = handle

    def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The connection stands."""
        handle = self._connecting.pop(data.server, None)
        if handle is not None:
            handle.cancel()

    server_connect_error = server_connected


def response_of(reply: Answer) -> http.Response:
    """Return an answer as mitmproxy's response."""
    now = time.time()
    return http.Response(
        b"HTTP/1.1",
        reply.status,
        status_codes.RESPONSES.get(reply.status, "").encode(),
        http.Headers(reply.headers),
        reply.body,
        None,
        now,
        now,
    )


def _proxy_refusal() -> http.Response:
    text = b"Headrace: this proxy needs a client key in Proxy-Authorization.\n"
    headers = (
        (b"proxy-authenticate", b'Basic realm="headrace"'),
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(text)),
    )
    return response_of(Answer(407, headers, text))


def _proxy_key(value: bytes) -> str | None:
    """Return the key in a Proxy-Authorization header: as password, as user, or as a bearer token."""
    scheme, _, rest = value.decode("latin-1").strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return password if password.startswith("hr_") else user


def _names(fields: RawFields) -> frozenset[bytes]:
    return frozenset(name.lower() for name, _ in fields)


def _may_be_huge(fields: RawFields) -> bool:
    """Tell whether a body that would have to be buffered is unbounded or too large for that."""
    for name, value in fields:
        lower = name.lower()
        if lower == b"transfer-encoding":
            return True
        if lower == b"content-length" and (len(value) > 9 or int(value or b"0") > _BUFFERED_BYTES):
            return True
    return False


def _capture_wish(fields: RawFields) -> Literal["metadata", "none"] | None:
    """Return what a client wants less than a full capture: ours, or as another gateway knows it."""
    for name, value in fields:
        if len(name) == 18:  # both names have this length: one comparison for most headers
            lower = name.lower()
            word = value.strip().lower()
            if lower == b"x-headrace-capture" and word in (b"metadata", b"none"):
                return "metadata" if word == b"metadata" else "none"
            if lower == b"cf-aig-collect-log" and word == b"false":
                return "none"
    return None


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the Content-Length, -1 where there is none that ends the body."""
    length = -1
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            length = int(value)
        elif name == b"transfer-encoding":
            return -1
    return length
