"""Writes the gateway's counters as metrics in Prometheus' text format."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from proxy.telemetry.counters import BUCKETS, Counters


def prometheus(
    counters: Counters,
    gauges: Mapping[str, float],
    *,
    disk: Mapping[str, int],
    levels: Mapping[str, str],
) -> bytes:
    """Return all counts in Prometheus' text format.

    Args:
        counters: what was counted.
        gauges: what is so now, by name.
        disk: failures of the spool's disk, by name.
        levels: what a full capture of each route holds now.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(counters, gauges, disk, levels))
    text: bytes = generate_latest(registry)
    return text


class _Metrics:
    """Hands the counts to the library: counting itself is a plain addition, which no lock slows down."""

    def __init__(
        self,
        counters: Counters,
        gauges: Mapping[str, float],
        disk: Mapping[str, int],
        levels: Mapping[str, str],
    ) -> None:
        self._counters = counters
        self._gauges = {"loop_lag_seconds": counters.loop_lag, **gauges}
        self._disk = disk
        self._levels = levels

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        counters = self._counters
        yield _counter("spool_errors", ["error"], {(name,): n for name, n in self._disk.items()})
        levels = dict.fromkeys(self._levels.items(), 1)
        yield _gauge("capture_level", ["route", "level"], levels)
        yield _counter("exchanges", ["route", "mode", "outcome"], counters.exchanges)
        statuses = {(route, f"{number}xx"): n for (route, number), n in counters.statuses.items()}
        yield _counter("responses", ["route", "status"], statuses)
        serving = {(*place, version): 1 for place, version in counters.serving.items()}
        yield _gauge("serving", ["model", "place", "version"], serving)
        for name, labels in TRIAL_LABELS.items():
            yield _gauge(f"trial_{name}", labels, counters.trials.get(name, {}))
        yield _counter("served", ["route", "version"], counters.served)
        yield _counter("artifacts", ["route", "artifact", "outcome"], counters.artifacts)
        yield _counter("inline", ["route", "outcome"], counters.inline)
        yield _counter("inline_surrogates", ["route", "what"], counters.inline_surrogates)
        yield _counter("guard", ["route", "decision"], counters.guard)
        yield _counter("webhooks", ["webhook", "outcome"], counters.webhooks)
        for name, label in _BY_WORD.items():
            counted: Mapping[str, int] = getattr(counters, name)
            yield _counter(name, [label], {(word,): n for word, n in counted.items()})
        for name in _PLAIN:
            yield _counter(name, [], {(): getattr(counters, name)})
        edges = [*map(floatToGoString, BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "headrace_exchange_seconds",
            "Seconds from a request's head to its exchange's end.",
            buckets=list(zip(edges, accumulate(counters.durations), strict=True)),
            sum_value=counters.duration_sum,
        )
        for name, value in self._gauges.items():
            yield _gauge(name, [], {(): value})


TRIAL_LABELS = {
    "state": ["trial", "rung", "outcome"],
    "sessions": ["trial", "comparison", "arm"],
    "wrong": ["trial", "comparison", "arm"],
    "log_e": ["trial", "comparison", "against"],
}
"""What is told of trials; ``log_e`` against ``no_worse`` speaks for harm, against ``worse`` for promotion."""
_BY_WORD = {
    "listeners": "listener",
    "refusals": "reason",
    "uncaptured": "reason",
    "unlimited": "reason",
    "shadows": "outcome",
    "tls_failures": "sni",
}
"""Counters that have one label."""
_PLAIN = (
    "feedback",
    "spool_expired_segments",
    "spool_expired_bytes",
    "elsewhere",
    "tunnels",
    "faults",
    "noise",
    "inline_seconds",
    "request_bytes",
    "response_bytes",
)


def _counter(name: str, labels: list[str], samples: Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily(f"headrace_{name}", _help(name), labels=labels)
    for values, number in sorted(samples.items()):
        family.add_metric([str(value) for value in values], number)
    return family


def _gauge(name: str, labels: list[str], samples: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(f"headrace_{name}", _help(name), labels=labels)
    for values, number in sorted(samples.items()):
        family.add_metric([str(value) for value in values], number)
    return family


def _help(name: str) -> str:
    return f"{name.replace('_', ' ').capitalize()}."
