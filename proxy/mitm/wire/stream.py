"""One call between both sides: where it goes, and what becomes of a refused one's body."""

from collections.abc import Generator
from typing import Any, Protocol

from mitmproxy import http
from mitmproxy.connection import Connection
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import http as http_layer
from mitmproxy.proxy.layers.http import GetHttpConnection, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseData,
    ResponseHeaders,
    ResponseProtocolError,
)

from proxy.clients.credentials import RawFields
from trajectory.dialects.errors import Shape

type Commands = Generator[commands.Command, Any, None]

_SHAPE = "headrace_shape"
_WAY = "headrace_way"
_EXPECTED = "headrace_expected"
_SWITCHES = 101
_NO_ANSWER = ErrorCode.GENERIC_SERVER_ERROR


class RequestDestination(Protocol):
    """Destination of a request, chosen before any of its bytes are sent."""

    def connected(self) -> None:
        """The connection is open; the request is sent next."""

    def another(self) -> bool:
        """Point the request at another upstream; False where there is none left."""

    body_bytes: int
    """Bytes that its body may have."""

    def refuse_body(self) -> None:
        """Answer the request, whose body is longer."""

    def ended(self) -> bool:
        """Tell whether no more of its response may pass."""


def mark_shape(request: http.Request, shape: Shape) -> None:
    """Remember in whose shape errors of this request are to be answered."""
    setattr(request, _SHAPE, shape)


def shape_of_errors(request: http.Request | None) -> Shape:
    """Return in whose shape errors of a request are answered."""
    shape: Shape = getattr(request, _SHAPE, Shape.OPENAI)
    return shape


def mark_way(request: http.Request, way: RequestDestination) -> None:
    """Let a request's connection be made this way."""
    setattr(request, _WAY, way)


def forget_way(request: http.Request) -> None:
    """Let go of a request's way once it is over."""
    setattr(request, _WAY, None)


def way_of(request: http.Request) -> RequestDestination | None:
    """Return the request's own destination, if it has one."""
    way: RequestDestination | None = getattr(request, _WAY, None)
    return way


def keep_expectation(request: http.Request) -> None:
    """Keep the headers of a request that waits for ``100``: mitmproxy takes ``Expect`` out."""
    setattr(request, _EXPECTED, request.headers.fields)


def give_expectation_back(request: http.Request) -> None:
    """Put kept headers back, order and all: the upstream decides about ``100``."""
    fields: RawFields | None = getattr(request, _EXPECTED, None)
    if fields is not None:
        request.headers.fields = fields


def forget_expectation(request: http.Request) -> None:
    """Drop kept headers: the request has others now, ``Expect`` among them."""
    setattr(request, _EXPECTED, None)


DRAINED_BYTES = 64 * 1024 * 1024
"""Of a refused request's body so much is read on: who is cut off while sending may miss the answer."""


class RoutedStream(HttpStream):
    """A call that is answered at its head if it is refused. Else it may go to another upstream when the first
    cannot be reached. A stream of events ends with the key of its client."""

    _drained = _received = 0

    def start_request_stream(self) -> Commands:
        """Send the request on as it comes; one that has its answer already gets it at once."""
        if self.flow.response is None:
            yield from super().start_request_stream()
        else:
            self.client_state = self.drain_request_body
            yield from self.send_response()

    def drain_request_body(self, event: Any) -> Commands:
        """Read on and keep nothing; who does not come to an end is cut off."""
        if isinstance(event, RequestEndOfMessage):
            self.client_state = self.server_state = self.state_done
            yield from self.flow_done()
        elif isinstance(event, RequestData):
            before, self._drained = self._drained, self._drained + len(event.data)
            if before <= DRAINED_BYTES < self._drained:
                yield commands.CloseConnection(self.context.client)

    def state_stream_request_body(self, event: Any) -> Commands:
        """Send a body on as it comes, unless it is too long."""
        if self._is_too_long(event):
            text, code = "The body is too long.", ErrorCode.REQUEST_TOO_LARGE
            yield SendHttp(
                RequestProtocolError(self.stream_id, text, code=code), self.context.server
            )
            yield from self._refuse_body()
        else:
            yield from super().state_stream_request_body(event)

    def state_consume_request_body(self, event: Any) -> Commands:
        """Read a body whole, unless it is too long."""
        if self._is_too_long(event):
            yield from self._refuse_body()
        else:
            yield from super().state_consume_request_body(event)

    def _is_too_long(self, event: Any) -> bool:
        if not isinstance(event, RequestData):
            return False
        self._received += len(event.data)
        way = way_of(self.flow.request)
        return way is not None and self._received > way.body_bytes

    def _refuse_body(self) -> Commands:
        """Answer in the middle of a body; one whose answer has begun is cut off."""
        way = way_of(self.flow.request)
        if way is None or self.flow.response is not None:
            self.client_state = self.drain_request_body
            yield commands.CloseConnection(self.context.client)
            return
        way.refuse_body()
        self.client_state = self.drain_request_body
        yield from self.send_response()

    def state_wait_for_response_headers(self, event: Any) -> Commands:
        """Take the head of a response, but not of another protocol: nobody could read what passes in it."""
        if isinstance(event, ResponseHeaders) and self._is_unread(event.response):
            text, code = "The upstream changes to a protocol that nobody reads.", _NO_ANSWER
            stop = RequestProtocolError(self.stream_id, text, code=code)
            yield SendHttp(stop, self.context.server)
            cut = ResponseProtocolError(self.stream_id, text, code=code)
            yield from self.handle_protocol_error(cut)
        else:
            yield from super().state_wait_for_response_headers(event)

    def _is_unread(self, response: http.Response) -> bool:
        """Tell whether a response begins anything but a WebSocket, as stock code knows one."""
        asked = self.flow.request.headers.get("sec-websocket-version")
        is_websocket = response.headers.get("upgrade", "").lower() == "websocket" and asked == "13"
        return response.status_code == _SWITCHES and not is_websocket

    def state_stream_response_body(self, event: Any) -> Commands:
        """Pass a response on as it comes, until its client may hear no more."""
        way = way_of(self.flow.request)
        if isinstance(event, ResponseData) and way is not None and way.ended():
            text, code = "The client's key has ended.", ErrorCode.KILL
            stop = RequestProtocolError(self.stream_id, text, code=code)
            yield SendHttp(stop, self.context.server)
            cut = ResponseProtocolError(self.stream_id, text, code=code)
            yield from self.handle_protocol_error(cut)
        else:
            yield from super().state_stream_response_body(event)

    def make_server_connection(self) -> Generator[commands.Command, Any, bool]:
        """Connect; nothing has been sent before this is done, so another upstream may be tried."""
        way = way_of(self.flow.request)
        while True:
            wanted = self._wanted()
            connection, error = yield wanted
            if not error:
                break
            if way is None or not way.another():
                text = ResponseProtocolError(self.stream_id, error, ErrorCode.CONNECT_FAILED)
                yield from self.handle_protocol_error(text)
                return False
            self._forget_failures(wanted)
        self.context.server = self.flow.server_conn = connection
        if way is not None:
            way.connected()
        return True

    def _wanted(self) -> GetHttpConnection:
        request, server = self.flow.request, self.flow.server_conn
        return GetHttpConnection(
            (request.host, request.port),
            request.scheme == "https",
            server.via,
            server.transport_protocol,
        )

    def _forget_failures(self, wanted: GetHttpConnection) -> None:
        """Let later calls of this client connect there again: mitmproxy remembers failures."""
        layer = self.context.layers[self.context.layers.index(self) - 1]
        known: list[Connection] = []
        if isinstance(layer, http_layer.HttpLayer):
            known += layer.connections
        for connection in known:
            if wanted.connection_spec_matches(connection):
                connection.error = None
