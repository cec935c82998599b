"""The gateway's cost beside nginx, envoy, smg, Portkey, LiteLLM, mitmdump and direct calls, interleaved.

All variants talk to the same upstream. CPU is that of the proxy process alone (user and system).
The last line is one JSON object; its top-level figures are those of ``headrace_plain_journal``, the
plain listener, over 32 keep-alive connections; ``headrace_journal`` is the mitmproxy listener.
``--quick`` ends within 50 seconds and leaves out most frontiers. What capture costs is measured in
gateways of its own, whose capture is switched on and off (``gateway_overhead.py``).

Other gateways run in environments of their own (``scripts/test-environment litellm``,
``… gateways``, ``… portkey``), which a full run makes and a quick one only uses; nginx and strace
are what the machine has. What is not there is left out: ``missing`` says how to get it. Without
LiteLLM the run ends as a failure, once everything else has its figures; ``--without-litellm``
allows it.
"""

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.gateway_capacity import frontier, memory, quantile, system_calls, two_workers
from benchmarks.gateway_overhead import Overhead, overheads
from benchmarks.gateway_traffic import (
    STALL_SECONDS,
    Variant,
    closed_loop,
    open_loop,
    run_upstream,
    streams,
)
from benchmarks.gateway_variants import (
    Upstream,
    environment,
    head_of_answer,
    start_envoy,
    start_headrace,
    start_litellm,
    start_mitmdump,
    start_nginx,
    start_portkey,
    start_smg,
    start_upstream,
    wait_for,
)

MAIN = "headrace_plain_journal"
CONNECTIONS = (1, 8, 32)
RATE = 150
"""Requests per second under which latencies are compared."""
TRACED = ("nginx", "envoy", "smg", "headrace_plain_off", MAIN)
QUICK_SECONDS = 22.0
"""A quick run begins no measurement of its second round later than so long after its start."""
_STARTED = time.monotonic()


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    rounds: int
    timed_rounds: int
    """In so many of them streams and latencies under a fixed rate; with TLS in one less."""
    requests: int
    seconds: float
    streams: int
    streamed: tuple[str, ...] | None
    """Whose streams are measured; None for all that pass any on."""
    memory_requests: int
    frontiers: tuple[str, ...]
    frontier_seconds: float
    frontier_start: float
    overhead_gateways: int
    overhead_turns: int
    worker_turns: int
    """How often two workers are compared with two gateways."""


FULL = Effort(
    rounds=3,
    timed_rounds=2,
    requests=2_000,
    seconds=2.0,
    streams=40,
    streamed=None,
    memory_requests=50_000,
    frontiers=("direct", "nginx", "envoy", "smg", MAIN, "headrace_journal", "portkey", "litellm"),
    frontier_seconds=1.0,
    frontier_start=300,
    overhead_gateways=4,
    overhead_turns=40,
    worker_turns=12,
)
QUICK = Effort(
    rounds=2,
    timed_rounds=1,
    requests=240,
    seconds=0.3,
    streams=6,
    streamed=("direct", "nginx", MAIN, "headrace_journal"),
    memory_requests=600,
    frontiers=(MAIN,),
    frontier_seconds=0.2,
    frontier_start=1_000,
    overhead_gateways=1,
    overhead_turns=6,
    worker_turns=2,
)


@dataclass
class Findings:
    """What is measured beside the rounds."""

    frontiers: dict[str, dict[str, int]] = field(default_factory=dict)
    memory: dict[str, dict[str, float]] = field(default_factory=dict)
    system_calls: dict[str, dict[str, float | None]] = field(default_factory=dict)
    workers: dict[str, Any] = field(default_factory=dict)
    capture: list[Overhead] = field(default_factory=list)
    """What capture adds to the CPU, in each gateway where it was switched."""
    litellm_rust: bool | None = None
    """Whether LiteLLM's Rust core answered."""


async def measure(
    variants: list[Variant], effort: Effort, home: Path, upstream: Upstream
) -> Findings:
    """Measure all variants, interleaved, then what is measured of some."""
    found, named = Findings(), {variant.name: variant for variant in variants}
    for variant in variants:
        await closed_loop(variant, 8, effort.requests // (80 if variant.slow else 8))
    for round_ in range(effort.rounds):
        for variant in variants:
            late = time.monotonic() - _STARTED > QUICK_SECONDS
            if effort is not QUICK or round_ == 0 or not late:
                await one_round(variant, effort, round_)
        tell(f"round {round_ + 1} of {effort.rounds}")
    if "litellm" in named:
        found.litellm_rust = b"x-litellm-rust: true" in head_of_answer(named["litellm"]).lower()
    for name in filter(named.__contains__, effort.frontiers):
        variant = named[name]
        found.frontiers[name] = await frontier(
            variant,
            start=effort.frontier_start / (15 if variant.slow else 1),
            seconds=effort.frontier_seconds,
        )
    tell("frontiers")
    for name in (MAIN,) if effort is QUICK else (MAIN, "headrace_journal"):
        count = effort.memory_requests // (1 if name == MAIN else 5)
        found.memory[name] = (await memory(named[name], count)).row()
    tell("memory")
    for name in filter(named.__contains__, TRACED if effort is FULL else TRACED[-1:]):
        found.system_calls[name] = {
            str(connections): await system_calls(named[name], connections)
            for connections in (1, 32)
        }
    tell("system calls")
    found.workers = await two_workers(
        home, upstream, named[MAIN], requests=2 * effort.requests, turns=effort.worker_turns
    )
    tell("two workers")
    found.capture = await overheads(
        home, upstream, processes=effort.overhead_gateways, rounds=effort.overhead_turns
    )
    return found


def tell(what: str) -> None:
    """Say what has been measured, and since when."""
    print(f"{time.monotonic() - _STARTED:5.0f} s: {what}", file=sys.stderr)


async def one_round(variant: Variant, effort: Effort, round_: int) -> None:
    """Measure one variant once."""
    for connections in CONNECTIONS:
        count = effort.requests // (1 if connections == 32 else 4) // (10 if variant.slow else 1)
        variant.loads[connections].add(await closed_loop(variant, connections, count))
    if round_ >= (effort.timed_rounds if variant.tls is None else effort.timed_rounds - 1):
        return
    if variant.streaming and (effort.streamed is None or variant.name in effort.streamed):
        await streams(variant, effort.streams)
    variant.latencies += await open_loop(
        variant, RATE / 10 if variant.slow else RATE, effort.seconds
    )


def row(variant: Variant, direct: Variant, found: Findings) -> dict[str, Any]:
    """Return what was measured of one variant; its main figures are those of 32 connections."""
    by_connections = {
        str(connections): {
            "cpu_ms_per_request": round(load.cpu_ms, 4),
            "rps_per_core": round(1000 / load.cpu_ms, 1) if load.cpu else None,
            "added_p50_ms": added(load.latencies, direct.loads[connections].latencies, 50),
            "added_p99_ms": added(load.latencies, direct.loads[connections].latencies, 99),
        }
        for connections, load in sorted(variant.loads.items())
    }
    main = by_connections["32"]
    return {
        "cpu_ms_per_request": main["cpu_ms_per_request"],
        "rps_per_core": main["rps_per_core"],
        "added_p50_ms": added(variant.latencies, direct.latencies, 50),
        "added_p99_ms": added(variant.latencies, direct.latencies, 99),
        "sse_added_p50_ms": added(variant.delays, direct.delays, 50),
        "sse_added_p99_ms": added(variant.delays, direct.delays, 99),
        "ttft_added_p99_ms": added(variant.firsts, direct.firsts, 99),
        "sse_chunks": len(variant.delays),
        "sse_stalls": sum(delay > STALL_SECONDS for delay in variant.delays),
        "frontier": found.frontiers.get(variant.name),
        "memory": found.memory.get(variant.name),
        "system_calls_per_request": found.system_calls.get(variant.name),
        "connections": by_connections,
    }


def added(theirs: list[float], ours: list[float], percent: int) -> float | None:
    """Return by how many milliseconds a quantile lies above the direct one."""
    if not theirs or not ours:
        return None
    return round(1000 * (quantile(theirs, percent / 100) - quantile(ours, percent / 100)), 3)


def summary(variants: list[Variant], found: Findings, missing: dict[str, str]) -> dict[str, Any]:
    """Return what was measured; ``missing`` says how to get what was left out."""
    named = {variant.name: variant for variant in variants}
    rows = {
        name: row(variant, named["direct_tls" if variant.tls else "direct"], found)
        for name, variant in named.items()
    }

    def cpu(name: str, connections: int = 32) -> float | None:
        return named[name].loads[connections].cpu_ms if name in named else None

    def times(one: float | None, other: float | None) -> float | None:
        return round(one / other, 2) if one and other else None

    kept, one = cpu(MAIN), rows[MAIN]["connections"]["1"]
    shares = sorted(round(each.share, 3) for each in found.capture)
    taken = {
        name: rows[MAIN][name] for name in rows[MAIN] if name.startswith(("added", "sse", "ttft"))
    }
    return {
        "variants": rows,
        "missing": missing,
        "litellm_rust": found.litellm_rust,
        "cpu_vs_nginx": times(kept, cpu("nginx")),
        "cpu_vs_nginx_c1": times(cpu(MAIN, 1), cpu("nginx", 1)),
        **{
            f"throughput_vs_{other}": times(cpu(other), kept)
            for other in ("envoy", "smg", "portkey", "litellm", "mitmdump")
        },
        "mitmproxy_listener_vs_mitmdump": times(cpu("mitmdump"), cpu("headrace_journal")),
        "intercept_vs_mitmdump": times(cpu("mitmdump_tls"), cpu("headrace_journal_tls")),
        "capture_us": round(statistics.median(each.microseconds for each in found.capture), 1),
        "capture_cpu_overhead": round(statistics.median(shares), 3),
        "capture_cpu_overhead_of_each_gateway": shares,
        **taken,
        "sse_stalls_direct": rows["direct"]["sse_stalls"],
        "c1_added_p50_ms": one["added_p50_ms"],
        "c1_added_p99_ms": one["added_p99_ms"],
        "frontier": found.frontiers[MAIN],
        "memory": found.memory[MAIN],
        "system_calls_per_request": found.system_calls[MAIN],
        **found.workers,
        "direct_p50_ms": round(1000 * statistics.median(named["direct"].latencies), 3),
        "requests": named[MAIN].loads[32].requests,
    }


type Start = Callable[[Path, Path, Upstream], Variant]

OTHERS: dict[str, tuple[str, Start]] = {
    "litellm": ("litellm", start_litellm),
    "portkey": ("portkey", start_portkey),
    "envoy": ("gateways", start_envoy),
    "smg": ("gateways", start_smg),
}
"""Other gateways, the environment of each, and what starts it."""
HOW_TO_GET = {
    **{name: f"run scripts/test-environment {place} once" for name, (place, _) in OTHERS.items()},
    "nginx": "install the package nginx-light",
}


def start_variants(
    home: Path, upstream: Upstream, names: list[str], *, build: bool
) -> list[Variant]:
    """Start everything that is compared; the slowest to start begins first.

    Args:
        home: a folder for what they write.
        upstream: where all of them send.
        names: the other gateways that are wanted.
        build: make the environments that are not there.
    """
    others = []
    for name in names:
        place, start = OTHERS[name]
        folder = environment(place, build=build)
        if folder is not None:
            others.append(start(folder, home / name, upstream))
    nginx = start_nginx(home / "nginx", upstream)
    if nginx is not None:
        others.append(nginx)

    def ours(name: str, **settings: Any) -> Variant:
        return start_headrace(name, home / name, upstream, **settings)

    return [
        Variant("direct", upstream.plain),
        start_mitmdump(home / "mitmdump", upstream),
        ours("headrace_plain_off", listener="plain", capture=False),
        ours(MAIN, listener="plain"),
        ours("headrace_plain_durable", listener="plain", durability="durable"),
        ours("headrace_journal", listener="mitmproxy"),
        Variant("direct_tls", upstream.secure, roots=upstream.roots),
        start_mitmdump(home / "mitmdump_tls", upstream, tls=True),
        ours("headrace_journal_tls", tls=True),
        *others,
    ]


def ready(variants: list[Variant], *, quick: bool) -> list[Variant]:
    """Wait until all variants answer; leave out other gateways that do not in time."""
    up = []
    for variant in variants:
        if wait_for(variant, 30 if quick and variant.name in HOW_TO_GET else 120):
            up.append(variant)
        elif variant.name not in HOW_TO_GET:
            raise RuntimeError(f"{variant.name} does not start")
    return up


def left_out(variants: list[Variant], installed: list[Variant]) -> dict[str, str]:
    """Say what is not compared, and how to get it."""
    compared = {variant.name for variant in variants}
    there = {variant.name for variant in installed}
    missing = {
        name: "it did not answer in time; run again on a quieter machine" if name in there else how
        for name, how in HOW_TO_GET.items()
        if name not in compared
    }
    for name, how in missing.items():
        print(f"{name} is left out: {how}", file=sys.stderr)
    return missing


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """End all processes."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds")
    parser.add_argument("--without-litellm", action="store_true", help="leave LiteLLM out")
    parser.add_argument("--upstream", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        run_upstream(options.upstream)
        return
    names = [name for name in OTHERS if name != "litellm" or not options.without_litellm]
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        try:
            process, upstream = start_upstream(home)
            processes.append(process)
            installed = start_variants(home, upstream, names, build=not options.quick)
            processes += [v.process for v in installed if v.process is not None]
            variants = ready(installed, quick=options.quick)
            missing = left_out(variants, installed)
            tell(f"{len(variants)} ways to the upstream")
            found = asyncio.run(
                measure(variants, QUICK if options.quick else FULL, home, upstream),
                loop_factory=uvloop.new_event_loop,
            )
            print(json.dumps(summary(variants, found, missing)), flush=True)
        finally:
            stop(processes)
    if "litellm" in missing and not options.without_litellm:
        sys.exit(f"LiteLLM has no figures: {missing['litellm']}, or give --without-litellm")


if __name__ == "__main__":
    main()
