"""Metrics: every count appears once, in the format that Prometheus reads."""

import re

from proxy.counters import BUCKETS, Counters, prometheus
from proxy.inventory import MOST_HOSTS

_SAMPLE = re.compile(r'^headrace_[a-z_]+(\{([a-z]+="[^"\\]*",?)*\})? -?[0-9.e+-]+$')


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
    text = prometheus(
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
    assert 'headrace_capture_level{route="vllm",level="tokens"} 1' in samples
    assert 'headrace_spool_errors_total{error="ENOSPC"} 1' in samples
    assert 'headrace_tls_failures_total{sni="api.openai.com"} 1' in samples
    assert "headrace_tunnels_total 1" in samples


def test_the_histogram_adds_up() -> None:
    counters = full()
    assert sum(counters.durations) == 3
    assert counters.durations[0] == counters.durations[-1] == 1
    text = prometheus(counters, {}, disk={}, levels={})
    assert f'headrace_exchange_seconds_bucket{{le="{BUCKETS[-1]}"}} 2' in text
    assert 'headrace_exchange_seconds_bucket{le="+Inf"} 3' in text


def test_the_inventory_is_bounded_and_holds_only_names() -> None:
    counters = Counters()
    for number in range(MOST_HOSTS + 5):
        counters.tunnelled(f"host{number}.example", 443)
    counters.tunnelled('forged"} 1\n', 443)
    counters.tunnelled("HOST1.example", 443)
    rows = counters.inventory.rows()
    assert len(rows) == MOST_HOSTS + 1
    found = {row["host"]: row["connections"] for row in rows if isinstance(row, dict)}
    assert found["others"] == 6
    assert found["host1.example"] == 2
