"""The detectors against `ville`, against plain sums, and against what they promise."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.detectors import (
    Counted,
    Series,
    cusum,
    e_process,
    examine,
    examine_mix,
    log_best,
    log_marginal,
    total,
)
from evolve.policy import Detectors, EvidenceWindow, MixDrift

WINDOW = EvidenceWindow()
SPEC = Detectors()
COUNTS = st.integers(0, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n)).map(lambda pair: Counted(*pair))
)


def night(draw: random.Random, share: float, sessions: int = 200) -> Counted:
    return Counted(sessions, sum(draw.random() < share for _ in range(sessions)))


def nights(draw: random.Random, shares: Sequence[float]) -> tuple[Counted, ...]:
    return tuple(night(draw, share) for share in shares)


@given(counted=COUNTS.filter(lambda one: one.sessions), share=st.floats(0.05, 0.95))
def test_the_mixture_is_that_of_ville(counted: Counted, share: float) -> None:
    """Theirs is the Bayes factor against a point; ours the mixture's likelihood alone."""
    from ville import BernoulliTest

    n, k = counted
    theirs = BernoulliTest(share, prior=(0.5, 0.5)).update(np.array([1.0] * k + [0.0] * (n - k)))
    point = k * math.log(share) + (n - k) * math.log1p(-share)
    found = log_marginal(counted, Counted(0, 0)) - point
    assert found == pytest.approx(float(theirs.log_e_values_[-1]), abs=1e-9)


@given(counted=COUNTS.filter(lambda one: one.sessions))
def test_the_best_share_is_never_beaten_by_a_point_of_ville(counted: Counted) -> None:
    """Universal inference divides by the best likelihood, so it is below each of ville's tests."""
    from ville import BernoulliTest

    n, k = counted
    data = np.array([1.0] * k + [0.0] * (n - k))
    ours = log_marginal(counted, Counted(0, 0)) - log_best(counted)
    theirs = [
        float(BernoulliTest(p, prior=(0.5, 0.5)).update(data).log_e_values_[-1])
        for p in (0.01, 0.2, 0.5, 0.8, 0.99, min(0.999, max(0.001, k / n)))
    ]
    assert ours <= min(theirs) + 1e-9
    if 0 < k < n:
        assert ours == pytest.approx(theirs[-1], abs=1e-9)


@given(before=COUNTS, counted=COUNTS)
def test_earlier_counts_are_a_prior(before: Counted, counted: Counted) -> None:
    """What is known before and what comes then is what is known of both."""
    whole = log_marginal(total([before, counted]), Counted(0, 0))
    parts = log_marginal(before, Counted(0, 0)) + log_marginal(counted, before)
    assert parts == pytest.approx(whole, abs=1e-8)


def test_the_e_process_is_one_under_the_null_on_average() -> None:
    """Its expectation is at most the number of nights in which a change may have begun."""
    draw = random.Random(7)  # noqa: S311 - no secret
    found = [
        math.exp(
            e_process([night(draw, 0.3, 40) for _ in range(16)], begin=12, reference=12, shift=0.05)
        )
        for _ in range(3000)
    ]
    assert sum(found) / len(found) <= 4


def test_the_e_process_by_plain_sums() -> None:
    drawn = [Counted(10, 1), Counted(12, 2), Counted(9, 0), Counted(11, 6), Counted(8, 5)]

    def likelihood(counted: Counted, share: float) -> float:
        return share**counted.events * (1 - share) ** (counted.sessions - counted.events)

    def changed(first: int) -> float:
        before, case = drawn[max(0, first - 3) : first], total(drawn[first:])
        half = len(before) // 2
        prior, base = total(before[:half]), total(before[half:])
        usual = (total(before).events + 0.5) / (total(before).sessions + 1)
        bets = [likelihood(case, usual + size * 0.05) for size in (0.6, 1.2, 2, 4, 8)]
        grid = [(i + 0.5) / 20000 for i in range(20000)]
        weight = [
            p ** (prior.events - 0.5) * (1 - p) ** (prior.sessions - prior.events - 0.5)
            for p in grid
        ]
        mixture = sum(likelihood(base, p) * w for p, w in zip(grid, weight, strict=True))
        both = total([base, case])
        best = likelihood(both, both.events / both.sessions)
        return mixture / sum(weight) * sum(bets) / len(bets) / best

    found = e_process(drawn, begin=3, reference=3, shift=0.05)
    assert math.exp(found) == pytest.approx(changed(3) + changed(4), rel=1e-3)


@given(shares=st.lists(st.sampled_from([0, 5, 10, 30]), min_size=1, max_size=14))
def test_the_cusum_is_the_largest_sum_that_ends_now(shares: list[int]) -> None:
    """Page's recursion equals the maximum over all beginnings of the summed log-likelihood ratio."""
    counted = [Counted(50, events) for events in shares]
    usual = Counted(1000, 100)
    before = 100.5 / 1001
    after = before + 0.05
    gains = [
        k * math.log(after / before) + (n - k) * math.log((1 - after) / (1 - before))
        for n, k in counted
    ]
    sums = [sum(gains[first:]) for first in range(len(gains))]
    height, start = cusum(counted, usual, 0.05)
    assert height == pytest.approx(max(0.0, *sums), abs=1e-9)
    if height:
        assert sums[start] == pytest.approx(height, abs=1e-9)


def test_a_drop_of_ten_points_is_confirmed_within_three_nights() -> None:
    delays, errors = [], []
    for seed in range(40):
        draw = random.Random(seed)  # noqa: S311 - no secret
        drawn = nights(draw, [0.15] * 42 + [0.25] * 10)
        for late in range(1, 11):
            window = drawn[late : 42 + late]
            state = examine(Series("success", "", window), SPEC, WINDOW, alike=7)
            assert state is not None
            if state.confirmed:
                delays.append(late)
                errors.append(abs(state.start - (42 - late)))
                break
    assert len(delays) == 40
    assert sorted(delays)[20] <= 3
    assert sorted(errors)[20] <= 1


def test_quiet_nights_confirm_nothing() -> None:
    """Looked at every night: 60 worlds of 60 nights, the risk of all together is 1.2 by the bound."""
    for seed in range(60):
        draw = random.Random(seed)  # noqa: S311 - no secret
        drawn = nights(draw, [0.15] * 102)
        for last in range(42, 103):
            window = drawn[last - 42 : last]
            state = examine(Series("success", "", window), SPEC, WINDOW, alike=7)
            assert state is not None
            assert not state.confirmed


def test_what_gets_better_opens_no_case() -> None:
    draw = random.Random(3)  # noqa: S311 - no secret
    drawn = nights(draw, [0.3] * 36 + [0.1] * 6)
    state = examine(Series("success", "", drawn), SPEC, WINDOW, alike=7)
    assert state is not None
    assert not state.opened
    assert state.cusum == 0.0


def test_a_young_lake_says_nothing_or_little() -> None:
    none = (Counted(0, 0),) * 42
    assert examine(Series("success", "", none), SPEC, WINDOW, alike=7) is None
    one = (*none[:41], Counted(10, 10))
    assert examine(Series("success", "", one), SPEC, WINDOW, alike=7) is None
    young = (*none[:36], *(Counted(200, 20),) * 4, *(Counted(200, 100),) * 2)
    state = examine(Series("success", "", young), SPEC, WINDOW, alike=7)
    assert state is not None
    assert state.confirmed
    assert state.start == 40


def test_nothing_ever_wrong_and_then_something() -> None:
    drawn = ((Counted(200, 0),) * 40) + ((Counted(200, 30),) * 2)
    state = examine(Series("tool_errors", "pay: timeout", drawn), SPEC, WINDOW, alike=7)
    assert state is not None
    assert state.confirmed


def test_the_mix_is_compared_with_how_it_varies_anyway() -> None:
    draw = random.Random(1)  # noqa: S311 - no secret
    spec = MixDrift()

    def mixed(shares: list[float]) -> dict[str, list[int]]:
        """Nights that differ much, as weekends do."""
        return {
            "buy": [round(100 * share) for share in shares],
            "ask": [100 - round(100 * share) for share in shares],
        }

    varying = [draw.uniform(0.3, 0.7) for _ in range(42)]
    calm = examine_mix(mixed(varying), spec, WINDOW)
    assert calm is not None
    assert not calm.drifted
    moved = examine_mix(mixed([*varying[:39], 0.95, 0.95, 0.95]), spec, WINDOW)
    assert moved is not None
    assert moved.drifted
    assert moved.distance > calm.distance
    assert examine_mix(mixed(varying[:8]), spec, WINDOW) is None
    assert examine_mix({}, spec, WINDOW) is None


def test_the_mix_drifts_by_chance_as_seldom_as_the_risk_says() -> None:
    draw = random.Random(5)  # noqa: S311 - no secret
    spec = MixDrift(risk=0.05)
    drifted = 0
    for _ in range(300):
        buy = [sum(draw.random() < 0.4 for _ in range(60)) for _ in range(31)]
        found = examine_mix({"buy": buy, "ask": [60 - n for n in buy]}, spec, WINDOW)
        assert found is not None
        drifted += found.drifted
    assert drifted <= 300 * 0.05 * 2
