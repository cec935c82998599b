"""HTTP/1 on both sides of a call: heads are read strictly, bodies and trailers passed, errors answered."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.http import Request
from mitmproxy.net.http import http1, status_codes
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    HttpEvent,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    RequestTrailers,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)

from proxy.heads import HOP_BY_HOP, MOST_HEAD_BYTES
from proxy.mitm.wire.stream import (
    Commands,
    give_expectation_back,
    keep_expectation,
    shape_of_errors,
)
from proxy.responses import LocalReply, Reason, answer
from trajectory.dialects.errors import Shape

IDLE = "headrace_idle"
"""Attribute of an upstream's connection: its last call is complete on both sides."""
MOST_LINE_BYTES = 64 * 1024
"""Of the line before a chunk, with its extensions, and of all trailers; h11 waits for their ends."""


class TrailerReader(ChunkedReader):
    """Reads chunked bodies and keeps their trailers for the forwarder."""

    trailers: http.Headers | None = None

    def __call__(self, buf: Any) -> Any:
        """Return the next event; the end carries no trailers, stock code cannot take them."""
        event = super().__call__(buf)
        if event is None and len(buf) > MOST_LINE_BYTES:
            raise h11.RemoteProtocolError("a line between chunks does not end")
        if not isinstance(event, h11.EndOfMessage):
            return event
        if event.headers:
            self.trailers = http.Headers(event.headers.raw_items())
        return h11.EndOfMessage()


class TrailerConnection(_http1.Http1Connection):
    """A connection whose bodies may have trailers."""

    ReceiveTrailers: type[RequestTrailers | ResponseTrailers]
    unsent: http.Headers | None = None
    """Trailers that go out at the end of the body."""

    def read_body(self, event: events.Event) -> Commands:
        """Read a body; its trailers are received just before its end."""
        for command in super().read_body(event):
            if isinstance(command, ReceiveHttp) and type(command.event) is self.ReceiveEndOfMessage:
                trailers = getattr(self.body_reader, "trailers", None)
                if trailers is not None:
                    self.body_reader.trailers = None  # type: ignore[union-attr]
                    yield ReceiveHttp(self.ReceiveTrailers(command.event.stream_id, trailers))
            yield command

    def last_chunk(self, message: http.Message) -> commands.SendData | None:
        """Return the last chunk with the trailers that wait; None where there are none to send."""
        trailers, self.unsent = self.unsent, None
        if (
            trailers is None
            or "chunked" not in message.headers.get("transfer-encoding", "").lower()
        ):
            return None
        return commands.SendData(self.conn, b"0\r\n" + bytes(trailers) + b"\r\n")


_FIRST_LINE = re.compile(rb'[!-~]+ [!"$-~\x80-\xff]+ HTTP/1\.[01]')
"""Without a fragment in the target: some servers leave it out, and read another path."""
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""NUL, lone returns and their like: stock code strips some of them before it looks at a value."""
_read_request_head = http1.read_request_head
_read_response_head = http1.read_response_head


def raw_answer(reply: LocalReply) -> bytes:
    """Return an answer as bytes that end the connection."""
    reason = status_codes.RESPONSES.get(reply.status, "")
    lines = [f"HTTP/1.1 {reply.status} {reason}".encode()]
    lines += [name + b": " + value for name, value in reply.headers]
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + reply.body


def own_words(status: int, _quoting_the_client: str = "") -> bytes:
    """Return what a client is told whose head cannot be read; stock code makes HTML of it."""
    return raw_answer(answer(Reason.BAD_REQUEST, Shape.OPENAI, status=status))


def read_request_head(lines: Sequence[bytes]) -> Request:
    """Read a head as stock code does, once it is sure that the next reader finds the same in it.

    Raises:
        ValueError: it is not sound.
    """
    first, *fields = lines
    if not _FIRST_LINE.fullmatch(first):
        raise ValueError("no request line of HTTP/1")
    for line in fields:
        if line[:1] in (b" ", b"\t") or _CONTROL.search(line):
            raise ValueError("folded line or control character in a header")
    request = _read_request_head(list(lines))
    for name, value in request.headers.fields:
        if name.lower() == b"transfer-encoding" and value.lower() != b"chunked":
            raise ValueError("transfer encoding other than chunked")
    return request


def read_response_head(lines: Sequence[bytes]) -> http.Response:
    """Read a head as stock code does, and refuse a status that clients cannot read.

    Raises:
        ValueError: it is below 100, or its reason holds control characters.
    """
    response = _read_response_head(list(lines))
    if response.status_code < _CONTINUE or _CONTROL.search(lines[0]):
        raise ValueError("no status of HTTP/1")
    return response


MOST_UNREAD_BYTES = 1024 * 1024
"""Of requests that a client sends ahead of the answer."""
_CONTINUE = 100


def _head_is_too_long(data: bytearray) -> bool:
    return len(data) > MOST_HEAD_BYTES and not any(
        data.find(end, 0, MOST_HEAD_BYTES) >= 0 for end in (b"\n\r\n", b"\n\n")
    )


def reason_of(code: ErrorCode) -> Reason:
    """Return why a call that broke off is answered."""
    if code in (ErrorCode.REQUEST_VALIDATION_FAILED, ErrorCode.DESTINATION_UNKNOWN):
        return Reason.BAD_REQUEST
    return Reason.UNREACHABLE


class ShapedServer(TrailerConnection, _http1.Http1Server):
    """Answers errors in the shape of the client's provider, and passes trailers on."""

    ReceiveTrailers = RequestTrailers

    def send(self, event: HttpEvent) -> Commands:
        """Send an event; what stock code does not do well is done here."""
        own = _ANSWERED.get(type(event))
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
        """Keep trailers for the body's end, but those that speak of framing."""
        fields = [field for field in event.trailers.fields if field[0].lower() not in HOP_BY_HOP]
        self.unsent = http.Headers(fields)
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
            reply = answer(reason_of(event.code), shape, status=status)
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


_ANSWERED: dict[type[HttpEvent], Callable[[ShapedServer, Any], Commands]] = {
    ResponseHeaders: ShapedServer.send_head,
    ResponseTrailers: ShapedServer.keep_trailers,
    ResponseEndOfMessage: ShapedServer.send_end,
    ResponseProtocolError: ShapedServer.send_error,
}


class PatientClient(TrailerConnection, _http1.Http1Client):
    """Informational responses go to the client as they come, the final one is waited for."""

    ReceiveTrailers = ResponseTrailers

    def send(self, event: HttpEvent) -> Commands:
        """Send an event; what stock code does not do well is done here."""
        own = _ASKED.get(type(event))
        yield from (super().send(event) if own is None else own(self, event))

    def send_head(self, event: RequestHeaders) -> Commands:
        """Send a request's head, with the ``Expect`` that its client sent."""
        give_expectation_back(event.request)
        yield from super().send(event)

    def keep_trailers(self, event: RequestTrailers) -> Commands:
        """Keep trailers for the body's end."""
        self.unsent = event.trailers
        yield from ()

    def send_end(self, event: RequestEndOfMessage) -> Commands:
        """End a body, with its trailers."""
        last = self.last_chunk(self.request) if self.request is not None else None
        if last is None:
            yield from super().send(event)
        else:
            yield last
            yield from self.mark_done(request=True)

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        """Read a response's head, after any 1xx heads but 101; one that is too long is none."""
        if isinstance(event, events.DataReceived) and self.request is not None:
            while self._informational():
                lines = self.buf.maybe_extract_lines()
                if lines is None:
                    return
                if self.request.http_version == "HTTP/1.1" and self.context.client.alpn != b"h2":
                    head = b"".join(bytes(line) + b"\r\n" for line in lines)
                    yield commands.SendData(self.context.client, head + b"\r\n")
        if _head_is_too_long(self.buf._data) and self.stream_id is not None:
            yield commands.CloseConnection(self.conn)
            self.state = self.done
            text, code = "a response's head is too long", ErrorCode.GENERIC_SERVER_ERROR
            yield ReceiveHttp(ResponseProtocolError(self.stream_id, text, code))
            return
        yield from super().read_headers(event)

    def mark_done(self, *, request: bool = False, response: bool = False) -> Commands:
        """Note that one side is complete; after both another call may use the connection."""
        yield from super().mark_done(request=request, response=response)
        if self.request is None:
            setattr(self.conn, IDLE, True)

    def _informational(self) -> bool:
        start = bytes(self.buf._data[:12])
        return start.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")) and start[9:12] != b"101"


_ASKED: dict[type[HttpEvent], Callable[[PatientClient, Any], Commands]] = {
    RequestHeaders: PatientClient.send_head,
    RequestTrailers: PatientClient.keep_trailers,
    RequestEndOfMessage: PatientClient.send_end,
}
