"""Time limits for connections to upstreams: mitmproxy knows none."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from mitmproxy import connection, tls
from mitmproxy.proxy import server_hooks

from proxy.routing import Router


class ConnectTimes:
    """Ends a connection attempt, its TLS handshake included, when its time is over."""

    def __init__(self, router: Router, handlers: Callable[[], Mapping[Any, Any]]) -> None:
        self._router = router
        self._handlers = handlers
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
        """The connection stands; with TLS the handshake has what time is left."""
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
            self._note(data.conn, well=False)

    def server_connect_error(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The upstream cannot be reached."""
        self._stop(data.server)
        self._note(data.server, well=False)

    def server_disconnected(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The connection is gone."""
        self._stop(data.server)

    def _note(self, server: connection.Server, *, well: bool) -> None:
        if server.address is not None:
            self._router.reached((server.address[0], server.address[1]), well=well)
