"""The gateway's cost beside nginx, envoy, smg, LiteLLM, mitmdump and direct calls, interleaved.

All variants talk to the same upstream. CPU is that of the proxy process alone (user and system).
The last line is one JSON object; its top-level figures are those of ``headrace_plain_journal``, the
plain listener, over 32 keep-alive connections; ``headrace_journal`` is the mitmproxy listener.
``--quick`` ends within 50 seconds; without it there are more rounds, and memory is watched over
50,000 requests. What capture costs is measured in gateways of its own, whose capture is switched on
and off (``gateway_overhead.py``).

Other gateways run in environments of their own (``scripts/test-environment litellm``,
``… gateways``), which a full run makes and a quick one only uses; nginx is what the machine has. What
is not there is left out: ``missing`` says how to get it. Without LiteLLM the run ends as a failure,
once everything else has its figures; ``--without-litellm`` allows it.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gateway_overhead import overheads
from benchmarks.gateway_traffic import Load, Variant, closed_loop, open_loop, run_upstream, streams
from benchmarks.gateway_variants import (
    CHAT,
    Upstream,
    environment_python,
    start_envoy,
    start_headrace,
    start_litellm,
    start_mitmdump,
    start_nginx,
    start_smg,
    wait_for,
)
from examples.practice.certificate import make_certificate

CONNECTIONS = (1, 8, 32)
QUICK_SECONDS = 36.0
"""A quick run begins no measurement of its second round later than so long after its start."""
_STARTED = time.monotonic()


def quantile(values: list[float], share: float) -> float:
    """Return a quantile; NaN where nothing was measured."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(variants: list[Variant], options: argparse.Namespace) -> None:
    """Measure all variants, interleaved."""
    for variant in variants:
        await closed_loop(variant, 8, options.warm // (10 if variant.slow else 1))
        variant.loads.clear()
        variant.rss_before = variant.rss()
    for round_ in range(options.rounds):
        for variant in variants:
            if options.quick and round_ and time.monotonic() - _STARTED > QUICK_SECONDS:
                break
            await one_round(variant, options, round_)
        print(f"round {round_ + 1} of {options.rounds}", file=sys.stderr)
    if options.memory:
        await watch_memory(variants, options.memory)
    for variant in variants:
        variant.rss_after = variant.rss()


async def one_round(variant: Variant, options: argparse.Namespace, round_: int) -> None:
    """Measure one variant once."""
    for connections in CONNECTIONS:
        share = 1 if connections == 32 else 4
        await closed_loop(
            variant, connections, options.requests // share // (10 if variant.slow else 1)
        )
    if options.quick and (round_ or variant.tls is not None):
        return
    if variant.name not in ("litellm", "smg"):  # they pass known paths alone
        await streams(variant, options.streams)
    await open_loop(variant, 20 if variant.slow else 150, options.seconds)


async def watch_memory(variants: list[Variant], count: int) -> None:
    """Note resident memory before and after many requests; their CPU is left out."""
    for variant in variants:
        if variant.process is None or variant.slow or variant.tls is not None:
            continue
        kept = Load(variant.loads[8].requests, variant.loads[8].cpu)
        await closed_loop(variant, 8, 2_000)
        variant.rss_before = variant.rss()
        await closed_loop(variant, 8, count)
        variant.loads[8] = kept


def row(variant: Variant, direct: Variant) -> dict[str, Any]:
    """Return what was measured of one variant; its main figures are those of 32 connections."""
    by_connections = {}
    for connections, load in sorted(variant.loads.items()):
        cpu = 1000 * load.cpu / max(1, load.requests)
        by_connections[str(connections)] = {
            "cpu_ms_per_request": round(cpu, 4),
            "rps_per_core": round(1000 / cpu, 1) if cpu else None,
        }
    return {
        **by_connections.get("32", {}),
        "added_p50_ms": added(variant.latencies, direct.latencies, 50),
        "added_p99_ms": added(variant.latencies, direct.latencies, 99),
        "sse_added_p50_ms": added(variant.delays, direct.delays, 50),
        "sse_added_p99_ms": added(variant.delays, direct.delays, 99),
        "rss_growth_mb": round(variant.rss_after - variant.rss_before, 1),
        "connections": by_connections,
    }


def added(theirs: list[float], ours: list[float], percent: int) -> float | None:
    """Return by how many milliseconds a quantile lies above the direct one."""
    if not theirs or not ours:
        return None
    return round(1000 * (quantile(theirs, percent / 100) - quantile(ours, percent / 100)), 3)


def summary(
    variants: list[Variant], capture: list[float], missing: dict[str, str]
) -> dict[str, Any]:
    """Return what was measured.

    Args:
        variants: what was compared.
        capture: what it costs, in each gateway where it was switched.
        missing: what was left out, and how to get it.
    """
    named = {variant.name: variant for variant in variants}
    rows = {
        variant.name: row(variant, named["direct_tls" if variant.tls else "direct"])
        for variant in variants
    }
    plain = rows["headrace_plain_journal"]

    def cpu(name: str, connections: int = 32) -> float | None:
        load = rows[name]["connections"].get(str(connections)) if name in rows else None
        return None if load is None else load["cpu_ms_per_request"]

    def faster(other: str, ours: str = "headrace_plain_journal") -> float | None:
        theirs, own = cpu(other), cpu(ours)
        return round(theirs / own, 2) if theirs and own else None

    def times(other: str, connections: int) -> float | None:
        theirs, own = cpu(other, connections), cpu("headrace_plain_journal", connections)
        return round(own / theirs, 2) if theirs and own else None

    kept, off = cpu("headrace_plain_journal"), cpu("headrace_plain_off")
    shares = [round(share, 3) for share in sorted(capture)]
    return {
        "variants": rows,
        "missing": missing,
        "cpu_vs_nginx": times("nginx", 32),
        "cpu_vs_nginx_c1": times("nginx", 1),
        "throughput_vs_envoy": faster("envoy"),
        "throughput_vs_smg": faster("smg"),
        "throughput_vs_litellm": faster("litellm"),
        "throughput_vs_mitmdump": faster("mitmdump"),
        "mitmproxy_listener_vs_mitmdump": faster("mitmdump", "headrace_journal"),
        "intercept_vs_mitmdump": faster("mitmdump_tls", "headrace_journal_tls"),
        "capture_us": round(1000 * (kept - off), 1) if kept and off else None,
        "capture_cpu_overhead": round(statistics.median(shares), 3),
        "capture_cpu_overhead_of_each_gateway": shares,
        "added_p50_ms": plain["added_p50_ms"],
        "added_p99_ms": plain["added_p99_ms"],
        "sse_added_p50_ms": plain["sse_added_p50_ms"],
        "sse_added_p99_ms": plain["sse_added_p99_ms"],
        "ttft_added_p99_ms": added(
            named["headrace_plain_journal"].firsts, named["direct"].firsts, 99
        ),
        "rss_growth_mb": plain["rss_growth_mb"],
        "direct_p50_ms": round(1000 * statistics.median(named["direct"].latencies), 3),
        "requests": named["headrace_plain_journal"].loads[32].requests,
    }


def start_upstream(home: Path) -> tuple[subprocess.Popen[bytes], Upstream]:
    """Start the upstream in a process of its own."""
    files = make_certificate(home / "upstream")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), "--upstream", str(files.cert)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    plain, secure = json.loads(process.stdout.readline())
    return process, Upstream(plain, secure, files.ca)


HOW_TO_GET = {
    "litellm": "run scripts/test-environment litellm once",
    "envoy": "run scripts/test-environment gateways once",
    "smg": "run scripts/test-environment gateways once",
    "nginx": "install the package nginx-light",
}
"""Other gateways; one that is not there, or does not answer, is left out."""


def start_variants(
    home: Path, upstream: Upstream, litellm: str | None, gateways: str | None
) -> list[Variant]:
    """Start everything that is compared; the slowest to start begins first."""
    others = [start_litellm(litellm, home / "litellm", upstream)] if litellm else []
    if gateways is not None:
        others += [
            start_envoy(gateways, home / "envoy", upstream),
            start_smg(gateways, home / "smg", upstream),
        ]
    nginx = start_nginx(home / "nginx", upstream)
    if nginx is not None:
        others.append(nginx)
    return [
        Variant("direct", upstream.plain, CHAT),
        start_mitmdump(home / "mitm", upstream),
        start_headrace(
            "headrace_plain_off", home / "plain-off", upstream, capture=False, listener="plain"
        ),
        start_headrace("headrace_plain_journal", home / "plain", upstream, listener="plain"),
        start_headrace(
            "headrace_plain_durable",
            home / "plain-durable",
            upstream,
            durability="durable",
            listener="plain",
        ),
        start_headrace("headrace_journal", home / "journal", upstream),
        Variant("direct_tls", upstream.secure, CHAT, roots=upstream.roots),
        start_mitmdump(home / "mitm-tls", upstream, tls=True),
        start_headrace("headrace_journal_tls", home / "tls", upstream, tls=True),
        *others,
    ]


def ready(variants: list[Variant], *, quick: bool) -> list[Variant]:
    """Wait until all variants answer; leave out other gateways that do not in time."""
    up = []
    for variant in variants:
        if wait_for(variant, 15 if quick and variant.name in HOW_TO_GET else 120):
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
    options.rounds = 2 if options.quick else 4
    options.requests = 800 if options.quick else 3000
    options.warm = 100 if options.quick else 400
    options.seconds = 0.6 if options.quick else 4.0
    options.streams = 20 if options.quick else 100
    options.memory = 0 if options.quick else 50_000
    options.gateways = 1 if options.quick else 5
    options.turns = 16 if options.quick else 60
    litellm = None
    if not options.without_litellm:
        litellm = environment_python("litellm", build=not options.quick)
    gateways = environment_python("gateways", build=not options.quick)
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        try:
            process, upstream = start_upstream(Path(folder))
            processes.append(process)
            installed = start_variants(Path(folder), upstream, litellm, gateways)
            processes += [v.process for v in installed if v.process is not None]
            variants = ready(installed, quick=options.quick)
            missing = left_out(variants, installed)
            asyncio.run(measure(variants, options))
            capture = asyncio.run(
                overheads(Path(folder), upstream, processes=options.gateways, rounds=options.turns)
            )
            print(json.dumps(summary(variants, capture, missing)), flush=True)
        finally:
            stop(processes)
    if "litellm" in missing and not options.without_litellm:
        sys.exit(f"LiteLLM has no figures: {missing['litellm']}, or give --without-litellm")


if __name__ == "__main__":
    main()
