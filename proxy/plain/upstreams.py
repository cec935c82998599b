"""Connections to upstreams: each worker keeps the idle ones of all its clients."""

import asyncio
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import certifi

from proxy.routes.name_lookups import opened_socket
from proxy.routes.router import Reachability, Router

type Origin = tuple[bytes, str, int]
"""Scheme, host and port."""

MOST_IDLE = 256
"""Idle connections that are kept for one upstream."""
IDLE_SECONDS = 60.0
"""How long a connection is kept idle."""
OLDEST_SECONDS = 600.0
"""A connection of this age takes no new call: names may lead elsewhere by now."""
_HIGH_WATER = 256 * 1024


class Caller(Protocol):
    """Who waits for a response."""

    def response_data(self, data: bytes) -> None:
        """Take bytes of the response."""

    def upstream_lost(self, *, broken: bool) -> None:
        """The connection is gone; ``broken`` unless the upstream closed it in order."""

    def upstream_full(self, *, full: bool) -> None:
        """The connection takes no more bytes now, or does again."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream; it serves one call after the other."""

    __slots__ = ("_pool", "born", "caller", "idle_since", "origin", "transport")

    def __init__(self, pool: "UpstreamPool", origin: Origin) -> None:
        self._pool = pool
        self.origin = origin
        self.born = self.idle_since = 0.0
        self.caller: Caller | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; what one side sends soon must not wait for more."""
        self.transport = transport
        set_limits(transport)

    def data_received(self, data: bytes) -> None:
        """Hand a response on; whoever speaks unasked is left."""
        if self.caller is None:
            self.close()
        else:
            self.caller.response_data(data)

    def eof_received(self) -> bool:
        """Close when the upstream does."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        self._pool.forget(self)
        caller, self.caller = self.caller, None
        if caller is not None:
            caller.upstream_lost(broken=exc is not None)

    def pause_writing(self) -> None:
        """The upstream reads slowly."""
        if self.caller is not None:
            self.caller.upstream_full(full=True)

    def resume_writing(self) -> None:
        """The upstream reads again."""
        if self.caller is not None:
            self.caller.upstream_full(full=False)

    def close(self) -> None:
        """Close; nobody is told."""
        self.caller = None
        self._pool.forget(self)
        if self.transport is not None:
            self.transport.abort()

    def release(self) -> None:
        """Keep the connection for the next call."""
        self.caller = None
        self._pool.keep(self)


def set_limits(transport: Any) -> None:
    """Bound what waits to be written, and let small writes go at once."""
    transport.set_write_buffer_limits(high=_HIGH_WATER)
    opened = transport.get_extra_info("socket")
    if opened is not None and opened.family != socket.AF_UNIX:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class UpstreamPool:
    """Opens connections to upstreams and keeps the idle ones."""

    def __init__(self, router: Router, reachability: Reachability, roots: Path | None) -> None:
        self._router = router
        self._reachability = reachability
        self._roots = roots
        self._context: ResumingContext | None = None
        self._idle: defaultdict[Origin, deque[UpstreamConnection]] = defaultdict(deque)
        self._open: set[UpstreamConnection] = set()
        self._now: Callable[[], float] = asyncio.get_running_loop().time

    def take(self, origin: Origin) -> UpstreamConnection | None:
        """Return an idle connection, the one used last; None where there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def keep(self, connection: UpstreamConnection) -> None:
        """Keep an idle connection."""
        now, idle = self._now(), self._idle[connection.origin]
        old = now - connection.born > OLDEST_SECONDS
        transport = connection.transport
        unread = transport.get_write_buffer_size()  # it answered before it had read all of a call
        if old or unread or len(idle) >= MOST_IDLE or transport.is_closing():
            connection.close()
            return
        if connection.origin[0] == b"https" and not connection.idle_since:
            self._tls().remember(connection.origin[1], connection.transport)
        connection.idle_since = now
        idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """Keep a connection no longer."""
        self._open.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)

    def sweep(self) -> None:
        """Close what has been idle for too long."""
        due = self._now() - IDLE_SECONDS
        for idle in list(self._idle.values()):
            while idle and idle[0].idle_since < due:
                idle.popleft().close()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.close()

    async def connect(self, origin: Origin) -> UpstreamConnection:
        """Open a connection, its TLS handshake included.

        Raises:
            OSError: the upstream cannot be reached in time.
        """
        _, host, port = origin
        try:
            async with asyncio.timeout(self._router.connect_seconds((host, port))):
                connection = await self._connect(origin)
        except (OSError, TimeoutError) as error:
            late = isinstance(error, TimeoutError) and not error.args
            why = "no connection in time" if late else str(error)
            self._reachability.note((host, port), well=False, why=why)
            raise OSError(why) from None
        self._reachability.note((host, port), well=True)
        return connection

    async def _connect(self, origin: Origin) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        scheme, host, port = origin
        opened = await opened_socket(host, port)
        secure = scheme == b"https"
        try:
            _, connection = await loop.create_connection(
                lambda: UpstreamConnection(self, origin),
                sock=opened,
                ssl=self._tls() if secure else None,
                server_hostname=host if secure else None,
            )
        except BaseException:
            opened.close()
            raise
        connection.born = self._now()
        self._open.add(connection)
        return connection

    def _tls(self) -> "ResumingContext":
        if self._context is None:
            self._context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self._context.load_verify_locations(self._roots or certifi.where())
            self._context.set_alpn_protocols(["http/1.1"])
        return self._context


class ResumingContext(ssl.SSLContext):
    """TLS with upstreams: a new connection offers the session of one before, half a handshake less.

    Event loops have no argument for that; they ask the context for each connection's TLS.
    """

    def __init__(self, _protocol: int) -> None:
        self._sessions: dict[str | bytes | None, ssl.SSLSession] = {}

    def remember(self, host: str, transport: Any) -> None:
        """Keep a connection's session for the next one; it came with the first answer."""
        session = transport.get_extra_info("ssl_object").session
        if session is not None:
            self._sessions[host] = session

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        """Return the TLS of one connection."""
        session = self._sessions.get(named.get("server_hostname"))
        return super().wrap_bio(*args, **{**named, "session": session})
