"""One client's connection to the plain listener: its bytes, its requests one by one, back-pressure.

A connection carries one call after the other; what a client sends ahead waits. Bytes for a client
are held until the spool knows what they belong to, as the mitmproxy listener holds them.
"""

import asyncio
import re
import socket
import ssl
import struct
from typing import Any, Protocol

from proxy.plain import messages
from proxy.plain.call import CallGround, ClientCall
from proxy.plain.known_head import KnownHead
from proxy.plain.messages import HeadTooLongError, MalformedMessageError, RequestHead
from proxy.plain.upstreams import set_limits
from proxy.recording.recorder import Recorder
from proxy.responses import Reason, answer
from trajectory.dialects.errors import Shape

HEAD_SECONDS = 10.0
"""How long a request's head may take from its first byte."""
STRANGER_SECONDS = 30.0
"""How long a connection stays open on which no request has been let in."""
_NO_END = struct.pack("ii", 1, 0)
"""A connection that lingers for no time is reset."""
_AHEAD_BYTES = 64 * 1024
"""Of requests that a client sends ahead of its answer; it is read from again when it has that."""

_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
"""Clients of old send some behind a body."""
_TLS_GREETING = b"\x16"
"""First byte of a client's greeting: its connection speaks TLS, which mitmproxy opens."""


class Ground(CallGround, Protocol):
    """What all connections of one listener share."""

    recorder: Recorder | None
    connections: "set[ClientConnection]"
    draining: bool
    secure: ssl.SSLContext | None

    def hand_over(self, connection: "ClientConnection", data: bytes) -> None:
        """Let the mitmproxy listener go on with a connection."""


class ClientConnection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_buffer",
        "_closing",
        "_due",
        "_held",
        "_known",
        "_paused",
        "born",
        "call",
        "ground",
        "is_full",
        "known",
        "name",
        "since",
        "transport",
    )

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.transport: Any = None
        self.call: ClientCall | None = None
        self.known = False
        """A request of it was let in."""
        self.is_full = False
        """It takes no more bytes now: so no further request is begun."""
        self.born = self.since = ground.now()
        """When something happened on it last; while a head comes, when that began."""
        self.name = b"%x" % id(self)
        self._buffer = b""
        self._held: list[bytes] = []
        """For the client, until the spool knows of what they belong to."""
        self._known: KnownHead | None = None
        """What is remembered of the last head."""
        self._closing = False
        self._due = False
        """The next request is begun in the loop's next turn."""
        self._paused = False

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = transport
        set_limits(transport)
        self.ground.connections.add(self)
        opened = transport.get_extra_info("ssl_object") if self.ground.secure else None
        if opened is not None and opened.selected_alpn_protocol() == "h2":
            self._hand_over(b"")

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client is gone."""
        self.ground.connections.discard(self)
        call, self.call = self.call, None
        if call is not None:
            call.client_lost()

    def eof_received(self) -> bool:
        """Close when the client does: nothing that we know of reads on then."""
        return False

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        if self._closing:
            return
        call = self.call
        if call is not None and not call.is_read:
            self.since = self.ground.now()
            call.request_data(data)
            return
        if not self._buffer:
            self.since = self.ground.now()
            self._buffer = data
        else:
            self._buffer += data
        if call is None and not (self._due or self.is_full):
            self._next()
        elif len(self._buffer) > _AHEAD_BYTES:
            self.pause(paused=True)

    def pause_writing(self) -> None:
        """The client reads slowly: so does what is read for it."""
        self.is_full = True
        if self.call is not None:
            self.call.client_full(full=True)

    def resume_writing(self) -> None:
        """The client reads again."""
        self.is_full = False
        if self.call is not None:
            self.call.client_full(full=False)
        else:
            self._go_on()

    # Requests.

    def _next(self) -> None:
        """Begin the next request, once its head is whole.

        One in each turn of the loop: who sends thousands ahead must not keep the others waiting.
        """
        self._due = False
        if self.call is not None or self._closing or self.is_full:
            return
        data, known = self._buffer, self._known
        if known is not None and (again := known.again(data)) is not None:
            self._begin(again[0], known, data[again[1] :])
            return
        if data.startswith(_TLS_GREETING) and self.ground.secure is None:
            self._hand_over(data)
            return
        if found := _EMPTY_LINES.match(data):
            self._buffer = data = data[found.end() :]
        try:
            end = messages.end_of_head(data)
            if end < 0:
                return
            head = RequestHead(data[:end])
        except HeadTooLongError:
            self._refuse(Reason.HEAD_TOO_LARGE)
            return
        except MalformedMessageError:
            self._refuse(Reason.BAD_REQUEST)
            return
        if head.upgrade and b"websocket" in head.upgrade:
            self._hand_over(data)
            return
        self._known = KnownHead.of(data[:end], head)
        self._begin(head, self._known, data[end:])

    def _begin(self, head: RequestHead, known: KnownHead | None, rest: bytes) -> None:
        """Begin a request with what has come behind its head."""
        self._buffer = b""
        self.call = call = ClientCall(self.ground, self, head, known)
        call.begin(rest)

    def _hand_over(self, data: bytes) -> None:
        """Let the mitmproxy listener go on."""
        self._buffer = b""
        self.ground.connections.discard(self)
        self.ground.hand_over(self, data)

    def _refuse(self, reason: Reason) -> None:
        """Answer what is no request; nothing that follows it is read."""
        self.send(messages.write_reply(answer(reason, Shape.OPENAI), close=True))
        self.close()

    def end_call(self, excess: bytes, *, keep: bool) -> None:
        """The call is over; go on with what came behind it."""
        self.call = None
        if not keep or self.ground.draining:
            self.since = self.ground.now()
            self.close()
            return
        if excess:
            self._buffer = excess + self._buffer
        self._go_on()

    def _go_on(self) -> None:
        """Read on, and begin the request that may have come meanwhile."""
        self.since = self.ground.now()
        self.pause(paused=False)
        if self._buffer and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def is_overdue(self, now: float, idle_seconds: float) -> bool:
        """Tell whether its time is over: to say who it is, to end a head, or to say anything."""
        late = now - self.since > HEAD_SECONDS
        if late and self.call is None and self._buffer and not self.is_full:
            return True
        if not self.known and now - self.born > STRANGER_SECONDS:
            return True
        return now - self.since > idle_seconds

    # To the client.

    def send(self, data: bytes) -> None:
        """Send bytes, once the spool knows what they belong to."""
        recorder = self.ground.recorder
        if recorder is not None and recorder.waiting:
            if not self._held:
                recorder.hold(self._release)
            self._held.append(data)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _release(self) -> None:
        parts, self._held = self._held, []
        if parts and not self.transport.is_closing():
            self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def pause(self, *, paused: bool) -> None:
        """Read no more from the client for now, or again, if it has not sent too much ahead."""
        paused = paused or len(self._buffer) > _AHEAD_BYTES
        if paused is not self._paused and not self.transport.is_closing():
            self._paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def close(self) -> None:
        """Close once all has been written."""
        self._closing = True
        if self._held and self.ground.recorder is not None:
            self.ground.recorder.settle()
        self.transport.close()

    def reset(self) -> None:
        """Close once all has been written, as a connection that broke and not as one that ended."""
        opened = self.transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_END)
        self.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self.transport.abort()
