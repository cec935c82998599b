"""Bodies and their trailers: both sides of a call read and send them alike."""

from collections.abc import Generator
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestTrailers, ResponseTrailers

type Commands = Generator[commands.Command, Any, None]


MOST_LINE_BYTES = 64 * 1024
"""Of the line before a chunk, with its extensions, and of all trailers; h11 waits for their ends."""


class TrailerReader(ChunkedReader):
    """Reads chunked bodies; trailers are kept aside for whoever passes the body on."""

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
