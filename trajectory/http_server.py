"""Serves an ASGI application over HTTP in a thread, and bounds what its clients may hold.

uvicorn speaks HTTP and trusts its clients; the bounds are added here. A request has a deadline as a
whole, from the connection (or the response before) to its last byte. A client has to read its
response. A connection waits until its request has come whole. Where too many wait, one is closed:
of the address with most of them, the one that has waited longest. A client that the application
admits (it showed a key) keeps its place. A response that broke off ends without its last chunk.

Nothing is logged: clients come and go, and a traceback could hold captured content.
"""

import asyncio
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Self

import uvicorn
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

_CLIENT = "headrace_client"
_SWEEP_SECONDS = 0.25
_STOP_SECONDS = 10.0

type _Event = MutableMapping[str, Any]
type AsgiApp = Callable[
    [_Event, Callable[[], Awaitable[_Event]], Callable[[_Event], Awaitable[None]]], Awaitable[None]
]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What clients may hold."""

    request_seconds: float = 30.0
    """How long a request may take to come whole."""
    write_seconds: float = 30.0
    """How long a response may wait for a client that does not read."""
    waiting: int = 64
    """Connections that wait, at most."""
    admitted: int = 64
    """Connections that the application admitted, at most."""
    admitted_of_one: int | None = None
    """Of these, one caller's at most."""


class BodyRoom:
    """Bytes of bodies that are held at once, of all clients together."""

    def __init__(self, limit: int) -> None:
        """Hold so many."""
        self._limit = limit
        self._held = 0

    @contextmanager
    def entered(self) -> Iterator[Callable[[int], None]]:
        """Give what takes room for so many bytes; it is free again at the end of the block.

        What it gives raises :class:`BodiesFullError` where there is none.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if self._held + size > self._limit:
                raise BodiesFullError
            taken += size
            self._held += size

        try:
            yield take
        finally:
            self._held -= taken


class BodiesFullError(Exception):
    """Too many bytes of bodies are held already."""


class BodyTooLongError(Exception):
    """The body of a request is longer than the application takes."""


async def read_body(
    request: Request, longest: int, take: Callable[[int], None] = lambda _size: None
) -> bytes:
    """Return the body of a request.

    Args:
        request: whose body it is.
        longest: bytes that it may have.
        take: told of the bytes that are about to be kept; see :class:`BodyRoom`.

    Raises:
        BodyTooLongError: it has more than ``longest`` bytes; the rest of it is not kept.
    """
    if int(request.headers.get("content-length", 0)) > longest:
        raise BodyTooLongError
    body = bytearray()
    async for part in request.stream():
        take(len(part))
        body += part
        if len(body) > longest:
            raise BodyTooLongError
    return bytes(body)


def client_of(request: Request) -> "HttpClient":
    """Return the connection that a request came on."""
    client: HttpClient = request.scope["state"][_CLIENT]
    return client


class HttpClient:
    """One connection; everything but ``is_gone`` is for the server's event loop alone."""

    def __init__(self, server: "HttpServer", opened: socket.socket, address: str) -> None:
        """Begin to wait for a request."""
        self.address = address
        self.is_gone = False
        """The client went away, or was closed: nobody reads the response any more."""
        self.is_admitted = False
        self.caller = ""
        """Whom the application admitted."""
        self.transport: asyncio.Transport | None = None
        self._server = server
        self._opened = opened
        self.await_request()

    def await_request(self) -> None:
        """Wait for a request from now on."""
        self.is_admitted = False
        self._stop: Callable[[], None] | None = None
        self.since = time.monotonic()
        self.due: float | None = self.since + self._server.limits.request_seconds

    def await_reader(self) -> None:
        """Wait for the client to read its response."""
        self.due = time.monotonic() + self._server.limits.write_seconds

    def answer(self) -> None:
        """Wait no longer: the request has come whole, or the client reads its response again."""
        self.due = None

    def when_gone(self, stop: Callable[[], None]) -> None:
        """Have ``stop`` called if the client goes away before its response has ended."""
        if self.is_gone:
            stop()
        self._stop = stop

    def lost(self) -> None:
        """Note that nobody reads the response any more."""
        self.is_gone = True
        if self._stop is not None:
            self._stop()

    def admit(self, caller: str = "") -> bool:
        """Let the client keep its place until its response has ended; False where too many do."""
        limits = self._server.limits
        admitted = [one.caller for one in self._server.clients if one.is_admitted]
        is_crowd = (
            limits.admitted_of_one is not None and admitted.count(caller) >= limits.admitted_of_one
        )
        if is_crowd or len(admitted) >= limits.admitted:
            return False
        self.is_admitted, self.caller = True, caller
        return True

    def close(self) -> None:
        """Close the connection at once."""
        self.is_gone = True
        if self.transport is not None:
            self.transport.abort()
            return
        with suppress(OSError):  # its TLS handshake is under way
            self._opened.shutdown(socket.SHUT_RDWR)


class _Protocol(H11Protocol):
    """uvicorn's side of one connection, which tells the client's state."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: uvicorn.Server,
        clients: set[HttpClient],
        client: HttpClient,
    ) -> None:
        super().__init__(config, server.server_state, {**server.lifespan.state, _CLIENT: client})
        self._clients = clients
        self._client = client

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._client.transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        self._client.await_request()
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        self._client.await_reader()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._client.answer()
        super().resume_writing()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.discard(self._client)
        self._client.lost()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._client.answer()


class HttpServer:
    """Serves one application between ``with`` and its end."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        """Take an address; nothing is answered before the context is entered.

        Args:
            app: the application; it admits clients by :meth:`HttpClient.admit`.
            host: where to listen.
            port: 0 takes a free one, see ``port``.
            tls: the certificate; None serves in clear.
            limits: what clients may hold.

        Raises:
            OSError: the port is taken.
        """
        self.limits = limits or HttpLimits()
        self.clients: set[HttpClient] = set()
        self._tls = tls
        is_v6 = ":" in host
        self._listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=128,
            dualstack_ipv6=is_v6 and socket.has_dualstack_ipv6(),
        )
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._config = uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=math.ceil(self.limits.request_seconds),
            timeout_graceful_shutdown=1,
        )
        self._config.load()
        self._uvicorn = uvicorn.Server(self._config)
        self._thread = Thread(
            target=asyncio.run, args=(self._run(),), name=f"http {self.port}", daemon=True
        )

    def __enter__(self) -> Self:
        """Start to answer."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop: responses that are under way have a second to end."""
        self._uvicorn.should_exit = True
        self._thread.join(_STOP_SECONDS)

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        beside = [asyncio.create_task(self._accept()), asyncio.create_task(self._sweep())]
        try:
            await self._uvicorn.serve(sockets=[])
        finally:
            for task in beside:
                task.cancel()
            self._listener.close()
            for client in list(self.clients):
                client.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        opening: set[asyncio.Task[None]] = set()
        while not self._uvicorn.started:  # noqa: ASYNC110 - uvicorn tells it by a flag
            await asyncio.sleep(0.005)
        while True:
            try:
                opened, address = await loop.sock_accept(self._listener)
            except OSError:  # no file is left; the sweep and the ends of responses free some
                await asyncio.sleep(_SWEEP_SECONDS)
                continue
            task = loop.create_task(self._open(self._enter(opened, address[0]), opened))
            opening.add(task)
            task.add_done_callback(opening.discard)

    def _enter(self, opened: socket.socket, address: str) -> HttpClient:
        """Count a connection in; where too many wait, one of them is closed for it."""
        waiting = [one for one in self.clients if one.due is not None and not one.is_admitted]
        if len(waiting) >= self.limits.waiting:
            crowd = Counter(one.address for one in waiting)
            most = max(crowd.values())
            self._close(
                min(
                    (one for one in waiting if crowd[one.address] == most),
                    key=lambda one: one.since,
                )
            )
        client = HttpClient(self, opened, address)
        self.clients.add(client)
        return client

    async def _open(self, client: HttpClient, opened: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: _Protocol(self._config, self._uvicorn, self.clients, client),
                opened,
                ssl=self._tls,
                ssl_handshake_timeout=self.limits.request_seconds if self._tls else None,
            )
        except (OSError, asyncio.CancelledError):
            self.clients.discard(client)

    async def _sweep(self) -> None:
        """Close the connections that waited too long."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for one in [one for one in self.clients if one.due is not None and one.due < now]:
                self._close(one)

    def _close(self, client: HttpClient) -> None:
        self.clients.discard(client)
        client.close()
