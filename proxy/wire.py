"""Corrections to mitmproxy's HTTP/1 layer: its own error answers, 1xx responses, trailers.

Stock 12.2 answers its own errors as HTML that may quote bytes of the upstream, takes an
informational response for the final one, and hangs on chunked trailers. All corrections are
subclasses that :func:`install` puts in the place of the originals, once per process.
"""

from collections.abc import Generator
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http import status_codes
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers import http as http_layer
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._events import ErrorCode, HttpEvent, ResponseProtocolError

from proxy.answers import Answer, Reason, Shape, answer

type Commands = Generator[commands.Command, Any, None]

_SHAPE = "headrace_shape"


def mark_shape(request: http.Request, shape: Shape) -> None:
    """Remember in whose shape errors of this request are to be answered."""
    setattr(request, _SHAPE, shape)


def raw_answer(reply: Answer) -> bytes:
    """Return an answer as bytes that end the connection."""
    reason = status_codes.RESPONSES.get(reply.status, "")
    lines = [f"HTTP/1.1 {reply.status} {reason}".encode()]
    lines += [name + b": " + value for name, value in reply.headers]
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + reply.body


def _reason(code: ErrorCode) -> Reason:
    if code in (ErrorCode.REQUEST_VALIDATION_FAILED, ErrorCode.DESTINATION_UNKNOWN):
        return Reason.BAD_REQUEST
    return Reason.UNREACHABLE


class ShapedServer(_http1.Http1Server):
    """The client's side: errors are answered in the shape of the client's provider."""

    def send(self, event: HttpEvent) -> Commands:
        """Send an event; protocol errors become answers of ours."""
        if not isinstance(event, ResponseProtocolError):
            yield from super().send(event)
            return
        if not self.conn.state & ConnectionState.CAN_WRITE:
            return
        status = event.code.http_status_code()
        if not self.response and status is not None:
            shape = getattr(self.request, _SHAPE, Shape.OPENAI)
            reply = answer(_reason(event.code), shape, status=status)
            yield commands.SendData(self.conn, raw_answer(reply))
        yield commands.CloseConnection(self.conn)


class PatientClient(_http1.Http1Client):
    """The upstream's side: informational responses go to the client, the final one is waited for.

    ``100 Continue`` is left out: the client has had one from the gateway, or wants none.
    """

    def read_headers(self, event: events.ConnectionEvent) -> Commands:
        """Read a response's head, after any 1xx heads but 101."""
        if isinstance(event, events.DataReceived) and self.request is not None:
            while (status := self._informational()) is not None:
                lines = self.buf.maybe_extract_lines()
                if lines is None:
                    return
                if status != b"100" and self.request.http_version == "HTTP/1.1":
                    head = b"".join(bytes(line) + b"\r\n" for line in lines)
                    yield commands.SendData(self.context.client, head + b"\r\n")
        yield from super().read_headers(event)

    def _informational(self) -> bytes | None:
        start = bytes(self.buf._data[:12])
        if not start.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")) or start[9:12] == b"101":
            return None
        return start[9:12]


class QuietChunkedReader(ChunkedReader):
    """Reads chunked bodies; trailers are read and left out."""

    def __call__(self, buf: Any) -> Any:
        """Return the next event; the end never carries trailers."""
        event = super().__call__(buf)
        if isinstance(event, h11.EndOfMessage):
            return h11.EndOfMessage()
        return event


def install() -> None:
    """Put the corrections in place; calling it again changes nothing."""
    for module, name, value in (
        (http_layer, "Http1Server", ShapedServer),
        (http_layer, "Http1Client", PatientClient),
        (_http1, "ChunkedReader", QuietChunkedReader),
    ):
        setattr(module, name, value)
