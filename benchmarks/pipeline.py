"""From spool to committed rows with the default policy, beside what the gateway cost for the same calls.

A real gateway captures agents that resend their history with each call; then the governor of the same
home carries the spool into a lake. The first batches, which load the detectors, are not counted.

    make bench-pipeline ARGS=--quick

Prints one JSON object: ``cpu_ms_per_exchange`` (processor time of all governing processes),
``exchanges_per_s`` (by the clock), ``vs_gateway`` (governor's processor time over the gateway's) and
``peak_mib`` (memory of all governing processes; what they share counts once).
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.lake_traffic import STEPS, Conversation
from trajectory.child_process import free_port

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 16
RESULT_WORDS = 200
WARM_BATCHES = 2
_ASKED = b"x-bench-call"


def upstream(answers: list[bytes]) -> int:
    """Answer call ``n`` with ``answers[n]`` on a thread of this process; return the port."""
    started = threading.Event()
    port: list[int] = []

    async def serve() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: _answer(reader, writer, answers), "127.0.0.1", 0
        )
        port.append(server.sockets[0].getsockname()[1])
        started.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    started.wait()
    return port[0]


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: list[bytes]
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            fields = dict(line.split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
            await reader.readexactly(int(fields[b"content-length"]))
            body = answers[int(fields[_ASKED])]
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body)
                + body
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


@contextmanager
def gateway(folder: Path, port: int) -> Iterator[tuple[str, psutil.Process]]:
    """Run ``headrace gateway`` in front of an upstream; yield its address and process."""
    own = free_port()
    environment = {
        **os.environ,
        "HEADRACE_HOME": str(folder / "home"),
        "HEADRACE_POLICY_BUNDLE": str(ROOT / "policies" / "default"),
    }
    settings = {
        "gateway": {
            "port": own,
            "forward_port": None,
            "admin_port": None,
            "routes": [{"name": "bench", "upstream": f"http://127.0.0.1:{port}"}],
        }
    }
    (folder / "home").mkdir()
    (folder / "home" / "headrace.yaml").write_text(json.dumps(settings))
    headrace = [sys.executable, "-P", "-m", "headrace"]
    create = ["keys", "create", "--tenant", "acme", "--app", "agent", "--json"]
    made = subprocess.run(
        [*headrace, *create, "--purpose", "debug", "--purpose", "train_sft"],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    key = json.loads(made.stdout)["key"]
    process = subprocess.Popen([*headrace, "gateway"], env=environment)
    address = f"http://127.0.0.1:{own}/bench/v1/chat/completions"
    try:
        _wait(own)
        yield f"{address} {key}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            httpx.get(f"http://127.0.0.1:{port}/", timeout=1)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the gateway did not start")


async def drive(address: str, conversations: int, answers: list[bytes]) -> None:
    """Hold conversations, some at once, each call of one after the answer to the one before."""
    url, key = address.split(" ")
    limit = asyncio.Semaphore(AT_ONCE)
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=120) as client:

        async def hold(number: int) -> None:
            talk = Conversation(number, RESULT_WORDS)
            async with limit:
                for _ in range(STEPS):
                    request, response = talk.call()
                    answers.append(response)
                    asked = {_ASKED.decode(): str(len(answers) - 1)}
                    answer = await client.post(url, content=request, headers=asked)
                    answer.raise_for_status()

        await asyncio.gather(*(hold(number) for number in range(conversations)))


def govern(home_folder: Path) -> dict[str, Any]:
    """Carry the spool with the installation's own pipeline; return what it took."""
    from headrace.app.home import Home
    from headrace.app.master_key import load_secrets
    from headrace.app.setting_sources import load_settings
    from headrace.govern.worker import build_pipeline

    home = Home(home_folder).create()
    settings = load_settings(home=home.root)
    pipeline = build_pipeline(settings, home, load_secrets(home.secrets), print)
    records, warm = 0, 0
    begun = used = 0.0
    peak = 0
    ends: dict[str, int] = {}
    while (report := pipeline.run_batch()) is not None:
        warm += 1
        for name, count in report.dispositions.items():
            ends[name] = ends.get(name, 0) + count
        looked, before = time.perf_counter(), processor_time()
        peak = max(peak, resident())
        if warm == WARM_BATCHES:
            begun, used = time.perf_counter(), processor_time()
        elif warm > WARM_BATCHES:
            records += report.records
            # Looking at the memory is none of governance's work.
            begun += time.perf_counter() - looked
            used += processor_time() - before
    wall, cpu = time.perf_counter() - begun, processor_time() - used
    if warm <= WARM_BATCHES:
        raise SystemExit("too few exchanges: the detectors were still loading; ask for more")
    return {"measured": records, "wall": wall, "cpu": cpu, "peak": peak, "ends": ends}


def _family() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def processor_time() -> float:
    """Return the processor seconds of this process and of those that it started and that live."""
    return sum(sum(one.cpu_times()[:2]) for one in _family())


def resident() -> int:
    """Return the bytes in memory of this process and of those that it started, shared ones once."""
    return sum(one.memory_full_info().pss for one in _family())


def measure(conversations: int, folder: Path) -> dict[str, Any]:
    """Capture, govern, and compare."""
    answers: list[bytes] = []
    with gateway(folder, upstream(answers)) as (address, process):
        asyncio.run(drive(address, 2, answers))
        before = sum(process.cpu_times()[:2])
        asyncio.run(drive(address, conversations, answers))
        gateway_cpu = sum(process.cpu_times()[:2]) - before
    # A process of its own: what the load took stays out of its memory.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline", "--govern", str(folder / "home")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.PIPE,
    )
    spent = json.loads(done.stdout.splitlines()[-1])
    exchanges = conversations * STEPS
    cpu_ms = spent["cpu"] / spent["measured"] * 1000
    gateway_ms = gateway_cpu / exchanges * 1000
    return {
        "exchanges": len(answers),
        "measured": spent["measured"],
        "cpu_ms_per_exchange": round(cpu_ms, 3),
        "exchanges_per_s": round(spent["measured"] / spent["wall"]),
        "gateway_cpu_ms": round(gateway_ms, 3),
        "vs_gateway": round(cpu_ms / gateway_ms, 2),
        "peak_mib": round(spent["peak"] / 2**20),
        "stored": spent["ends"].get("stored", 0),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 s")
    parser.add_argument("--conversations", type=int, default=1_500)
    parser.add_argument("--govern", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.govern:
        print(json.dumps(govern(options.govern)))
        return
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        print(json.dumps(measure(300 if options.quick else options.conversations, folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
