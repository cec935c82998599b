"""Scorecards equal SciPy and plain counting to 1e-9; what has no case is not measured."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from trajectory.step import Signal, Step, Tokens, ToolResult

CARDS = {
    "CLASSic": {"cost", "latency", "accuracy", "security", "stability"},
    "consistency": {"all_pass_2", "all_pass_4", "all_pass_8"},
    "robustness": {"recovery"},
    "horizon": {"success_at_10", "success_at_25", "success_at_50"},
    "predictability": {"steps_spread", "cost_spread", "length_tells"},
    "safety": {
        "destructive_calls", "failures_that_changed", "failures_that_destroyed",
        "cost_p95", "cost_p99", "cost_shortfall",
    },
}  # fmt: skip
FIGURES = set().union(*CARDS.values())
CALIBRATION = {
    "CLEAR": {"calibration_error", "brier", "risk_coverage"},
    "predictability": {"confidence_tells"},
}
Z = float(scipy.stats.norm.ppf(0.975))
CHANGES = ("idempotent", "write", "destructive")

type Figure = tuple[int, float | None, float | None, float | None]
"""Cases, measure, and the interval's bounds."""


class Case:
    """One attempt of a drawn world."""

    def __init__(self, number: int, draw: random.Random) -> None:
        self.name = f"t{number:03d}"
        self.model = draw.choice(["m@1", "m@2"])
        self.task = draw.choice("abcdef")
        self.success = draw.choice([None, 0.0, 1.0, 1.0])
        self.security = draw.choice([None, None, 0.0, 1.0])
        self.failed_tool = draw.random() < 0.4
        self.decisions = draw.randint(1, 6)
        self.tokens = [draw.randint(1, 12) for _ in range(self.decisions)]
        self.seconds = draw.uniform(0.1, 30)
        effects = ["none", "read", "idempotent", "write", "destructive", "unknown"]
        self.effects = [draw.choice(effects) for _ in range(draw.choice([0, 0, 1, 3]))]
        # Of few levels, so that several trajectories are equally sure.
        self.logprobs = [
            draw.choice([None, tuple(draw.choice([0.0, -0.1, -0.5, -3.0]) for _ in range(2))])
            for _ in range(self.decisions)
        ]

    def rows(self) -> tuple[list[Step], list[Signal], list[Tokens]]:
        steps, tokens = [], []
        for at in range(self.decisions):
            step = replace(
                make.step(self.name, at), model_served=self.model, group_id=self.task,
                input_tokens=0, output_tokens=self.tokens[at],
                ended_at=make.NOON + timedelta(seconds=self.seconds + self.decisions),
            )  # fmt: skip
            if self.failed_tool and at == 0:
                result = ToolResult("c", '"no such file"', is_error=True)
                step = replace(step, tool_results=(result,))
            steps.append(step)
            said = self.logprobs[at]
            tokens.append(
                Tokens("acme", self.name, step.step_id, step.started_at, "tok", (1,),
                       (2, 3), said, None, self.model, "exact")
            )  # fmt: skip
        for at, effect in enumerate(self.effects):
            dispatch = make.tool_step(self.name, 50 + at)
            ext = json.dumps({"side_effect": effect})
            times = {"started_at": make.NOON, "ended_at": make.NOON}
            steps.append(replace(dispatch, ext=ext, group_id=self.task, **times))  # type: ignore[arg-type]
        said = (("success", self.success), ("security", self.security))
        signals = [
            make.signal(self.name, value, name=name, signal_id=f"{name}-{self.name}")
            for name, value in said
            if value is not None
        ]
        return steps, signals, tokens

    @property
    def cost(self) -> float:
        return sum(self.tokens) * 3.0 / 1e6

    @property
    def latency(self) -> float:
        return timedelta(seconds=self.seconds + self.decisions) / timedelta(milliseconds=1)

    @property
    def known(self) -> list[str]:
        return [effect for effect in self.effects if effect != "unknown"]

    def confidence(self, at: int) -> float | None:
        said = self.logprobs[at]
        return None if said is None else math.exp(math.fsum(said) / len(said))


def price(model: str) -> dict[str, Any]:
    return {
        "tenant_id": "acme", "model": model, "currency": "EUR", "input_per_million": 1.0,
        "output_per_million": 3.0, "cached_input_per_million": None,
        "valid_from": make.NOON - timedelta(days=1), "recorded_at": make.NOON,
    }  # fmt: skip


def share(values: list[bool]) -> Figure:
    if not values:
        return 0, None, None, None
    found = scipy.stats.binomtest(sum(values), len(values)).proportion_ci(method="wilson")
    return len(values), sum(values) / len(values), found.low, found.high


def mean(values: Sequence[float]) -> Figure:
    if len(values) < 2:
        return len(values), values[0] if values else None, None, None
    center, error = math.fsum(values) / len(values), float(scipy.stats.sem(values))
    if error == 0.0:  # SciPy knows no such distribution
        return len(values), center, center, center
    low, high = scipy.stats.norm.interval(0.95, loc=center, scale=error)
    return len(values), center, max(float(low), 0.0), float(high)


def bounded_mean(values: Sequence[float]) -> Figure:
    """Return the mean of values between 0 and 1 with the shares that Wilson's score test does not reject."""
    if not values:
        return 0, None, None, None
    n, center = len(values), math.fsum(values) / len(values)
    # (share - center)² = Z² share (1 - share) / n
    bounds = np.roots([1 + Z**2 / n, -2 * center - Z**2 / n, center**2])
    low, high = sorted(np.clip(bounds.real, 0.0, 1.0))
    return n, center, float(low), float(high)


def quantile(values: Sequence[float], p: float) -> Figure:
    """Return a quantile between two order statistics (Conover, Practical Nonparametric Statistics, 3.2)."""
    n, ordered = len(values), sorted(values)
    if not n:
        return 0, None, None, None
    wide = Z * math.sqrt(n * p * (1 - p))
    low, high = math.ceil(n * p - wide), math.ceil(n * p + wide)
    return (
        n,
        float(np.quantile(ordered, p)),
        ordered[low - 1] if low >= 1 else None,
        ordered[high - 1] if high <= n else None,
    )


def shortfall(values: Sequence[float]) -> Figure:
    """Return the expected shortfall of 95 %, as Rockafellar and Uryasev (2000) write it."""
    if not values:
        return 0, None, None, None
    at_risk = float(np.quantile(values, 0.95))
    return mean([at_risk + max(value - at_risk, 0.0) / 0.05 for value in values])


def area(cases: Sequence[tuple[float, bool]]) -> Figure:
    """Return the area under the receiver's curve, its interval by DeLong, Clarke-Pearson and DeLong (1988)."""
    good = [value for value, success in cases if success]
    bad = [value for value, success in cases if not success]
    if not good or not bad:
        return len(cases), None, None, None
    measure = scipy.stats.mannwhitneyu(good, bad).statistic / (len(good) * len(bad))
    if len(good) < 2 or len(bad) < 2:
        return len(cases), measure, None, None

    def beats(one: float, others: list[float]) -> float:
        return sum((one > other) + 0.5 * (one == other) for other in others) / len(others)

    variance = np.var([beats(one, bad) for one in good], ddof=1) / len(good)
    variance += np.var([beats(one, good) for one in bad], ddof=1) / len(bad)
    wide = Z * math.sqrt(variance)
    return len(cases), measure, max(measure - wide, 0.0), min(measure + wide, 1.0)


def spread(tasks: dict[str, list[float]]) -> Figure:
    return mean(
        [float(scipy.stats.variation(some, ddof=1)) for some in tasks.values() if len(some) > 1]
    )


def by_task(cases: Sequence[Case], value: Callable[[Case], float]) -> dict[str, list[float]]:
    tasks: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        tasks[case.task].append(value(case))
    return tasks


def expected(cases: list[Case]) -> dict[str, Figure]:
    judged = [case for case in cases if case.success is not None]
    tasks = by_task(judged, lambda case: case.success or 0.0)
    agreement = [
        sum(a == b for a, b in combinations(some, 2)) / math.comb(len(some), 2)
        for some in tasks.values()
        if len(some) > 1
    ]
    all_pass = {
        f"all_pass_{k}": bounded_mean([
            math.comb(int(sum(some)), k) / math.comb(len(some), k)
            for some in tasks.values()
            if len(some) >= k
        ])
        for k in (2, 4, 8)
    }  # fmt: skip
    steps, failures = sum(c.decisions for c in judged), sum(c.success == 0.0 for c in judged)
    n, rate, low, high = share([at >= failures for at in range(steps)])
    survived: dict[str, Figure] = {
        f"success_at_{t}": (
            n,
            None if rate is None else rate**t,
            None if low is None else low**t,
            None if high is None else high**t,
        )
        for t in (10, 25, 50)
    }
    costs = [case.cost for case in cases]
    seen = [case for case in judged if case.success == 0.0 and case.known]
    return {
        "cost": mean(costs),
        "latency": mean([case.latency for case in cases]),
        "accuracy": share([case.success == 1.0 for case in judged]),
        "security": share([case.security == 1.0 for case in cases if case.security is not None]),
        "stability": bounded_mean(agreement),
        "recovery": share([case.success == 1.0 for case in judged if case.failed_tool]),
        "steps_spread": spread(by_task(cases, lambda case: float(case.decisions))),
        "cost_spread": spread(by_task(cases, lambda case: case.cost)),
        "length_tells": area([(case.tokens[0], case.success == 1.0) for case in judged]),
        "destructive_calls": share(
            [effect == "destructive" for case in cases for effect in case.known]
        ),
        "failures_that_changed": share([any(e in CHANGES for e in case.known) for case in seen]),
        "failures_that_destroyed": share(["destructive" in case.known for case in seen]),
        "cost_p95": quantile(costs, 0.95),
        "cost_p99": quantile(costs, 0.99),
        "cost_shortfall": shortfall(costs),
        **all_pass,
        **survived,
    }


def calibration_error(cases: Sequence[tuple[float, bool]]) -> Figure:
    """Return the expected calibration error of ten bins (Guo et al. 2017), as bins are weighed by hand."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for p, right in cases:
        bins[min(int(p * 10), 9)].append((p, right))
    gaps = {at: math.fsum(p - right for p, right in some) for at, some in bins.items()}
    n, _, low, high = mean(
        [np.sign(gaps[at]) * (p - right) for at, some in bins.items() for p, right in some]
    )
    measure = math.fsum(abs(gap) for gap in gaps.values()) / n if n else None
    return n, measure, None if low is None else max(low, 0.0), high


def risk_coverage(cases: Sequence[tuple[float, bool]]) -> Figure:
    """Return the area under risk and coverage (Geifman and El-Yaniv 2017); equally sure answers go together.

    Its interval is that of the infinitesimal jackknife: the derivatives by the cases' weights are
    taken with a complex step, which has no rounding error.
    """
    if not cases:
        return 0, None, None, None
    n = len(cases)
    sure = np.array([p for p, _ in cases])
    wrong = np.array([not right for _, right in cases], dtype=float)
    above = sure[None, :] >= sure[:, None]

    def weighted(weights: Any) -> Any:
        return weights @ ((above @ (weights * wrong)) / (above @ weights))

    equal = np.full(n, 1 / n, dtype=complex)
    measure = weighted(equal).real
    if n < 2:
        return n, measure, None, None
    step = 1e-30
    influence = [
        weighted(equal + 1j * step * (np.arange(n) == at) - 1j * step / n).imag / step
        for at in range(n)
    ]
    wide = Z * np.std(influence, ddof=1) / math.sqrt(n)
    return n, measure, max(measure - wide, 0.0), min(measure + wide, 1.0)


def expected_calibration(cases: list[Case]) -> dict[str, Figure]:
    judged = [case for case in cases if case.success is not None]
    last = [(p, c.success == 1.0) for c in judged if (p := c.confidence(-1)) is not None]
    first = [(p, c.success == 1.0) for c in judged if (p := c.confidence(0)) is not None]
    n, brier, low, high = mean([(p - right) ** 2 for p, right in last])
    low, high = (None, None) if low is None or high is None else (max(low, 0.0), min(high, 1.0))
    return {
        "calibration_error": calibration_error(last),
        "brier": (n, brier, low, high),
        "risk_coverage": risk_coverage(last),
        "confidence_tells": area(first),
    }


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize(
    ("view", "cards", "reference"),
    [("scorecards", CARDS, expected), ("calibration", CALIBRATION, expected_calibration)],
)
def test_each_figure_equals_its_reference(
    seed: int,
    view: str,
    cards: dict[str, set[str]],
    reference: Callable[[list[Case]], dict[str, Figure]],
) -> None:
    draw = random.Random(seed)  # noqa: S311 (no secret)
    # Of so many, both bounds of the hundredth dearest are known.
    count = 900 if seed == 8 else draw.choice([1, 2, 5, 40, 150])
    cases = [Case(number, draw) for number in range(count)]
    made = [case.rows() for case in cases]
    session = bound(
        steps=[step for steps, _, _ in made for step in steps],
        signals=[signal for _, signals, _ in made for signal in signals],
        tokens=[one for _, _, tokens in made for one in tokens],
        prices=[price("m@1"), price("m@2")],
    )
    rows = session.query(f"SELECT * FROM {view} WHERE dimension = 'model'").to_pylist()  # noqa: S608
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        assert row["figure"] in cards[row["card"]]
        found[row["value"]][row["figure"]] = row
    assert set(found) == {case.model for case in cases}
    for model, figures in found.items():
        assert set(figures) == set().union(*cards.values())
        for name, (n, value, low, high) in reference(
            [c for c in cases if c.model == model]
        ).items():
            row = figures[name]
            state = "not measured" if value is None else "measured"
            assert (row["n"], row["state"]) == (n, state), name
            assert (row["reason"] is None) == (value is not None), name
            for key, wanted in (("measure", value), ("low", low), ("high", high)):
                near = None if wanted is None else pytest.approx(wanted, abs=1e-9)
                assert row[key] == near, (name, key)


def test_a_hosted_model_is_calibrated_by_the_mean_that_its_provider_tells() -> None:
    sure = [replace(make.step(f"t{at}", 0), mean_logprob=math.log(0.8)) for at in range(4)]
    signals = [make.signal(f"t{at}", float(at < 3), signal_id=f"s{at}") for at in range(4)]
    rows = bound(steps=sure, signals=signals).query(
        "SELECT * FROM calibration WHERE dimension = 'tenant' ORDER BY figure"
    )
    found = {row["figure"]: row for row in rows.to_pylist()}
    assert found["calibration_error"]["measure"] == pytest.approx(0.05, abs=1e-9)
    assert found["brier"]["measure"] == pytest.approx((3 * 0.04 + 0.64) / 4, abs=1e-9)
    assert {row["n"] for row in found.values()} == {4}


def test_what_nobody_judged_or_priced_is_not_measured_and_says_why() -> None:
    session = bound(steps=[make.step("t", 0)])
    for view, known in (("scorecards", FIGURES - {"latency"}), ("calibration", None)):
        sql = f"SELECT * FROM {view} WHERE dimension = 'tenant'"  # noqa: S608
        rows = session.query(sql).to_pylist()
        unknown = {row["figure"] for row in rows if row["state"] == "not measured"}
        assert unknown == (known or set().union(*CALIBRATION.values()))
        for row in rows:
            if row["figure"] in unknown:
                assert (row["measure"], row["low"], row["high"], row["n"]) == (None, None, None, 0)
                assert row["reason"]


def test_sums_of_two_currencies_are_no_cost() -> None:
    steps = [replace(make.step(f"t{n}", 0), model_served=f"m@{n}") for n in (1, 2)]
    prices = [price("m@1"), {**price("m@2"), "currency": "USD"}]
    rows = bound(steps=steps, prices=prices).query(
        "SELECT dimension, value, n, reason FROM scorecards WHERE card = 'CLASSic' AND figure = 'cost'"
    )
    found = {(row["dimension"], row["value"]): row for row in rows.to_pylist()}
    assert found["tenant", "acme"]["n"] == 0
    assert found["tenant", "acme"]["reason"] == "several currencies"
    assert found["model", "m@1"]["n"] == 1
