"""Scorecards equal SciPy and plain counting to 1e-9; what has no case is not measured."""

import math
import random
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
import scipy.stats

from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from trajectory.step import Signal, Step, ToolResult

FIGURES = {
    "cost", "latency", "accuracy", "security", "stability", "recovery",
    "success_at_10", "success_at_25", "success_at_50",
}  # fmt: skip


class Case:
    """One attempt of a drawn world."""

    def __init__(self, number: int, draw: random.Random) -> None:
        self.name = f"t{number:02d}"
        self.model = draw.choice(["m@1", "m@2"])
        self.task = draw.choice("abcdef")
        self.success = draw.choice([None, 0.0, 1.0, 1.0])
        self.security = draw.choice([None, None, 0.0, 1.0])
        self.failed_tool = draw.random() < 0.4
        self.decisions = draw.randint(1, 6)
        self.tokens = draw.randint(1, 1000)
        self.seconds = draw.uniform(0.1, 30)

    def rows(self) -> tuple[list[Step], list[Signal]]:
        steps = []
        for at in range(self.decisions):
            step = replace(
                make.step(self.name, at), model_served=self.model, group_id=self.task,
                input_tokens=0, output_tokens=self.tokens, started_at=make.NOON,
                ended_at=make.NOON + timedelta(seconds=self.seconds),
            )  # fmt: skip
            if self.failed_tool and at == 0:
                result = ToolResult("c", '"no such file"', is_error=True)
                step = replace(step, tool_results=(result,))
            steps.append(step)
        said = (("success", self.success), ("security", self.security))
        signals = [
            make.signal(self.name, value, name=name, signal_id=f"{name}-{self.name}")
            for name, value in said
            if value is not None
        ]
        return steps, signals

    @property
    def cost(self) -> float:
        return self.decisions * self.tokens * 3.0 / 1e6

    @property
    def latency(self) -> float:
        return timedelta(seconds=self.seconds) / timedelta(microseconds=1) / 1000


def price(model: str) -> dict[str, Any]:
    return {
        "tenant_id": "acme", "model": model, "currency": "EUR", "input_per_million": 1.0,
        "output_per_million": 3.0, "cached_input_per_million": None,
        "valid_from": make.NOON - timedelta(days=1), "recorded_at": make.NOON,
    }  # fmt: skip


def share(values: list[bool]) -> tuple[int, float | None, float | None, float | None]:
    if not values:
        return 0, None, None, None
    found = scipy.stats.binomtest(sum(values), len(values)).proportion_ci(method="wilson")
    return len(values), sum(values) / len(values), found.low, found.high


def mean(values: list[float]) -> tuple[int, float | None, float | None, float | None]:
    if len(values) < 2:
        return len(values), values[0] if values else None, None, None
    low, high = scipy.stats.norm.interval(
        0.95, loc=math.fsum(values) / len(values), scale=scipy.stats.sem(values)
    )
    return len(values), math.fsum(values) / len(values), float(low), float(high)


def expected(cases: list[Case]) -> dict[str, tuple[int, float | None, float | None, float | None]]:
    judged = [case for case in cases if case.success is not None]
    tasks = defaultdict(list)
    for case in judged:
        tasks[case.task].append(case.success)
    agreement = [
        sum(a == b for a, b in combinations(some, 2)) / math.comb(len(some), 2)
        for some in tasks.values()
        if len(some) > 1
    ]
    steps, failures = sum(c.decisions for c in judged), sum(c.success == 0.0 for c in judged)
    n, rate, low, high = share([at >= failures for at in range(steps)])
    survived = {
        f"success_at_{t}": (n, *(None if v is None else v**t for v in (rate, low, high)))
        for t in (10, 25, 50)
    }
    return {
        "cost": mean([case.cost for case in cases]),
        "latency": mean([case.latency for case in cases]),
        "accuracy": share([case.success == 1.0 for case in judged]),
        "security": share([case.security == 1.0 for case in cases if case.security is not None]),
        "stability": mean(agreement),
        "recovery": share([case.success == 1.0 for case in judged if case.failed_tool]),
        **survived,  # type: ignore[dict-item]
    }


@pytest.mark.parametrize("seed", range(8))
def test_each_figure_equals_its_reference(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 (no secret)
    cases = [Case(number, draw) for number in range(draw.choice([1, 5, 40]))]
    made = [case.rows() for case in cases]
    session = bound(
        steps=[step for steps, _ in made for step in steps],
        signals=[signal for _, signals in made for signal in signals],
        prices=[price("m@1"), price("m@2")],
    )
    rows = session.query("SELECT * FROM scorecards WHERE dimension = 'model'").to_pylist()
    found = defaultdict(dict)
    for row in rows:
        found[row["value"]][row["figure"]] = row
    assert set(found) == {case.model for case in cases}
    for model, figures in found.items():
        assert set(figures) == FIGURES
        for name, (n, value, low, high) in expected([c for c in cases if c.model == model]).items():
            row = figures[name]
            assert (row["n"], row["state"]) == (n, "measured" if n else "not measured"), name
            for key, reference in (("measure", value), ("low", low), ("high", high)):
                wanted = None if reference is None else pytest.approx(reference, abs=1e-9)
                assert row[key] == wanted, (name, key)


def test_what_nobody_judged_or_priced_is_not_measured() -> None:
    session = bound(steps=[make.step("t", 0)])
    rows = session.query("SELECT * FROM scorecards WHERE dimension = 'tenant'").to_pylist()
    unknown = {row["figure"] for row in rows if row["state"] == "not measured"}
    assert unknown == FIGURES - {"latency"}
    for row in rows:
        if row["figure"] in unknown:
            assert (row["measure"], row["low"], row["high"], row["n"]) == (None, None, None, 0)


def test_sums_of_two_currencies_are_no_cost() -> None:
    steps = [replace(make.step(f"t{n}", 0), model_served=f"m@{n}") for n in (1, 2)]
    prices = [price("m@1"), {**price("m@2"), "currency": "USD"}]
    rows = bound(steps=steps, prices=prices).query(
        "SELECT dimension, value, n, measure FROM scorecards WHERE figure = 'cost'"
    )
    found = {(row["dimension"], row["value"]): row["n"] for row in rows.to_pylist()}
    assert found["tenant", "acme"] == 0
    assert found["model", "m@1"] == 1
