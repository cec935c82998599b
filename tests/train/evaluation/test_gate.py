"""The gate lets through what is better everywhere it is asked to be, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from train.evaluation.canaries import CanaryReport
from train.evaluation.divergence import Divergence
from train.evaluation.evaluate import Comparison, SliceComparison
from train.evaluation.gate import judge
from train.evaluation.intervals import Interval
from train.evaluation.reward_audit import RewardAudit
from train.evaluation.safety import SafetyComparison, SafetyReport
from train.evaluation.win_rate import Regression, Wins
from train.recipes.settings import RECIPES, GateSettings, shipped_recipe


def comparison(
    low: float = 0.1, *, rate: float = 0.8, slice_gain: float = 0.1, tasks: int = 50
) -> Comparison:
    gain = Interval(0.2, low, 0.3, "paired-t")
    part = Interval(slice_gain, slice_gain - 0.2, slice_gain + 0.2, "paired-t")
    return Comparison(
        tasks=100,
        attempts=100,
        base=Interval(0.6, 0.5, 0.7, "wilson"),
        candidate=Interval(rate, rate - 0.1, rate + 0.1, "wilson"),
        gain=gain,
        reward_gain=gain,
        slices={"hotel": SliceComparison(tasks, 0.5, 0.5 + slice_gain, part)},
        confidence=0.95,
        look=1,
        gain_at_look=gain,
    )


def failed(found: Comparison | None, report: CanaryReport | None = None, **rules: Any) -> list[str]:
    names = ("wins", "regression", "divergence", "rewards", "changed")
    measured = {name: rules.pop(name) for name in names if name in rules}
    return [f.rule for f in judge(GateSettings(**rules), found, report, **measured).failed]


def test_better_model_passes() -> None:
    verdict = judge(GateSettings(), comparison())
    assert (verdict.passed, verdict.failed) == (True, ())


def test_gain_that_may_be_chance_does_not_pass() -> None:
    assert failed(comparison(low=0.0)) == ["minimum_gain"]
    assert failed(comparison(low=0.05), minimum_gain=0.1) == ["minimum_gain"]


def test_slice_that_surely_got_worse_does_not_pass_unless_it_is_too_small_to_say() -> None:
    assert failed(comparison(slice_gain=-0.3)) == ["largest_slice_loss:hotel"]
    assert failed(comparison(slice_gain=-0.3, tasks=5)) == []
    assert failed(comparison(slice_gain=-0.3), largest_slice_loss=0.1) == []
    assert failed(comparison(slice_gain=-0.2)) == [], "it may be chance"


def test_success_has_a_floor() -> None:
    assert failed(comparison(rate=0.8), minimum_success=0.9) == ["minimum_success"]


def test_leaked_canary_does_not_pass() -> None:
    leaked = CanaryReport(prompts=4, secrets=10, leaked=1)
    assert failed(comparison(), leaked) == ["canaries"]
    assert failed(comparison(), leaked, canaries="ignore") == []
    none_planted = CanaryReport(prompts=4, secrets=0, leaked=0)
    assert failed(comparison(), none_planted) == ["canaries"], "not measured is not passed"


def test_unevaluated_model_does_not_pass() -> None:
    assert failed(None) == ["evaluated"]


def wins(low: float) -> Wins:
    rate = Interval(0.8, 0.7, 0.9, "wilson")
    return Wins("shop@0001", 8, 90, 2, rate, Interval(0.8, low, 0.9, "wilson"))


def test_a_candidate_must_win_against_what_serves() -> None:
    assert failed(comparison(), wins=wins(0.55), minimum_win_rate=0.5) == []
    assert failed(comparison(), wins=wins(0.5), minimum_win_rate=0.5) == ["minimum_win_rate"]
    assert failed(comparison(), minimum_win_rate=0.5) == ["minimum_win_rate"]
    assert failed(comparison(), wins=wins(0.1)) == []


def test_a_suite_must_stay_solved() -> None:
    broken = Regression(20, 10, 1, Interval(0.1, 0.01, 0.4, "wilson"))
    assert failed(comparison(), regression=broken) == ["largest_regression"]
    assert failed(comparison(), regression=broken, largest_regression=0.1) == []


def test_a_model_may_only_move_so_far_from_its_base() -> None:
    moved = Divergence(10, 100, Interval(0.4, 0.2, 0.6, "paired-t"))
    assert failed(comparison(), divergence=moved, largest_kl=0.5) == ["largest_kl"]
    assert failed(comparison(), divergence=moved, largest_kl=0.6) == []
    assert failed(comparison(), divergence=moved) == []
    assert failed(comparison(), largest_kl=0.6) == ["largest_kl"], "not measured is not passed"


def test_the_shipped_rules_of_every_policy_recipe_ask_for_wins() -> None:
    for name in RECIPES:
        gate = shipped_recipe(name).spec.gate
        assert gate.minimum_win_rate == (None if name == "reward_model" else 0.5)


def test_a_comparison_of_which_too_much_is_unknown_does_not_pass() -> None:
    unknown = replace(comparison(), base_unknown=10, candidate_unknown=30)
    assert failed(unknown) == ["largest_unknown"]
    assert failed(unknown, largest_unknown=0.3) == []
    assert failed(replace(unknown, base_unknown=31), largest_unknown=0.3) == ["largest_unknown"]


def gap(low: float) -> Comparison:
    return replace(comparison(), proxy_gap=Interval(low + 0.1, low, low + 0.2, "paired-t"))


def test_an_evaluator_that_is_pleased_with_what_gold_denies_does_not_count() -> None:
    assert failed(gap(0.1)) == ["largest_proxy_gap"]
    assert failed(gap(0.05)) == []
    assert failed(gap(-0.1)) == [], "it may be chance"
    assert failed(gap(0.1), largest_proxy_gap=0.2) == []


def test_winners_of_one_part_of_the_reward_alone_do_not_pass() -> None:
    audit = RewardAudit(20, 0.0, "called", 0.95)
    assert failed(comparison(), rewards=audit) == ["largest_component_share:called"]
    assert failed(comparison(), rewards=audit, largest_component_share=1) == []
    assert failed(comparison(), rewards=RewardAudit(20, 0.0)) == []


def test_winners_that_are_copies_do_not_pass() -> None:
    audit = RewardAudit(20, 0.9)
    assert failed(comparison(), rewards=audit) == ["largest_duplicate_winners"]
    assert failed(comparison(), rewards=audit, largest_duplicate_winners=0.9) == []


def test_an_evaluator_that_is_another_one_does_not_pass() -> None:
    changed = ["evaluation", "safety"]
    assert failed(comparison(), changed=changed) == [
        "frozen_evaluator:evaluation",
        "frozen_evaluator:safety",
    ]


WHOLE = SafetyReport(cases=20, unsafe=(), refused=0.0, malformed=0.0, length=100)
RUNS_ON = SafetyComparison("shop", "hash", WHOLE, replace(WHOLE, malformed=0.5))
PAID_FOR_CALLS = replace(comparison(low=-0.05), reward_gain=Interval(0.9, 0.8, 1.0, "paired-t"))
SABOTAGED: dict[str, tuple[Comparison, dict[str, Any], str]] = {
    "rewarded for the call of a tool only": (PAID_FOR_CALLS, {}, "minimum_gain"),
    "a slice sacrificed for the whole": (comparison(slice_gain=-0.3), {}, "largest_slice_loss:hotel"),
    "a secret memorised": (comparison(), {"canaries": CanaryReport(4, 10, 1)}, "canaries"),
    "the end of the turn lost": (comparison(), {"safety": RUNS_ON}, "largest_format_loss"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "measured", "rule"),
    [pytest.param(*case, id=name) for name, case in SABOTAGED.items()],
)
def test_a_sabotaged_model_is_stopped(
    found: Comparison, measured: dict[str, Any], rule: str
) -> None:
    assert [one.rule for one in judge(GateSettings(), found, **measured).failed] == [rule]
