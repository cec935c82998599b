"""How far one gateway goes: requests per second at a latency, memory, system calls, two workers."""

import asyncio
import os
import re
import shutil
import signal
import statistics
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gateway_traffic import Load, Variant, closed_loop, connect, open_loop
from benchmarks.gateway_variants import Upstream, start_headrace, wait_for
from trajectory.child_process import free_port

LIMITS_MS = (1, 5, 10, 50)
STEP = 1.5
"""Between one rate and the next."""
_HELD = 0.95
"""Of a rate's requests that a variant must answer in its time."""
BURST_CONNECTIONS, BURST_BYTES = 64, 1024 * 1024
TRACED = 2_000
"""Requests whose system calls are counted."""


def quantile(values: list[float], share: float) -> float:
    """Return a quantile; NaN where nothing was measured."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def frontier(variant: Variant, *, start: float, seconds: float) -> dict[str, int]:
    """Return the highest of the tried rates at which the p99 stays within each limit.

    A rate that misses the last limit is tried once more: this machine may have done something else.
    """
    best = dict.fromkeys(LIMITS_MS, 0.0)
    rate = start
    while True:
        for _ in range(2):
            found = await _p99(variant, rate, seconds)
            for limit in LIMITS_MS:
                if found <= limit:
                    best[limit] = rate
            if found <= LIMITS_MS[-1]:
                break
        else:
            return {str(limit): round(held) for limit, held in best.items()}
        rate *= STEP


async def _p99(variant: Variant, rate: float, seconds: float) -> float:
    """Return the p99 in milliseconds; infinity where the rate is not held."""
    now = asyncio.get_running_loop().time
    began = now()
    try:
        latencies = await open_loop(variant, rate, seconds)
    except ConnectionError:
        return float("inf")
    if now() - began > seconds / _HELD + LIMITS_MS[-1] / 1000:
        return float("inf")
    return 1000 * quantile(latencies, 0.99)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident megabytes of one gateway."""

    requests: int
    idle_mb: float
    """After some thousand requests."""
    steady_mb: float
    """After ``requests`` more."""
    burst_mb: float
    """While many large requests are in flight."""
    recovered_mb: float
    """Some seconds after them."""

    def row(self) -> dict[str, float]:
        """Return it for the report."""
        growth = round(self.steady_mb - self.idle_mb, 1)
        return {
            **{name: round(value, 1) for name, value in asdict(self).items()},
            "growth_mb": growth,
        }


async def memory(variant: Variant, requests: int) -> Memory:
    """Watch a gateway's memory over many requests, then over a burst of large ones."""
    await closed_loop(variant, 8, min(2_000, requests))
    idle = variant.rss()
    await closed_loop(variant, 8, requests)
    steady = variant.rss()
    large = variant.request(b'{"model": "bench", "messages": []}'.ljust(BURST_BYTES))
    channels = [await connect(variant) for _ in range(BURST_CONNECTIONS)]
    calls = asyncio.gather(*(channel.call(large) for channel in channels))
    burst = steady
    while not calls.done():
        await asyncio.sleep(0.01)
        burst = max(burst, variant.rss())
    await calls
    for channel in channels:
        channel.close()
    await asyncio.sleep(3)
    return Memory(requests, idle, steady, burst, variant.rss())


async def system_calls(variant: Variant, connections: int) -> float | None:
    """Return the system calls per request as strace counts them; None where it may not."""
    program = shutil.which("strace")
    if program is None or variant.process is None:
        return None
    pids = [word for each in variant.processes() for word in ("-p", str(each.pid))]
    process = await asyncio.create_subprocess_exec(
        program, "-c", "-f", "-U", "calls,name", *pids, stderr=subprocess.PIPE
    )
    count = TRACED // (10 if variant.slow else 1)
    try:
        await asyncio.sleep(0.5)
        if process.returncode is None:
            await closed_loop(variant, connections, count)
            process.send_signal(signal.SIGINT)
    finally:
        _, table = await process.communicate()
    total = re.search(rb"(\d+) total", table)
    return round(int(total[1]) / count, 2) if total else None


async def two_workers(
    home: Path, upstream: Upstream, one: Variant, *, requests: int, turns: int
) -> dict[str, Any]:
    """Compare two workers with one gateway of the same settings.

    On four cores or more the figure is requests per second. On fewer, client and upstream take the
    second worker's time, so it is CPU per request: what two workers answer on cores of their own.
    Four busy processes on two cores drive each other out of the caches: two gateways that share
    nothing cost 1.05 to 1.2 times as much side by side as one alone. So a second gateway stands
    beside the one, and answers the other half of the connections.
    """
    started = (
        start_headrace(
            "two_workers", home / "two", upstream, listener="plain", workers=2, port=free_port()
        ),
        start_headrace("beside", home / "beside", upstream, listener="plain"),
    )
    two, beside = started
    alone: list[Load] = []
    neighbours: list[float] = []
    both: list[Load] = []
    try:
        for variant in started:
            if not wait_for(variant):
                raise RuntimeError(f"{variant.name} does not start")
        for variant in (one, beside, two):
            await closed_loop(variant, 64, requests)
        for _ in range(turns):
            alone.append(await closed_loop(one, 64, requests))
            both.append(await closed_loop(two, 64, requests))
            halves = await asyncio.gather(
                closed_loop(one, 32, requests // 2), closed_loop(beside, 32, requests // 2)
            )
            neighbours.append(sum(half.cpu for half in halves))
    finally:
        for variant in started:
            assert variant.process is not None
            variant.process.terminate()
            variant.process.wait(30)
    cpu = 2 / statistics.median(load.cpu for load in both)
    time = statistics.median(load.seconds for load in alone)
    enough = (os.cpu_count() or 1) >= 4
    ratio = (
        time / statistics.median(load.seconds for load in both)
        if enough
        else cpu * statistics.median(neighbours)
    )
    return {
        "two_workers_vs_one": round(ratio, 2),
        "two_workers_vs_one_alone": round(cpu * statistics.median(load.cpu for load in alone), 2),
        "two_workers_measured_by": "requests per second" if enough else "CPU per request",
    }
