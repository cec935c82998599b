"""Connections on which nobody has said who they are: they are not kept open for long."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from mitmproxy import connection, http
from mitmproxy.proxy.mode_specs import TransparentMode

SECONDS = 30.0
"""From the connection to the end of the first request's head that is let in."""


class Strangers:
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
