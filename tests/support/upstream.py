"""A small scripted upstream: a raw HTTP/1.1 server that answers with the bytes it was given."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self


@dataclass
class ReceivedRequest:
    """A request as the upstream got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    trailers: list[bytes] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


@dataclass
class Reply:
    """What to answer: raw pieces, with pauses in seconds or until an event; then close or stay."""

    pieces: list[bytes | float | threading.Event]
    close: bool = False
    abort: bool = False
    listen: bool = False
    """Close without an answer as soon as the client closes its side, as most servers do."""


def plain(status: int, body: bytes, *headers: tuple[str, str]) -> Reply:
    """Return a reply with a Content-Length."""
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{n}: {v}\r\n" for n, v in headers)
    return Reply([head.encode() + b"\r\n" + body])


def as_json(value: object, status: int = 200, *headers: tuple[str, str]) -> Reply:
    """Return a JSON reply."""
    return plain(status, json.dumps(value).encode(), ("Content-Type", "application/json"), *headers)


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(
    events: list[bytes],
    *,
    pause: float | threading.Event = 0.0,
    kind: str = "text/event-stream",
) -> Reply:
    """Return a chunked reply, one chunk per event."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces: list[bytes | float | threading.Event] = [head.encode()]
    for event in events:
        pieces += [chunk(event), pause]
    return Reply([*pieces, b"0\r\n\r\n"])


type Script = Callable[[ReceivedRequest], Reply]


@dataclass
class Upstream:
    """Runs in a thread of its own; ``script`` decides each reply."""

    script: Script
    tls: object = None
    host: str = "127.0.0.1"
    seen: list[ReceivedRequest] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    broken: int = 0
    """Connections that the other side broke while a reply was being sent."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://localhost:{self.port}"

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main(started))
        self._loop.close()

    async def _main(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, self.host, 0, ssl=self.tls)  # type: ignore[arg-type]
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            self.broken += 1
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = [(n, v.strip()) for n, _, v in (line.partition(":") for line in lines)]
        request = ReceivedRequest(method, target, headers, b"")
        if request.header("expect"):
            if "refused" in target:
                self.seen.append(request)
                writer.write(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
                return False
            if "unheard" not in target:
                writer.write(b"HTTP/1.1 100 Continue\r\nX-Waited: yes\r\n\r\n")
        if (request.header("transfer-encoding") or "").lower() == "chunked":
            parts = []
            while size := int(await reader.readline(), 16):
                parts.append(await reader.readexactly(size))
                await reader.readexactly(2)
            while line := (await reader.readline()).rstrip(b"\r\n"):
                request.trailers.append(line)
            request.body = b"".join(parts)
        else:
            request.body = await reader.readexactly(int(request.header("content-length") or 0))
        self.seen.append(request)
        reply = self.script(request)
        if reply.listen:
            return not await asyncio.wait_for(reader.read(), 60) and False
        for piece in reply.pieces:
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
            elif isinstance(piece, threading.Event):
                while not piece.is_set():  # noqa: ASYNC110 - set by another thread
                    await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(piece)
        if reply.abort:
            writer.transport.abort()
        return not (reply.close or reply.abort)
