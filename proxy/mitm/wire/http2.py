"""HTTP/2 of clients: each stream becomes a request as HTTP/1.1 would have brought it.

A head is looked through as strictly as one of HTTP/1 before anything is made of it, because an upstream
gets it as HTTP/1.1. A client that reads one stream slowly slows the upstream of that stream alone.
"""

import asyncio
from collections.abc import Generator
from typing import Any, cast

import h2.errors
import h2.events
from mitmproxy import http
from mitmproxy.connection import Server
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import http as http_layer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestHeaders,
    ResponseEndOfMessage,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http2 import Http2Server

from proxy.mitm.fastpath.handler import ROOM
from proxy.mitm.wire.http1 import IDLE, read_request_head, reason_of
from proxy.mitm.wire.stream import Commands, shape_of_errors
from proxy.responses import LocalReply, Reason, answer
from trajectory.dialects.errors import Shape

MOST_UNSENT_BYTES = 256 * 1024
"""Of one stream, for a client that gives no room: its upstream is not read from until half is gone."""
MOST_RESETS = 1000
"""Streams of one connection that a client may break off: more is an attack, not a user's Stop."""

_LEFT = "headrace_left"


def client_left(request: http.Request) -> bool:
    """Tell whether the client broke this call off, while its connection goes on."""
    return getattr(request, _LEFT, False)


def make_http1(request: http.Request, *, has_body: bool) -> None:
    """Give a request of HTTP/2 the head that it has in HTTP/1.1.

    Raises:
        ValueError: another reader might find something else in that head.
    """
    fields, authority = request.headers.fields, request.data.authority
    hosts = [value for name, value in fields if name == b"host"]
    if len({*hosts, *filter(None, [authority])}) != 1 or len(hosts) > 1:
        raise ValueError("no host, or several")
    cookies = [value for name, value in fields if name == b"cookie"]
    made = [(b"host", authority or hosts[0])]
    made += [field for field in fields if field[0] not in (b"host", b"cookie")]
    if cookies:
        made.append((b"cookie", b"; ".join(cookies)))
    if has_body and not any(name == b"content-length" for name, _ in made):
        made.append((b"transfer-encoding", b"chunked"))
    if not request.data.path.startswith(b"/") or request.data.method == b"CONNECT":
        raise ValueError("no path of this gateway")
    first = b"%s %s HTTP/1.1" % (request.data.method, request.data.path)
    read_request_head([first, *(name + b": " + value for name, value in made)])
    request.headers.fields = tuple(made)
    request.data.authority, request.data.http_version = b"", b"HTTP/1.1"


_get_connection = http_layer.HttpLayer.get_connection


def get_connection(
    layer: http_layer.HttpLayer, wanted: http_layer.GetHttpConnection, *, reuse: bool = True
) -> Commands:
    """Connect a call; streams of HTTP/2 share connections upstream, one call after the other.

    Stock code opens one for each stream: a second call must not wait for the end of the first.
    """
    if layer.context.client.alpn != b"h2":
        yield from _get_connection(layer, wanted, reuse=reuse)
        return
    for connection in layer.connections:
        idle = connection.connected and getattr(connection, IDLE, False)
        if idle and wanted.connection_spec_matches(connection):
            setattr(connection, IDLE, False)
            stream = layer.command_sources.pop(wanted)
            found = http_layer.GetHttpConnectionCompleted(wanted, (connection, None))
            yield from layer.event_to_child(stream, found)
            return
    yield from _get_connection(layer, wanted, reuse=False)


class StrictStreams(Http2Server):
    """A client's connection of HTTP/2."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._requests: dict[int, http.Request] = {}
        """Of the streams that have no whole answer yet."""
        self._full: dict[int, Server] = {}
        """Streams whose upstream waits for room."""
        self._resets = 0

    def _handle_event(self, event: Any) -> Commands:
        if isinstance(event, ResponseProtocolError):
            yield from self._fail(event)
        else:
            yield from super()._handle_event(event)
        if isinstance(event, ResponseEndOfMessage | ResponseProtocolError):
            self._requests.pop(event.stream_id, None)
        self._balance()

    def _fail(self, event: ResponseProtocolError) -> Commands:
        """Answer an error, in the shape of the client's provider, where no answer has begun."""
        stream, status = event.stream_id, event.code.http_status_code()
        begun = self.is_closed(stream) or (
            self.h2_conn.streams[stream].state_machine.headers_sent or status is None
        )
        if begun or not self.is_open_for_us(stream):
            yield from super()._handle_event(event)
        else:
            shape = shape_of_errors(self._requests.get(stream))
            yield from self._answer(stream, answer(reason_of(event.code), shape, status=status))

    def _answer(self, stream: int, reply: LocalReply) -> Commands:
        self.h2_conn.send_headers(stream, [(b":status", b"%d" % reply.status), *reply.headers])
        self.h2_conn.send_data(stream, reply.body, end_stream=True)
        yield commands.SendData(self.conn, self.h2_conn.data_to_send())

    def handle_h2_event(self, event: Any) -> Generator[commands.Command, Any, bool]:
        """Take what a client did; the result tells whether its connection is over."""
        if isinstance(event, h2.events.StreamReset):
            self._resets += 1
            if self._resets > MOST_RESETS:
                yield from self.protocol_error(
                    "too many streams were broken off", h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
                )
                return True
            request = self._requests.pop(event.stream_id or 0, None)
            if request is not None:
                setattr(request, _LEFT, True)
        received = super().handle_h2_event(event)
        while True:
            try:
                command = next(received)
            except StopIteration as end:
                return bool(end.value)
            if isinstance(command, ReceiveHttp) and isinstance(command.event, RequestHeaders):
                yield from self._begin(command, command.event)
            else:
                yield command

    def _begin(self, command: ReceiveHttp, head: RequestHeaders) -> Commands:
        try:
            make_http1(head.request, has_body=not head.end_stream)
        except ValueError:
            del self.streams[head.stream_id]
            yield from self._answer(head.stream_id, answer(Reason.BAD_REQUEST, Shape.OPENAI))
        else:
            self._requests[head.stream_id] = head.request
            yield command

    def _balance(self) -> None:
        """Stop reading for streams that have too much to send, and go on with those that have not."""
        buffers = self.h2_conn.stream_buffers
        for stream in {*buffers, *self._full} if buffers or self._full else ():
            unsent = sum(len(part.data) for part in buffers.get(stream, ()))
            if unsent > MOST_UNSENT_BYTES and stream not in self._full:
                server = self._server(stream)
                if server is not None:
                    self._full[stream] = server
                    setattr(server, ROOM, asyncio.Event())
            elif unsent <= MOST_UNSENT_BYTES // 2 and stream in self._full:
                getattr(self._full.pop(stream), ROOM).set()

    def _server(self, stream: int) -> Server | None:
        """Return the upstream connection of a stream."""
        layer = cast(http_layer.HttpLayer, self.context.layers[-2])
        found = layer.streams.get(stream)
        return None if found is None else found.context.server
