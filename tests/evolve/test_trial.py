"""The e-processes of a trial: exact expectations, error rates in simulated trials, and `ville` beside them."""

import math
import random
from datetime import timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evolve.detectors import Counted
from evolve.policy import Ladder
from evolve.trial import BETS, LEAST, ArmComparison, Arms, judge, log_factor, look

LADDER = Ladder()
SHARES = st.floats(0.02, 0.98)


def drawn(draw: random.Random, sessions: int, bad: float) -> Counted:
    return Counted(sessions, sum(draw.random() < bad for _ in range(sessions)))


def fresh(draw: random.Random, sessions: int, candidate: float, control: float) -> Arms:
    """A look at sessions of which the gateway gave the canary its share."""
    some = sum(draw.random() < LADDER.canary for _ in range(sessions))
    return Arms(drawn(draw, some, candidate), drawn(draw, sessions - some, control))


def climbed(seed: int, candidate: float, control: float, looks: int = 120) -> tuple[str, Arms]:
    """A whole trial with success alone, 50 sessions a look."""
    draw, known = random.Random(seed), ArmComparison()  # noqa: S311 - no secret
    for _ in range(looks):
        known = look(known, fresh(draw, 50, candidate, control), LADDER.margin)
        verdict = judge(LADDER, {"success": known}, timedelta(0))
        if verdict.outcome != "go on":
            return verdict.outcome, known.arms
    return "end", known.arms


def expectation(
    sizes: tuple[int, int], shares: tuple[float, float], usual: float, bet: float, bound: float
) -> float:
    """The e-value's expectation, summed over everything that can happen."""
    (n, m), (candidate, control) = sizes, shares
    return math.fsum(
        float(stats.binom.pmf(x, n, candidate) * stats.binom.pmf(y, m, control))
        * math.exp(log_factor(Arms(Counted(n, x), Counted(m, y)), usual, bet, bound))
        for x, y in product(range(n + 1), range(m + 1))
    )


@given(
    sizes=st.tuples(st.integers(0, 6), st.integers(0, 6)), control=SHARES, less=st.floats(0, 1),
    usual=SHARES, bet=st.sampled_from(BETS),
)  # fmt: skip
def test_harm_is_expected_at_most_once_where_the_candidate_is_no_worse(
    sizes: tuple[int, int], control: float, less: float, usual: float, bet: float
) -> None:
    shares = (control * less, control)
    assert expectation(sizes, shares, usual, 0.05 * bet, 0.0) <= 1 + 1e-6


@given(
    sizes=st.tuples(st.integers(0, 6), st.integers(0, 6)), control=st.floats(0.02, 0.9),
    more=st.floats(0, 1), usual=SHARES, bet=st.sampled_from(BETS),
)  # fmt: skip
def test_no_worse_is_expected_at_most_once_where_the_candidate_is_worse_by_the_margin(
    sizes: tuple[int, int], control: float, more: float, usual: float, bet: float
) -> None:
    shares = (control + 0.05 + more * (0.95 - control), control)
    assert expectation(sizes, shares, usual, 0.05 - 0.05 * bet, 0.05) <= 1 + 1e-6


def test_the_factor_is_the_ratio_of_two_likelihoods() -> None:
    arms = Arms(Counted(10, 6), Counted(30, 9))
    pooled = (10 * 0.425 + 30 * 0.225) / 40
    wanted = (
        stats.binom.logpmf(6, 10, 0.425) + stats.binom.logpmf(9, 30, 0.225)
        - stats.binom.logpmf(6, 10, pooled) - stats.binom.logpmf(9, 30, pooled)
    )  # fmt: skip
    assert log_factor(arms, 0.275, 0.2, 0.0) == pytest.approx(float(wanted))


def test_a_guess_is_not_bet_on() -> None:
    """The first look only tells how often it goes wrong at all."""
    first = look(ArmComparison(), Arms(Counted(200, 200), Counted(200, 0)), 0.05)
    assert (first.log_harm, first.log_no_worse) == (0.0, 0.0)
    assert first.arms.sessions >= LEAST
    assert look(first, Arms(Counted(50, 50), Counted(50, 0)), 0.05).log_harm > 5


def test_how_sessions_are_parted_into_looks_changes_no_bound() -> None:
    """A look that brings nothing changes nothing."""
    known = look(ArmComparison(), Arms(Counted(40, 9), Counted(60, 11)), 0.05)
    nothing = Arms(Counted(0, 0), Counted(0, 0))
    assert look(known, nothing, 0.05) == known


def test_one_that_is_as_good_is_not_rolled_back() -> None:
    ends = [climbed(seed, 0.35, 0.35)[0] for seed in range(200)]
    assert ends.count("roll back") <= 0.05 * 200
    assert ends.count("promote") >= 0.7 * 200


def test_one_that_is_worse_does_not_go_live() -> None:
    ends = [climbed(seed, 0.45, 0.35) for seed in range(200)]
    assert sum(end == "promote" for end, _ in ends) <= 0.05 * 200
    exposed = sorted(arms.candidate.sessions for _, arms in ends)
    assert exposed[100] <= 500


def test_one_that_is_better_goes_live_soon() -> None:
    ends = [climbed(seed, 0.20, 0.35) for seed in range(200)]
    soon = [end for end, arms in ends if end == "promote" and max(a.sessions for a in arms) <= 600]
    assert len(soon) >= 0.9 * 200


def test_shares_that_move_fool_nobody() -> None:
    """Both arms get worse in the same moment, and better again: the control is concurrent."""
    ends = []
    for seed in range(100):
        draw, known = random.Random(seed), ArmComparison()  # noqa: S311 - no secret
        for at in range(60):
            bad = 0.2 + 0.4 * (at // 10 % 2)
            known = look(known, fresh(draw, 50, bad, bad), LADDER.margin)
            ends.append(judge(LADDER, {"success": known}, timedelta(0)).outcome)
            if ends[-1] != "go on":
                break
    assert ends.count("roll back") <= 5


def test_it_is_no_slower_than_the_betting_test_of_ville() -> None:
    """Theirs has no equal for two shares: it weighs each session by its arm's share, for any bounded number."""
    from ville import BettingABTest

    ours, theirs = [], []
    for seed in range(12):
        draw = np.random.default_rng(seed)
        treated = draw.random(3000) < 0.5
        good = (draw.random(3000) < np.where(treated, 0.80, 0.65)).astype(float)
        told = BettingABTest(alpha=0.05, propensity=0.5, grid=400).fit(good, treated)
        theirs.append(told.stopping_time() or 3000)
        known = ArmComparison()
        for at in range(0, 3000, 25):
            one, bad = treated[at : at + 25], 1 - good[at : at + 25]
            arms = [Counted(int(m.sum()), int(bad[m].sum())) for m in (~one, one)]
            known = look(known, Arms(*arms), 0.05)  # theirs is the candidate that is worse
            if known.log_harm >= math.log(2 / 0.05):
                ours.append(at + 25)
                break
        else:
            ours.append(3000)
    assert np.median(ours) <= np.median(theirs)


def test_harm_anywhere_rolls_back_and_is_named() -> None:
    fine = ArmComparison(no_worse=(9.0,) * 4)
    bad = ArmComparison(Arms(Counted(80, 40), Counted(200, 10)), harm=(20.0,) * 4)
    found = judge(LADDER, {"success": fine, "refusals": bad}, timedelta(0))
    assert found.outcome == "roll back"
    assert found.reasons == (
        "refusals is worse: 40 of 80 sessions went wrong, control 10 of 200 sessions went wrong",
    )


def test_the_risk_of_a_false_rollback_is_shared() -> None:
    just = ArmComparison(harm=(math.log(2 / 0.05) + 0.01,) * 4)
    assert judge(LADDER, {"success": just}, timedelta(0)).outcome == "roll back"
    some = {"success": ArmComparison(), "cost": just, "latency": ArmComparison()}
    assert judge(LADDER, some, timedelta(0)).outcome == "go on"


def test_a_promotion_needs_every_comparison() -> None:
    shown = ArmComparison(no_worse=(math.log(20) + 0.01,) * 4)
    assert judge(LADDER, {"success": shown, "cost": shown}, timedelta(0)).outcome == "promote"
    found = judge(LADDER, {"success": shown, "cost": ArmComparison()}, timedelta(0))
    assert found.outcome == "go on"
    assert [reason.partition(":")[0] for reason in found.reasons] == ["cost"]


def test_a_canary_ends_when_its_days_are_over() -> None:
    nothing = {"success": ArmComparison()}
    assert judge(LADDER, nothing, timedelta(days=13.9)).outcome == "go on"
    assert judge(LADDER, nothing, timedelta(days=14)).outcome == "end"
