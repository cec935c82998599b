"""The gate lets through what is better everywhere it is asked to be, and nothing else."""

from typing import Any

from train.canaries import CanaryReport
from train.evaluate import Comparison, SliceComparison
from train.gate import judge
from train.intervals import Interval
from train.recipes.settings import GateSettings


def comparison(
    low: float = 0.1, *, rate: float = 0.8, slice_gain: float = 0.1, tasks: int = 50
) -> Comparison:
    gain = Interval(0.2, low, 0.3, "newcombe-10")
    part = Interval(slice_gain, slice_gain - 0.1, slice_gain + 0.1, "newcombe-10")
    return Comparison(
        tasks=100,
        attempts=100,
        base=Interval(0.6, 0.5, 0.7, "wilson"),
        candidate=Interval(rate, rate - 0.1, rate + 0.1, "wilson"),
        gain=gain,
        reward_gain=gain,
        slices={"hotel": SliceComparison(tasks, 0.5, 0.5 + slice_gain, part)},
        confidence=0.95,
    )


def failed(found: Comparison | None, report: CanaryReport | None = None, **rules: Any) -> list[str]:
    return [f.rule for f in judge(GateSettings(**rules), found, report).failed]


def test_better_model_passes() -> None:
    verdict = judge(GateSettings(), comparison())
    assert (verdict.passed, verdict.failed) == (True, ())


def test_gain_that_may_be_chance_does_not_pass() -> None:
    assert failed(comparison(low=0.0)) == ["minimum_gain"]
    assert failed(comparison(low=0.05), minimum_gain=0.1) == ["minimum_gain"]


def test_slice_that_got_worse_does_not_pass_unless_it_is_too_small_to_say() -> None:
    assert failed(comparison(slice_gain=-0.2)) == ["largest_slice_loss:hotel"]
    assert failed(comparison(slice_gain=-0.2, tasks=5)) == []
    assert failed(comparison(slice_gain=-0.2), largest_slice_loss=0.3) == []


def test_success_has_a_floor() -> None:
    assert failed(comparison(rate=0.8), minimum_success=0.9) == ["minimum_success"]


def test_leaked_canary_does_not_pass() -> None:
    leaked = CanaryReport(prompts=4, secrets=10, leaked=1)
    assert failed(comparison(), leaked) == ["canaries"]
    assert failed(comparison(), leaked, canaries="ignore") == []


def test_unevaluated_model_does_not_pass() -> None:
    assert failed(None) == ["evaluated"]
