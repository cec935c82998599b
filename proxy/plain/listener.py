"""The plain listener: accepts base-URL connections, ends those whose time is over, hands others on."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from proxy.api.endpoints import Endpoints
from proxy.certificate import tls_arguments
from proxy.plain.connection import ClientConnection
from proxy.plain.upstreams import UpstreamPool
from proxy.recording.recorder import Recorder
from proxy.refusals import Refusals
from proxy.services import Services

_BACKLOG = 2048
_SWEEP_SECONDS = 1.0

type Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class PlainListener:
    """Serves base-URL connections in the running event loop."""

    def __init__(
        self,
        services: Services,
        *,
        refusals: Refusals,
        endpoints: Endpoints,
        recorder: Recorder | None,
        pool: UpstreamPool,
        idle_seconds: float,
        handler: Handler,
        secure: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare.

        Args:
            services: what all exchanges share.
            refusals: answers what is not admitted.
            endpoints: the gateway's own API.
            recorder: what captures.
            pool: connections to upstreams.
            idle_seconds: how long a connection may stay silent.
            handler: mitmproxy's, for connections of HTTP/2 and those that become WebSockets.
            secure: TLS of the port, where that has a certificate of its own.
        """
        self.services = services
        self.refusals = refusals
        self.endpoints = endpoints
        self.recorder = recorder
        self.pool = pool
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self._idle_seconds = idle_seconds
        self._handler = handler
        self.secure = secure
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        """Serve on bound sockets."""
        for bound in listeners:
            self._servers.append(
                await self._loop.create_server(
                    lambda: ClientConnection(self),
                    sock=bound,
                    backlog=_BACKLOG,
                    **tls_arguments(self.secure),
                )
            )
        self.run(self._sweep())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the connections; what need not wait is done when this returns."""
        task = asyncio.Task(work, loop=self._loop, eager_start=True)
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def calls(self) -> int:
        """Number of calls in flight."""
        return sum(connection.call is not None for connection in self.connections)

    def hand_over(self, connection: ClientConnection, data: bytes) -> None:
        """Let mitmproxy go on with a connection, from the request that it does not take."""
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._handler, loop=self._loop)
        if data:
            reader.feed_data(data)
        connection.transport.set_protocol(protocol)
        protocol.connection_made(connection.transport)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.pool.sweep()
            now = self.now()
            for connection in list(self.connections):
                if connection.is_overdue(now, self._idle_seconds):
                    connection.abort()

    def stop_listening(self) -> None:
        """Take no more connections; calls in flight go on."""
        self.draining = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            if connection.call is None:
                connection.close()

    async def close(self) -> None:
        """Close all connections."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # the connections learn of their ends in the loop's next turn
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.pool.close()
