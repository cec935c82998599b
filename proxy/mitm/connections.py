"""Time limits that mitmproxy has not: to reach an upstream, and to say who one is."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from mitmproxy import connection, http, tls
from mitmproxy.proxy import server_hooks
from mitmproxy.proxy.mode_specs import TransparentMode

from proxy.routes.router import Reachability, Router


class ConnectTimes:
    """Ends a connection attempt, its TLS handshake included, when its time is over."""

    def __init__(
        self,
        router: Router,
        handlers: Callable[[], Mapping[Any, Any]],
        reachability: Reachability,
    ) -> None:
        self._router = router
        self._handlers = handlers
        self._reachability = reachability
        self._timers: dict[connection.Server, asyncio.TimerHandle] = {}

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Begin to count."""
        task, address = asyncio.current_task(), data.server.address
        if task is not None and address is not None:
            seconds = self._router.connect_seconds((address[0], address[1]))
            self._begin(data.server, seconds, task.cancel)

    def _begin(self, server: connection.Server, seconds: float, end: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self._timers[server] = loop.call_later(seconds, end)

    def _stop(self, server: connection.Server) -> float | None:
        """Stop counting; return when the time would have been over."""
        timer = self._timers.pop(server, None)
        if timer is None:
            return None
        timer.cancel()
        return timer.when()

    def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The connection is open; a TLS handshake gets the remaining time."""
        server = data.server
        due = self._stop(server)
        if server.tls and due is not None:
            left = due - asyncio.get_running_loop().time()
            self._begin(server, max(0.0, left), lambda: self._abort(server))
        else:
            self._note(server, well=True)

    def _abort(self, server: connection.Server) -> None:
        """Take a connection down whose handshake takes too long."""
        self._timers.pop(server, None)
        for handler in list(self._handlers().values()):
            transport = handler.transports.get(server)
            if transport is not None and transport.handler is not None:
                transport.handler.cancel("the TLS handshake takes too long")

    def tls_established_server(self, data: tls.TlsData) -> None:
        """The handshake is done."""
        if isinstance(data.conn, connection.Server):
            self._stop(data.conn)
            self._note(data.conn, well=True)

    def tls_failed_server(self, data: tls.TlsData) -> None:
        """The handshake failed."""
        if isinstance(data.conn, connection.Server):
            self._stop(data.conn)
            self._note(data.conn, well=False, why=data.conn.error or "no TLS handshake in time")

    def server_connect_error(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The upstream cannot be reached."""
        due = self._stop(data.server)
        late = due is not None and due <= asyncio.get_running_loop().time()
        why = None if late else data.server.error
        self._note(data.server, well=False, why=why or "no connection in time")

    def server_disconnected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The connection is gone."""
        self._stop(data.server)

    def _note(self, server: connection.Server, *, well: bool, why: str = "") -> None:
        if server.address is not None:
            address = server.address[0], server.address[1]
            self._reachability.note(address, well=well, why=why)


def _ip(text: str) -> IPv4Address | IPv6Address:
    found = ip_address(text)
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


class AdminApart:
    """Ends connections through the gateway to its own admin ports, which are for their machine alone.

    By the address that was reached: a client may give any name to a tunnel, and any host in it.
    """

    def __init__(self, ports: Collection[int], handlers: Callable[[], Mapping[Any, Any]]) -> None:
        """Keep clients from these ports of this machine."""
        self._ports = ports
        self._handlers = handlers

    def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Nothing was sent yet; nothing will be."""
        server = data.server
        if server.peername is None or server.peername[1] not in self._ports:
            return
        peer, own = _ip(server.peername[0]), _ip((server.sockname or ("::",))[0])
        if not peer.is_loopback and peer != own:
            return
        for handler in list(self._handlers().values()):
            transport = handler.transports.get(server)
            if transport is not None and transport.writer is not None:
                transport.writer.transport.abort()


SECONDS = 30.0
"""From the connection to the end of the first request's head that is let in."""


class AdmissionTimeout:
    """Ends connections without a request that was let in; comes after the gate, which lets in.

    Redirected ones are left alone: a standing key lets all of them in, tunnels without any request.
    """

    def __init__(self, handlers: Callable[[], Mapping[Any, Any]]) -> None:
        self._handlers = handlers
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def client_connected(self, client: connection.Client) -> None:
        """Begin to count."""
        if not isinstance(client.proxy_mode, TransparentMode):
            loop = asyncio.get_running_loop()
            self._timers[client.id] = loop.call_later(SECONDS, self._end, client.id)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Stop counting where a request was let in."""
        self._hear(flow)

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Stop counting where a tunnel was let in."""
        self._hear(flow)

    def client_disconnected(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._know(client)

    def _hear(self, flow: http.HTTPFlow) -> None:
        if flow.response is None and flow.error is None:
            self._know(flow.client_conn)

    def _know(self, client: connection.Client) -> None:
        timer = self._timers.pop(client.id, None)
        if timer is not None:
            timer.cancel()

    def _end(self, name: str) -> None:
        """Take a connection down."""
        self._timers.pop(name, None)
        handler = self._handlers().get(name)
        transport = handler.transports.get(handler.client) if handler is not None else None
        if transport is not None and transport.handler is not None:
            transport.handler.cancel("no request that is let in")
