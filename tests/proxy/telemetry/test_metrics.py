"""Metrics: every count appears once, in the format that Prometheus reads."""

import re
from collections.abc import Mapping

from proxy.telemetry.counters import BUCKETS, Counters

_SAMPLE = re.compile(r'^headrace_[a-z_]+(\{([a-z]+="[^"\\]*",?)*\})? -?[0-9.e+-]+$')


def exposed(
    counters: Counters,
    gauges: Mapping[str, float],
    *,
    disk: Mapping[str, int],
    levels: Mapping[str, str],
) -> str:
    """Return the metrics as Prometheus gets them."""
    from proxy.telemetry.metrics import prometheus

    return prometheus(counters, gauges, disk=disk, levels=levels).decode()


def full() -> Counters:
    """Return counters in which everything has been counted."""
    counters = Counters()
    counters.exchanges["openai", "base_url", "complete"] += 2
    counters.statuses["openai", 2] += 2
    counters.refusals["no_key"] += 1
    counters.uncaptured["opt-out"] += 1
    counters.unlimited["estimated"] += 1
    counters.tls_failures["api.openai.com"] += 1
    counters.tunnelled("other.example", 443)
    for seconds in (0.001, 0.2, 400.0):
        counters.observe(seconds)
    return counters


def test_each_line_is_a_sample_of_a_declared_metric() -> None:
    text = exposed(
        full(),
        {"flows": 3, "loop_lag": 0.5},
        disk={"ENOSPC": 1},
        levels={"openai": "text", "vllm": "tokens"},
    )
    declared = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    for line in samples:
        assert _SAMPLE.match(line), line
        name = re.sub(r"_(bucket|sum|count)$", "", re.split(r"[{ ]", line)[0])
        assert name in declared, line
    assert len(samples) == len(set(samples))
    assert 'headrace_capture_level{level="tokens",route="vllm"} 1.0' in samples
    assert 'headrace_spool_errors_total{error="ENOSPC"} 1.0' in samples
    assert 'headrace_tls_failures_total{sni="api.openai.com"} 1.0' in samples
    assert "headrace_tunnels_total 1.0" in samples


def test_the_histogram_adds_up() -> None:
    counters = full()
    assert sum(counters.durations) == 3
    assert counters.durations[0] == counters.durations[-1] == 1
    text = exposed(counters, {}, disk={}, levels={})
    assert f'headrace_exchange_seconds_bucket{{le="{BUCKETS[-1]}"}} 2' in text
    assert 'headrace_exchange_seconds_bucket{le="+Inf"} 3' in text
