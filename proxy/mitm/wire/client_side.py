"""The client's side of a call: its requests are read, answers and errors are sent."""

from collections.abc import Callable
from typing import Any

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    HttpEvent,
    RequestProtocolError,
    RequestTrailers,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)

from proxy.heads import MOST_HEAD_BYTES
from proxy.mitm.wire.bodies import Commands, TrailerConnection
from proxy.mitm.wire.marks import keep_expectation, shape_of_errors
from proxy.mitm.wire.refusing import raw_answer
from proxy.responses import Reason, Shape, answer

MOST_UNREAD_BYTES = 1024 * 1024
"""Of requests that a client sends ahead of the answer."""
_CONTINUE = 100


def _head_is_too_long(data: bytearray) -> bool:
    return len(data) > MOST_HEAD_BYTES and not any(
        data.find(end, 0, MOST_HEAD_BYTES) >= 0 for end in (b"\n\r\n", b"\n\n")
    )


def _reason(code: ErrorCode) -> Reason:
    if code in (ErrorCode.REQUEST_VALIDATION_FAILED, ErrorCode.DESTINATION_UNKNOWN):
        return Reason.BAD_REQUEST
    return Reason.UNREACHABLE


class ShapedServer(TrailerConnection, _http1.Http1Server):
    """Answers errors in the shape of the client's provider, and passes trailers on."""

    ReceiveTrailers = RequestTrailers

    def send(self, event: HttpEvent) -> Commands:
        """Send an event; what stock code does not do well is done here."""
        own = _OWN.get(type(event))
        yield from (super().send(event) if own is None else own(self, event))

    def send_head(self, event: ResponseHeaders) -> Commands:
        """Send a head; of a request that streams ``100`` is left to its upstream."""
        if event.response.status_code != _CONTINUE:
            yield from super().send(event)
        elif self.request is not None and self.request.stream:
            keep_expectation(self.request)
        else:
            yield from super().send(event)
            self.response = None

    def keep_trailers(self, event: ResponseTrailers) -> Commands:
        """Keep trailers for the body's end."""
        self.unsent = event.trailers
        yield from ()

    def send_end(self, event: ResponseEndOfMessage) -> Commands:
        """End a body, with its trailers."""
        last = self.last_chunk(self.response) if self.response is not None else None
        if last is None:
            yield from super().send(event)
        else:
            yield last
            yield from self.mark_done(response=True)

    def send_error(self, event: ResponseProtocolError) -> Commands:
        """Make an answer of a protocol error, where none has begun."""
        if not self.conn.state & ConnectionState.CAN_WRITE:
            return
        status = event.code.http_status_code()
        if not self.response and status is not None:
            shape = shape_of_errors(self.request)
            reply = answer(_reason(event.code), shape, status=status)
            yield commands.SendData(self.conn, raw_answer(reply))
        yield commands.CloseConnection(self.conn)

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        """Read a request's head behind any empty lines; one that is too long is refused."""
        while self.buf._data[:1] == b"\n" or self.buf._data[:2] == b"\r\n":
            self.buf.maybe_extract_lines()
        if not _head_is_too_long(self.buf._data):
            yield from super().read_headers(event)
            return
        reply = answer(Reason.HEAD_TOO_LARGE, Shape.OPENAI)
        yield commands.SendData(self.conn, raw_answer(reply))
        yield commands.CloseConnection(self.conn)
        self.state = self.done

    def wait(self, event: events.Event) -> Commands:
        """Wait for the answer's end; a client that sends too far ahead is cut off."""
        if not isinstance(event, events.DataReceived):
            yield from super().wait(event)
        elif len(self.buf) > MOST_UNREAD_BYTES:
            yield from self._give_up()

    def _give_up(self) -> Commands:
        yield commands.CloseConnection(self.conn)
        self.state = self.done
        text = "Client sends too far ahead."
        error = RequestProtocolError(self.stream_id, text, code=ErrorCode.CLIENT_DISCONNECTED)
        yield ReceiveHttp(error)


_OWN: dict[type[HttpEvent], Callable[[ShapedServer, Any], Commands]] = {
    ResponseHeaders: ShapedServer.send_head,
    ResponseTrailers: ShapedServer.keep_trailers,
    ResponseEndOfMessage: ShapedServer.send_end,
    ResponseProtocolError: ShapedServer.send_error,
}
