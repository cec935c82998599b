"""The gateway's cost beside direct calls, mitmdump and LiteLLM, on this machine, interleaved.

All variants talk to the same upstream. CPU is that of the proxy process alone (user and system).
The last line is one JSON object. ``--quick`` ends within 50 seconds; without it more rounds, and
memory over 50,000 requests. LiteLLM runs only where ``--litellm PYTHON`` names an interpreter
that has ``litellm[proxy]``.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
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
STREAMS, CHUNKS, PAUSE = 40, 50, 0.02

GATEWAY = """
import json, sys
from pathlib import Path
from proxy.config import GatewayConfig
from proxy.gateway import serve
config = GatewayConfig.model_validate_json(Path(sys.argv[1]).read_text())
def ready(addresses):
    print(json.dumps(addresses.base_url), flush=True)
serve(config, spool_key=b"s" * 32, fingerprint_key=b"f" * 32, ready=ready)
"""


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
            if b"stream" in head.split(b"\r\n", 1)[0]:
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
        for _ in range(CHUNKS):
            event = b"data: %.6f %s\n\n" % (time.time(), b"z" * 60)
            self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))
            await asyncio.sleep(PAUSE)
        self.transport.write(b"0\r\n\r\n")


def run_upstream() -> None:
    """Serve as the upstream, in a process of its own."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(UpstreamProtocol, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(main())


@dataclass
class Variant:
    """One way from the client to the upstream."""

    name: str
    port: int
    path: str
    headers: str = ""
    process: subprocess.Popen[bytes] | None = None
    requests: int = 0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    rss_before: float = 0.0
    rss_after: float = 0.0

    def request(self, path: str | None = None) -> bytes:
        head = (
            f"POST {path or self.path} HTTP/1.1\r\nHost: bench\r\n{self.headers}"
            "Content-Type: application/json\r\nAccept: */*\r\nUser-Agent: bench\r\n"
            f"Content-Length: {len(BODY)}\r\n\r\n"
        )
        return head.encode() + BODY

    def used(self) -> float:
        """Return the CPU seconds of the proxy process and its children."""
        if self.process is None:
            return 0.0
        total = 0.0
        parent = psutil.Process(self.process.pid)
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
        return total

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
    opened = [await asyncio.open_connection("127.0.0.1", variant.port) for _ in range(connections)]
    for reader, writer in opened:
        await call(reader, writer, request)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(reader, writer, request)

    before = variant.used()
    await asyncio.gather(*(work(*pair) for pair in opened))
    variant.cpu += variant.used() - before
    variant.requests += count
    for _, writer in opened:
        writer.close()


async def open_loop(variant: Variant, rate: float, seconds: float) -> None:
    """Send requests at a fixed rate, whether or not earlier ones were answered."""
    request = variant.request()
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(16):
        pair = await asyncio.open_connection("127.0.0.1", variant.port)
        await call(*pair, request)
        free.append(pair)

    async def one(due: float) -> None:
        pair = free.pop() if free else await asyncio.open_connection("127.0.0.1", variant.port)
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


async def streams(variant: Variant) -> None:
    """Read concurrent streams; note by how much each chunk comes later than it was sent."""
    request = variant.request(variant.path.replace("chat/completions", "stream"))

    async def one(number: int) -> None:
        await asyncio.sleep(number * PAUSE / STREAMS)
        reader, writer = await asyncio.open_connection("127.0.0.1", variant.port)
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readline(), 16):
            data = await reader.readexactly(size + 2)
            now = time.time()
            variant.delays += [now - float(part.split()[0]) for part in data.split(b"data: ")[1:]]
        writer.close()

    await asyncio.gather(*(one(number) for number in range(STREAMS)))


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_headrace(name: str, home: Path, upstream: int, **settings: Any) -> Variant:
    """Start a gateway of ours."""
    from proxy.config import GatewayConfig
    from proxy.identity import KeyRegistry

    home.mkdir()
    key = KeyRegistry.load(home / "keys.json").create(tenant_id="bench", app_id="bench")
    durability = settings.pop("durability", "journal")
    config = GatewayConfig.model_validate(
        {
            "port": 0,
            "forward_port": None,
            "admin_port": None,
            "keys": str(home / "keys.json"),
            "spool": {"directory": str(home / "spool")},
            "routes": [
                {
                    "name": "bench",
                    "upstream": f"http://127.0.0.1:{upstream}",
                    "durability": durability,
                }
            ],
            **settings,
        }
    )
    path = home / "gateway.json"
    path.write_text(config.model_dump_json())
    process = subprocess.Popen(
        [sys.executable, "-c", GATEWAY, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    headers = f"Authorization: Bearer {key.secret}\r\n"
    return Variant(name, 0, "/bench/v1/chat/completions", headers, process)


def start_mitmdump(home: Path, upstream: int) -> Variant:
    """Start mitmdump as it comes."""
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("mitmdump")),
        "-q",
        "--set",
        f"confdir={home}",
        "--mode",
        f"reverse:http://127.0.0.1:{upstream}@127.0.0.1:{port}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    return Variant("mitmdump", port, "/v1/chat/completions", "", process)


LITELLM_CALLBACK = """
import json, os
from litellm.integrations.custom_logger import CustomLogger
class Lines(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        with open(os.environ["BENCH_LINES"], "a") as file:
            file.write(json.dumps({"request": kwargs.get("messages"), "response": str(response_obj)}) + "\\n")
lines = Lines()
"""


def start_litellm(python: str, home: Path, upstream: int) -> Variant:
    """Start LiteLLM's proxy with a callback that writes JSON lines."""
    home.mkdir()
    port = free_port()
    (home / "bench_callback.py").write_text(LITELLM_CALLBACK)
    (home / "config.yaml").write_text(
        "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n"
        f"      api_base: http://127.0.0.1:{upstream}/v1\n      api_key: none\n"
        "litellm_settings:\n  callbacks: bench_callback.lines\n"
    )
    command = [
        str(Path(python).with_name("litellm")),
        "--config",
        str(home / "config.yaml"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    environment = {**os.environ, "BENCH_LINES": str(home / "lines.jsonl"), "PYTHONPATH": str(home)}
    process = subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return Variant("litellm", port, "/v1/chat/completions", "", process)


def wait_for(variant: Variant, seconds: float = 60.0) -> None:
    """Wait until a variant accepts connections."""
    if variant.port == 0 and variant.process is not None and variant.process.stdout is not None:
        variant.port = json.loads(variant.process.stdout.readline())[1]
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", variant.port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def quantile(values: list[float], share: float) -> float:
    """Return a quantile; NaN where nothing was measured."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(variants: list[Variant], options: argparse.Namespace) -> None:
    """Measure all variants, interleaved."""
    for variant in variants:
        await closed_loop(variant, 8, 100 if variant.name == "litellm" else 300)
        variant.requests, variant.cpu = 0, 0.0
        variant.rss_before = variant.rss()
    for round_ in range(options.rounds):
        for variant in variants:
            count = options.requests // (10 if variant.name == "litellm" else 1)
            await closed_loop(variant, 32, count)
            if variant.name != "litellm" and round_ % options.streams_every == 0:
                await streams(variant)
            await open_loop(variant, 25 if variant.name == "litellm" else 150, options.seconds)
        print(f"round {round_ + 1} of {options.rounds}", file=sys.stderr)
    if options.memory:
        for variant in variants:
            if variant.process is not None and variant.name != "litellm":
                cpu, requests = variant.cpu, variant.requests
                await closed_loop(variant, 8, 2_000)
                variant.rss_before = variant.rss()
                await closed_loop(variant, 8, options.memory)
                variant.cpu, variant.requests = cpu, requests
    for variant in variants:
        variant.rss_after = variant.rss()


def summary(variants: list[Variant]) -> dict[str, Any]:
    """Return what was measured."""
    direct = variants[0]
    rows: dict[str, Any] = {}
    for variant in variants:
        cpu = 1000 * variant.cpu / max(1, variant.requests)
        rows[variant.name] = {
            "cpu_ms_per_request": round(cpu, 4),
            "rps_per_core": round(1000 / cpu, 1) if cpu else None,
            **{
                f"{prefix}added_p{percent}_ms": _added(theirs, ours, percent)
                for prefix, theirs, ours in (
                    ("", variant.latencies, direct.latencies),
                    ("sse_", variant.delays, direct.delays),
                )
                for percent in (50, 99)
            },
            "rss_growth_mb": round(variant.rss_after - variant.rss_before, 1),
        }
    journal, off = rows["headrace_journal"], rows["headrace_off"]

    def faster(other: str) -> float | None:
        if other not in rows:
            return None
        return round(rows[other]["cpu_ms_per_request"] / journal["cpu_ms_per_request"], 2)

    return {
        "variants": rows,
        "throughput_vs_mitmdump": faster("mitmdump"),
        "throughput_vs_litellm": faster("litellm"),
        "capture_cpu_overhead": round(
            journal["cpu_ms_per_request"] / off["cpu_ms_per_request"] - 1, 3
        ),
        "sse_added_p50_ms": journal["sse_added_p50_ms"],
        "sse_added_p99_ms": journal["sse_added_p99_ms"],
        "direct_p50_ms": round(1000 * statistics.median(direct.latencies), 3),
        "requests": variants[1].requests,
    }


def _added(theirs: list[float], ours: list[float], percent: int) -> float | None:
    if not theirs or not ours:
        return None
    return round(1000 * (quantile(theirs, percent / 100) - quantile(ours, percent / 100)), 3)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds")
    parser.add_argument("--litellm", metavar="PYTHON", help="an interpreter that has litellm")
    parser.add_argument("--upstream", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        run_upstream()
        return
    options.rounds = 2 if options.quick else 6
    options.requests = 600 if options.quick else 3000
    options.seconds = 0.8 if options.quick else 4.0
    options.streams_every = 2 if options.quick else 1
    options.memory = 0 if options.quick else 50_000
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        try:
            upstream = subprocess.Popen(
                [sys.executable, str(Path(__file__)), "--upstream"], stdout=subprocess.PIPE
            )
            processes.append(upstream)
            assert upstream.stdout is not None
            port = int(upstream.stdout.readline())
            variants = [Variant("direct", port, "/v1/chat/completions")]
            variants.append(start_mitmdump(home / "mitm", port))
            variants.append(start_headrace("headrace_off", home / "off", port, capture=False))
            variants.append(start_headrace("headrace_journal", home / "journal", port))
            variants.append(
                start_headrace("headrace_durable", home / "durable", port, durability="durable")
            )
            if options.litellm:
                variants.append(start_litellm(options.litellm, home / "litellm", port))
            processes += [v.process for v in variants if v.process is not None]
            for variant in variants:
                wait_for(variant)
            asyncio.run(measure(variants, options))
            print(json.dumps(summary(variants)))
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
