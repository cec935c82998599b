"""Runs ASGI apps on several sockets in one event loop until SIGTERM or SIGINT, quietly."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn


@dataclass(frozen=True, slots=True)
class Listener:
    """One place to listen."""

    port: int
    host: str = "127.0.0.1"
    cert: str | None = None
    key: str | None = None


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs several of them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _servers(app: Any, doors: tuple[Listener, ...]) -> list[_Server]:
    return [
        _Server(
            uvicorn.Config(
                app,
                host=door.host,
                port=door.port,
                ssl_certfile=door.cert,
                ssl_keyfile=door.key,
                log_level="critical",
                access_log=False,
                lifespan="on" if index == 0 else "off",
                timeout_keep_alive=60,
                timeout_graceful_shutdown=5,
            )
        )
        for index, door in enumerate(doors)
    ]


def serve(app: Any, doors: tuple[Listener, ...]) -> None:
    """Serve until a signal comes; requests under way are finished."""
    asyncio.run(_serve(_servers(app, doors)))


async def _serve(servers: list[_Server]) -> None:
    def leave() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    await asyncio.gather(*(server.serve() for server in servers))


@contextlib.contextmanager
def served_in_thread(app: Any) -> Iterator[int]:
    """Serve on a free port of the loopback interface; give the port."""
    server = _servers(app, (Listener(port=0),))[0]
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),), daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            if not thread.is_alive():
                raise RuntimeError("the server ended before it was ready")
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(10)
