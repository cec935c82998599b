"""What the gateway's benchmark measures with: an upstream, ways to it, and calls over raw connections.

The client sends and reads with as little CPU as Python can, because it shares the machine with what
it measures. A latency counts from the moment a request is sent: the client's own timers are not in it.
"""

import asyncio
import json
import re
import ssl
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import uvloop

CHAT = "/v1/chat/completions"
_MESSAGES = [{"role": "user", "content": "x" * 900}]
BODY = json.dumps({"model": "bench", "messages": _MESSAGES}).encode()
STREAM_BODY = json.dumps({"model": "bench", "stream": True, "messages": _MESSAGES}).encode()
ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "y" * 700},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
CHUNK = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":"sent %.6f "},"finish_reason":null}]}\n\n'
)
_SENT = re.compile(rb"sent (\d+\.\d{6})")
_MODELS = b'{"object": "list", "data": [{"id": "bench", "object": "model"}]}'
CHUNKS_PER_STREAM, CHUNK_PAUSE = 50, 0.02
AT_ONCE = 40
"""Streams open at the same time: 40 with 50 chunks a second each are 2,000 chunks a second."""
STALL_SECONDS = 0.1
"""A chunk that comes so late is a stall: five chunks were sent meanwhile."""
_TICK = 0.001
"""What is due within it is sent together: event loops know no shorter timer."""
_MOST_CONNECTIONS = 2_000
"""As many answers may be awaited at a fixed rate; a process opens only so many files."""


def _answer(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )


class UpstreamProtocol(asyncio.Protocol):
    """Answers every POST with ANSWER, and one that asks for a stream with timed chunks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length: ")
            length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            if head.startswith(b"get "):  # who asks before the calls, as smg does
                self.transport.write(_answer(_MODELS))
            elif re.search(rb'"stream": ?true', body):
                self.task = asyncio.get_running_loop().create_task(self.stream())
            else:
                self.transport.write(_answer(ANSWER))

    async def stream(self) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(CHUNKS_PER_STREAM):
            event = CHUNK % time.time()
            self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))
            await asyncio.sleep(CHUNK_PAUSE)
        self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def run_upstream(certificate: Path) -> None:
    """Serve as the upstream, plain and with TLS, in a process of its own."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        plain = await loop.create_server(UpstreamProtocol, "127.0.0.1", 0)
        secure = await loop.create_server(UpstreamProtocol, "127.0.0.1", 0, ssl=context)
        ports = [server.sockets[0].getsockname()[1] for server in (plain, secure)]
        print(json.dumps(ports), flush=True)
        await asyncio.gather(plain.serve_forever(), secure.serve_forever())

    asyncio.run(main(), loop_factory=uvloop.new_event_loop)


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process: to the nanosecond where the kernel tells, else in ticks."""
    try:
        tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        times = process.cpu_times()
        return float(times.user + times.system)


@dataclass
class Load:
    """What was measured under one number of connections."""

    requests: int = 0
    cpu: float = 0.0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def add(self, other: "Load") -> None:
        """Count what was measured in a later round."""
        self.requests += other.requests
        self.cpu += other.cpu
        self.seconds += other.seconds
        self.latencies += other.latencies

    @property
    def cpu_ms(self) -> float:
        """Return the CPU per request in milliseconds."""
        return 1000 * self.cpu / max(1, self.requests)


@dataclass
class Variant:
    """One way from the client to the upstream, and what was measured of it."""

    name: str
    port: int
    path: str = CHAT
    headers: str = ""
    process: subprocess.Popen[bytes] | None = None
    tls: ssl.SSLContext | None = None
    """Set where the client speaks TLS with an upstream, through a proxy or not."""
    roots: Path | None = None
    """What the client trusts then."""
    connect_headers: str = ""
    target: int = 0
    """The upstream's port, where ``port`` is a proxy's that is asked to CONNECT."""
    slow: bool = False
    """It gets a tenth of the requests, so that a run ends."""
    streaming: bool = True
    """It passes streams on."""
    loads: dict[int, Load] = field(default_factory=lambda: defaultdict(Load))
    """By number of connections."""
    latencies: list[float] = field(default_factory=list)
    """Under a fixed rate."""
    delays: list[float] = field(default_factory=list)
    """Seconds by which a stream's chunk came later than it was sent."""
    firsts: list[float] = field(default_factory=list)
    """Seconds from a stream's request to its first chunk."""

    def request(self, body: bytes = BODY) -> bytes:
        """Return the bytes of a request."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\n{self.headers}"
            "Content-Type: application/json\r\nAccept: */*\r\nUser-Agent: bench\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def requests(self) -> list[bytes]:
        """Return requests of several lengths, as no two calls of an agent are equally long."""
        return [self.request(BODY + b" " * more) for more in range(0, 64, 4)]

    def processes(self) -> list[psutil.Process]:
        """Return the proxy's process and its children."""
        if self.process is None:
            return []
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def used(self) -> float:
        """Return the CPU seconds of the proxy."""
        return sum(map(_cpu_seconds, self.processes()))

    def rss(self) -> float:
        """Return the resident megabytes of the proxy."""
        return float(sum(each.memory_info().rss for each in self.processes()) / 2**20)


class Channel(asyncio.Protocol):
    """A client's connection: one request after the other."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received: Callable[[bytes], None] | None = None
        """Sees all bytes as they come."""
        self._buffer = b""
        self._answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionError(f"no answer: {exc or 'closed'}"))

    def data_received(self, data: bytes) -> None:
        if self.received is not None:
            self.received(data)
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._answered is None:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length: ")
        if at >= 0:
            whole = len(self._buffer) >= end + 4 + int(head[at + 16 :].split(b"\r\n", 1)[0])
        else:  # chunked; what answers a CONNECT has no body
            whole = b"chunked" not in head or self._buffer.endswith(b"0\r\n\r\n")
        if not whole:
            return
        found, self._buffer = self._buffer, b""
        if found[9:12] == b"200":
            self._answered.set_result(found)
        else:
            self._answered.set_exception(ConnectionError(f"not passed on: {found[:80]!r}"))

    def call(self, request: bytes) -> asyncio.Future[bytes]:
        """Send one request; the result is its answer."""
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answered

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    @property
    def closed(self) -> bool:
        """Whether either side has closed it."""
        return bool(self.transport.is_closing())


async def connect(variant: Variant) -> Channel:
    """Open a connection, with CONNECT and TLS where this variant has them."""
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(Channel, "127.0.0.1", variant.port)
    if variant.target:
        place = f"localhost:{variant.target}"
        await channel.call(
            f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{variant.connect_headers}\r\n".encode()
        )
    if variant.tls is not None:
        channel.transport = await loop.start_tls(
            channel.transport, channel, variant.tls, server_hostname="localhost"
        )
    return channel


async def closed_loop(variant: Variant, connections: int, count: int) -> Load:
    """Send requests over keep-alive connections, as fast as they are answered."""
    requests = variant.requests()
    channels = [await connect(variant) for _ in range(connections)]
    for channel in channels:
        await channel.call(requests[0])
    latencies: list[float] = []
    left, now = count, time.perf_counter

    async def work(channel: Channel) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            sent = now()
            await channel.call(requests[left % len(requests)])
            latencies.append(now() - sent)

    before, began = variant.used(), now()
    await asyncio.gather(*map(work, channels))
    load = Load(count, variant.used() - before, now() - began, latencies)
    for channel in channels:
        channel.close()
    return load


async def open_loop(variant: Variant, rate: float, seconds: float) -> list[float]:
    """Send requests at a fixed rate, whether or not earlier ones were answered; return latencies.

    Raises ConnectionError where so many wait for answers that the rate is not held.
    """
    request, now = variant.request(), time.perf_counter
    channels = [await connect(variant) for _ in range(16)]
    free = list(channels)
    for channel in free:
        await channel.call(request)
    latencies: list[float] = []
    tasks: list[asyncio.Future[None]] = []

    async def one(sent: float) -> None:
        while free and free[-1].closed:
            free.pop()
        if free:
            channel = free.pop()
        elif len(channels) < _MOST_CONNECTIONS:
            channel = await connect(variant)
            channels.append(channel)
        else:
            raise ConnectionError(f"{_MOST_CONNECTIONS} connections wait for their answers")
        await channel.call(request)
        latencies.append(now() - sent)
        free.append(channel)

    began, number, count = now(), 0, int(rate * seconds)
    try:
        while number < count:
            while number < count and number / rate <= now() - began:
                tasks.append(asyncio.ensure_future(one(now())))
                number += 1
            await asyncio.sleep(_TICK)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for channel in channels:
            channel.close()
    for end in filter(None, ends):
        raise end
    return latencies


async def streams(variant: Variant, count: int) -> None:
    """Read streams, several at a time; note when chunks come."""
    request = variant.request(STREAM_BODY)
    at_once = AT_ONCE // 10 if variant.slow else AT_ONCE

    async def one(number: int) -> None:
        await asyncio.sleep(number * CHUNKS_PER_STREAM * CHUNK_PAUSE / at_once)
        channel = await connect(variant)
        began, first, rest = time.perf_counter(), True, b""

        def received(data: bytes) -> None:
            nonlocal first, rest
            come, rest = time.time(), rest + data
            found = list(_SENT.finditer(rest))
            if not found:
                return
            if first:
                first = False
                variant.firsts.append(time.perf_counter() - began)
            variant.delays.extend(come - float(match[1]) for match in found)
            rest = rest[found[-1].end() :]

        channel.received = received
        await channel.call(request)
        channel.close()

    await asyncio.gather(*(one(number) for number in range(count // 10 if variant.slow else count)))
