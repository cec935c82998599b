"""Every statistic equals a direct computation in Python over the same trajectories."""

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from lakehouse.read.session import Session
from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from tests.lakehouse.read.views.test_scorecards import bounded_mean
from trajectory.step import Signal, Step, ToolCall, ToolResult

PRICE = {"m@1": (3.0, 1.0, 15.0), "m@2": (2.0, None, 10.0)}
ERRORS = {
    "request timed out": "timeout", "HTTP 429: slow down": "rate_limit",
    "403 Forbidden": "permission", "no such file": "not_found",
    "field x is required": "invalid_arguments", "connection refused": "network",
    "exited with code 2": "crashed", "no": "other",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One trajectory as the test knows it."""

    name: str
    cuts: tuple[tuple[str, str], ...]
    """(dimension, value)"""
    task: str
    success: bool | None
    steps: tuple[Step, ...]
    abandoned: bool
    tools: tuple[tuple[str, str | None], ...]
    """(tool, error class or None)"""

    @property
    def model_steps(self) -> list[Step]:
        return [step for step in self.steps if step.kind == "model"]

    @property
    def decisions(self) -> list[Step]:
        return [step for step in self.model_steps if step.role_in_graph == "agent"]


def draw_runs(seed: int) -> list[Run]:
    draw = random.Random(seed)  # noqa: S311 (no secret)
    runs = []
    for number in range(60):
        name = f"r{number:02d}"
        model, app = draw.choice(["m@1", "m@2"]), draw.choice(["shop", "desk"])
        harness, task = draw.choice(["h1", "h2", None]), draw.choice("abcdefgh")
        start = make.NOON + timedelta(minutes=number)
        tools = [
            (draw.choice(["find", "buy"]), draw.choice([None, None, *ERRORS]))
            for _ in range(draw.randint(0, 3))
        ]
        steps = []
        for index in range(draw.randint(1, 5)):
            begun = start + timedelta(seconds=3 * index)
            took = draw.uniform(0.2, 2.5)
            steps.append(make.step(
                name, index, app_id=app, harness_id=harness, group_id=f"task-{task}",
                model_served=model, started_at=begun, ended_at=begun + timedelta(seconds=took),
                latency_ms=took * 1000, time_to_first_token_ms=took * 300,
                input_tokens=draw.randint(10, 90), cached_input_tokens=draw.choice([None, 5]),
                output_tokens=draw.randint(1, 30),
                retry_of=f"{name}-s0" if index and draw.random() < 0.2 else None,
                role_in_graph="discarded" if index and draw.random() < 0.2 else "agent",
                tool_results=tuple(
                    ToolResult(f"c{place}", f'"{error or "fine"}"', error is not None)
                    for place, (_, error) in enumerate(tools)
                ) if index == 0 else (),
                tool_calls=tuple(
                    ToolCall(f"c{place}", tool, "{}") for place, (tool, _) in enumerate(tools)
                ) if index == 0 else (),
            ))  # fmt: skip
        cuts = [("tenant", "acme"), ("model", model), ("workload", f"{app}/test")]
        runs.append(Run(
            name, tuple(cuts + ([("harness", harness)] if harness else [])), f"task-{task}",
            draw.choice([True, False, None]), tuple(steps), draw.random() < 0.2,
            tuple((tool, ERRORS[error] if error else None) for tool, error in tools),
        ))  # fmt: skip
    return runs


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return draw_runs(7)


@pytest.fixture(scope="module")
def session(runs: list[Run]) -> Session:
    signals: list[Signal] = []
    for run in runs:
        if run.success is not None:
            signals.append(make.signal(run.name, float(run.success)))
        if run.abandoned:
            last = run.steps[0].step_id
            signals.append(make.signal(
                run.name, 1.0, name="abandoned", signal_id=f"a-{run.name}", target_kind="step",
                target_id=last, step_id=last,
            ))  # fmt: skip
    prices = [
        {"tenant_id": "acme", "model": model, "valid_from": make.NOON + moment, "recorded_at":
         make.NOON, "currency": "USD", "input_per_million": price[0] * factor,
         "cached_input_per_million": price[1], "output_per_million": price[2] * factor}
        for model, price in PRICE.items()
        for moment, factor in ((timedelta(0), 1), (timedelta(days=9), 7), (timedelta(days=-9), 5))
    ]  # fmt: skip
    return bound(steps=[step for run in runs for step in run.steps], signals=signals, prices=prices)


def cut(runs: list[Run]) -> Iterator[tuple[tuple[str, str], list[Run]]]:
    cuts: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        for one in run.cuts:
            cuts[one].append(run)
    yield from sorted(cuts.items())


def cost(run: Run) -> float:
    total = 0.0
    for step in run.model_steps:
        fresh, cached, output = PRICE[step.model_served or ""]
        kept = step.cached_input_tokens or 0
        paid = (step.input_tokens or 0) - kept
        total += paid * fresh + kept * (fresh if cached is None else cached)
        total += (step.output_tokens or 0) * output
    return total / 1e6


def wilson(successes: int, judged: int) -> tuple[float, float]:
    """The roots of (p - x)^2 = z^2 x (1 - x) / n."""
    z = statistics.NormalDist().inv_cdf(0.975)
    p, n = successes / judged, judged
    a, b, c = 1 + z * z / n, -(2 * p + z * z / n), p * p
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def expected_reliability(runs: list[Run]) -> dict[str, Any]:
    judged = [run for run in runs if run.success is not None]
    successes = sum(bool(run.success) for run in judged)
    low, high = wilson(successes, len(judged))
    rate = successes / len(judged)
    steps = [len(run.decisions) for run in runs]
    # The view counts tenths of a millisecond.
    waits = np.round([step.latency_ms for run in runs for step in run.decisions], 1)
    firsts = np.round([step.time_to_first_token_ms for run in runs for step in run.decisions], 1)
    durations = [
        (max(s.ended_at or s.started_at for s in run.steps) - min(s.started_at for s in run.steps))
        / timedelta(milliseconds=1)
        for run in runs
    ]
    tokens = sum((s.input_tokens or 0) + (s.output_tokens or 0) for r in judged for s in r.steps)
    return {
        "trajectories": len(runs), "judged": len(judged), "successes": successes,
        "success_rate": rate, "rate_low": low, "rate_high": high,
        "step_accuracy": rate ** (1 / statistics.fmean(len(run.decisions) for run in judged)),
        "retry_rate": sum(s.retry_of is not None for r in runs for s in r.model_steps)
        / sum(len(run.model_steps) for run in runs),
        "abandon_rate": statistics.fmean(run.abandoned for run in runs),
        "tokens_per_success": tokens / successes,
        "cost_per_success": sum(cost(run) for run in judged) / successes,
        "steps_p50": np.quantile(steps, 0.5), "steps_p95": np.quantile(steps, 0.95),
        "duration_ms_p50": np.quantile(durations, 0.5),
        "duration_ms_p95": np.quantile(durations, 0.95),
        "latency_ms_p50": np.quantile(waits, 0.5), "latency_ms_p95": np.quantile(waits, 0.95),
        "first_token_ms_p50": np.quantile(firsts, 0.5),
        "first_token_ms_p95": np.quantile(firsts, 0.95),
    }  # fmt: skip


def test_reliability_by_every_dimension(session: Session, runs: list[Run]) -> None:
    rows = session.query("SELECT * FROM reliability").to_pylist()
    found = {(row["dimension"], row["value"]): row for row in rows}
    assert len(found) == len(rows)
    assert set(found) == {one for one, _ in cut(runs)}
    assert {dimension for dimension, _ in found} == {"tenant", "model", "harness", "workload"}
    for one, some in cut(runs):
        expected = expected_reliability(some)
        assert {name: found[one][name] for name in expected} == pytest.approx(expected, rel=1e-9)
        assert found[one]["currency"] == "USD"


def test_passes_are_the_share_of_draws_of_k_attempts(session: Session, runs: list[Run]) -> None:
    """Counted over every draw of k of the n attempts, which is what the estimators stand for."""
    rows = session.query("SELECT * FROM task_passes").to_pylist()
    found = {(r["dimension"], r["value"], r["group_id"], r["k"]): r for r in rows}
    expected: dict[Any, tuple[float, float]] = {}
    for one, some in cut(runs):
        tasks: dict[str, list[bool]] = defaultdict(list)
        for run in some:
            if run.success is not None:
                tasks[run.task].append(run.success)
        for task, outcomes in tasks.items():
            for k in range(1, min(len(outcomes), 16) + 1):
                draws = list(combinations(outcomes, k))
                expected[*one, task, k] = (
                    sum(any(drawn) for drawn in draws) / len(draws),
                    sum(all(drawn) for drawn in draws) / len(draws),
                )
    assert {key: (row["pass_at_k"], row["pass_hat_k"]) for key, row in found.items()} == {
        key: pytest.approx(value, abs=1e-9) for key, value in expected.items()
    }
    rates = session.query("SELECT * FROM pass_rates").to_pylist()
    assert {(r["dimension"], r["value"], r["k"]) for r in rates} == {
        (dimension, value, k) for dimension, value, _, k in expected
    }
    for row in rates:
        one = (row["dimension"], row["value"], row["k"])
        some = [value for key, value in expected.items() if (*key[:2], key[3]) == one]
        assert row["tasks"] == len(some)
        for at, name in enumerate(("pass_at_k", "pass_hat_k")):
            wanted = bounded_mean([values[at] for values in some])[1:]
            said = tuple(row[f"{name}{part}"] for part in ("", "_low", "_high"))
            assert said == pytest.approx(wanted, abs=1e-9)


def test_two_tasks_that_always_passed_are_no_certainty() -> None:
    steps = [replace(make.step(f"t{n}", 0), group_id=f"g{n}") for n in range(2)]
    session = bound(steps=steps, signals=[make.signal(f"t{n}", 1.0) for n in range(2)])
    (row,) = session.query("SELECT * FROM pass_rates WHERE dimension = 'tenant'").to_pylist()
    assert (row["tasks"], row["pass_hat_k"], row["pass_hat_k_high"]) == (2, 1.0, 1.0)
    assert row["pass_hat_k_low"] == pytest.approx(0.3424, abs=1e-4)


def test_tool_errors_by_tool_and_class(session: Session, runs: list[Run]) -> None:
    rows = session.query("SELECT * FROM tool_errors").to_pylist()
    found = {(r["dimension"], r["value"], r["tool"], r["error_class"]): r for r in rows}
    expected = {}
    for one, some in cut(runs):
        for tool in ("find", "buy"):
            calls = [error for run in some for name, error in run.tools if name == tool]
            for error in {error for error in calls if error is not None}:
                expected[*one, tool, error] = (calls.count(error), len(calls))
    assert {key: (row["failures"], row["answered"]) for key, row in found.items()} == expected
    assert all(row["failure_rate"] == row["failures"] / row["answered"] for row in rows)


def test_success_by_model_is_the_same_count(session: Session) -> None:
    whole = session.query("SELECT * FROM reliability WHERE dimension = 'model' ORDER BY value")
    found = session.query("SELECT * FROM success_by_model ORDER BY model_served")
    whole = whole.rename_columns({"value": "model_served"}).select(found.column_names)
    assert found.num_rows == 2
    assert found.to_pylist() == whole.to_pylist()


def test_without_judgement_or_price_nothing_is_claimed() -> None:
    steps = [replace(make.step("t", 0), latency_ms=None)]
    (row,) = (
        bound(steps=steps).query("SELECT * FROM reliability WHERE dimension = 'model'").to_pylist()
    )
    for name in (
        "success_rate",
        "rate_low",
        "step_accuracy",
        "tokens_per_success",
        "cost_per_success",
    ):
        assert row[name] is None
    assert (row["trajectories"], row["judged"], row["retry_rate"]) == (1, 0, 0.0)


def test_no_success_is_a_rate_of_zero_with_an_interval() -> None:
    one = bound(steps=[make.step("t", 0)], signals=[make.signal("t", 0.0)])
    (row,) = one.query("SELECT * FROM reliability WHERE dimension = 'tenant'").to_pylist()
    assert (row["success_rate"], row["rate_low"], row["step_accuracy"]) == (0.0, 0.0, 0.0)
    assert 0.7 < row["rate_high"] < 0.8
    assert row["tokens_per_success"] is None
