"""Metrics: every count appears once, in the format that Prometheus reads."""

import re

from proxy.counters import BUCKETS, MOST_HOSTS, OTHERS, Counters, Inventory, prometheus, sound_host

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


def test_connections_are_counted_by_host_and_port() -> None:
    inventory = Inventory()
    for host, port in (("B.example", 443), ("a.example", 443), ("b.example", 443)):
        inventory.enter(host, port)
    rows = inventory.rows()
    assert [(r["host"], r["port"], r["connections"]) for r in rows if isinstance(r, dict)] == [
        ("b.example", 443, 2),
        ("a.example", 443, 1),
    ]
    first = rows[0]
    assert isinstance(first, dict)
    assert 0 < first["first_seen"] <= first["last_seen"]  # type: ignore[operator]


def test_it_stays_bounded() -> None:
    inventory = Inventory()
    for number in range(MOST_HOSTS + 50):
        inventory.enter(f"host{number}.example", 443)
    assert len(inventory.entries) == MOST_HOSTS + 1
    assert inventory.entries[OTHERS, 0].connections == 50
    inventory.enter("host1.example", 443)
    assert inventory.entries["host1.example", 443].connections == 2


def test_what_is_no_name_does_not_come_in() -> None:
    for text in (None, "", 'x"} 1\n', "name with spaces", "a" * 300, "ключ"):
        assert sound_host(text) == "-"
    assert sound_host("[::1]".strip("[]")) == "::1"
