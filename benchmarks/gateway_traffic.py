"""What the gateway's benchmark measures with: the upstream, the variants, and calls over raw sockets."""

import asyncio
import json
import ssl
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

BODY = json.dumps({"model": "bench", "messages": [{"role": "user", "content": "x" * 900}]}).encode()
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
_LIST = b'{"object": "list", "data": [{"id": "bench", "object": "model"}]}'
MODELS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_LIST)
) + _LIST
STREAMS, CHUNKS_PER_STREAM, CHUNK_PAUSE = 100, 50, 0.02
AT_ONCE = 40
"""Streams open at the same time: 40 with 50 chunks a second each are 2,000 chunks a second."""

type Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UpstreamProtocol(asyncio.Protocol):
    """Answers every POST with ANSWER, and paths with ``stream`` with timed chunks."""

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
            self.buffer = self.buffer[end + 4 + length :]
            if head.startswith(b"get "):  # who asks before the calls, as smg does
                self.transport.write(MODELS)
            elif b"stream" in head.split(b"\r\n", 1)[0]:
                self.task = asyncio.get_running_loop().create_task(self.stream())
            else:
                self.transport.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    % len(ANSWER)
                    + ANSWER
                )

    async def stream(self) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(CHUNKS_PER_STREAM):
            event = b"data: %.6f %s\n\n" % (time.time(), b"z" * 60)
            self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))
            await asyncio.sleep(CHUNK_PAUSE)
        self.transport.write(b"0\r\n\r\n")


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

    asyncio.run(main())


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
    """CPU and requests under one number of connections."""

    requests: int = 0
    cpu: float = 0.0


@dataclass
class Variant:
    """One way from the client to the upstream."""

    name: str
    port: int
    path: str
    headers: str = ""
    process: subprocess.Popen[bytes] | None = None
    tls: ssl.SSLContext | None = None
    """Set where the client speaks TLS with an upstream, through a proxy or not."""
    roots: Path | None = None
    """What the client trusts then."""
    connect_headers: str = ""
    target: int = 0
    """The upstream's port, where ``port`` is a proxy's that is asked to CONNECT."""
    loads: dict[int, Load] = field(default_factory=lambda: defaultdict(Load))
    """By number of connections."""
    latencies: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    """Seconds from a stream's request to its first event."""
    rss_before: float = 0.0
    rss_after: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether it gets a tenth of the requests, so that a run ends."""
        return self.name == "litellm"

    def request(self, path: str | None = None) -> bytes:
        head = (
            f"POST {path or self.path} HTTP/1.1\r\nHost: localhost\r\n{self.headers}"
            "Content-Type: application/json\r\nAccept: */*\r\nUser-Agent: bench\r\n"
            f"Content-Length: {len(BODY)}\r\n\r\n"
        )
        return head.encode() + BODY

    async def open(self) -> Pair:
        """Open a connection, with CONNECT and TLS where this variant has them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        if self.target:
            place = f"localhost:{self.target}"
            writer.write(
                f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{self.connect_headers}\r\n".encode()
            )
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer.split(b"\r\n", 1)[0]:
                raise RuntimeError(f"{self.name}: no tunnel: {answer[:60]!r}")
        if self.tls is not None:
            await writer.start_tls(self.tls, server_hostname="localhost")
        return reader, writer

    def used(self) -> float:
        """Return the CPU seconds of the proxy process and its children."""
        if self.process is None:
            return 0.0
        parent = psutil.Process(self.process.pid)
        return sum(map(_cpu_seconds, (parent, *parent.children(recursive=True))))

    def rss(self) -> float:
        """Return the resident megabytes of the proxy process."""
        if self.process is None:
            return 0.0
        return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send one request and read its response."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the upstream's answer did not come through: {head[:60]!r}")
    lower = head.lower()
    at = lower.find(b"content-length: ")
    if at >= 0:
        await reader.readexactly(int(lower[at + 16 :].split(b"\r\n", 1)[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


async def closed_loop(variant: Variant, connections: int, count: int) -> None:
    """Send ``count`` requests over keep-alive connections, as fast as they are answered."""
    request = variant.request()
    left = count
    opened = [await variant.open() for _ in range(connections)]
    for reader, writer in opened:
        await call(reader, writer, request)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(reader, writer, request)

    before = variant.used()
    await asyncio.gather(*(work(*pair) for pair in opened))
    load = variant.loads[connections]
    load.cpu += variant.used() - before
    load.requests += count
    for _, writer in opened:
        writer.close()


async def open_loop(variant: Variant, rate: float, seconds: float) -> None:
    """Send requests at a fixed rate, whether or not earlier ones were answered."""
    request = variant.request()
    free: list[Pair] = []
    for _ in range(16):
        pair = await variant.open()
        await call(*pair, request)
        free.append(pair)

    async def one(due: float) -> None:
        pair = free.pop() if free else await variant.open()
        await call(*pair, request)
        variant.latencies.append(time.perf_counter() - due)
        free.append(pair)

    tasks = []
    start = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    for _, writer in free:
        writer.close()


async def streams(variant: Variant, count: int = STREAMS) -> None:
    """Read streams, AT_ONCE of them at a time; note by how much each chunk comes later than it was sent."""
    request = variant.request(variant.path.replace("chat/completions", "stream"))

    async def one(number: int) -> None:
        await asyncio.sleep(number * CHUNKS_PER_STREAM * CHUNK_PAUSE / AT_ONCE)
        reader, writer = await variant.open()
        began = time.perf_counter()
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        first = True
        while size := int(await reader.readline(), 16):
            data = await reader.readexactly(size + 2)
            now = time.time()
            if first:
                first = False
                variant.firsts.append(time.perf_counter() - began)
            variant.delays += [now - float(part.split()[0]) for part in data.split(b"data: ")[1:]]
        writer.close()

    await asyncio.gather(*(one(number) for number in range(count)))
