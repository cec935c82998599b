"""Intervals agree with published numbers and cover what they promise."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from train.evaluation.intervals import paired_gain, wilson


def test_wilson_agrees_with_the_published_example() -> None:
    # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3: 81 of 263.
    found = wilson(81, 263, 0.95)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_a_gain_is_students_interval_with_one_more_win_and_one_more_loss() -> None:
    gains = [1.0] * 9 + [-1.0] * 2 + [0.0] * 19
    wanted = stats.ttest_1samp([*gains, 1.0, -1.0], 0).confidence_interval(0.9)
    found = paired_gain(gains, confidence=0.9, step=1.0)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.estimate == pytest.approx(7 / 30)


def test_numbers_of_any_size_are_left_as_they_are() -> None:
    gains = [3.0, 5.0, -1.0, 4.0]
    wanted = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    found = paired_gain(gains, confidence=0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.low < -1 < 1 < found.high


@given(
    st.lists(st.integers(-4, 4), min_size=2, max_size=60),
    st.sampled_from([0.55, 0.8, 0.95, 0.9999]),
)
def test_a_gain_lies_in_its_interval_and_turns_with_its_sides(
    quarters: list[int], confidence: float
) -> None:
    gains = [each / 4 for each in quarters]
    there = paired_gain(gains, confidence=confidence, step=0.25)
    back = paired_gain([-each for each in gains], confidence=confidence, step=0.25)
    assert -1 <= there.low <= there.estimate <= there.high <= 1
    assert there.low == pytest.approx(-back.high)


@pytest.mark.parametrize("attempts", [1, 3])
def test_it_covers_the_truth_as_often_as_it_says(attempts: int) -> None:
    draw = random.Random(3)  # noqa: S311
    covered = 0
    for _ in range(400):
        gains = []
        for _ in range(60):
            hard = draw.random() < 0.4
            solved = [
                sum(draw.random() < rate for _ in range(attempts))
                for rate in ((0.3, 0.2) if hard else (0.8, 0.7))
            ]
            gains.append((solved[0] - solved[1]) / attempts)
        found = paired_gain(gains, confidence=0.95, step=1 / attempts)
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.99


def test_five_tasks_that_were_all_won_tell_something_and_four_do_not() -> None:
    found = [paired_gain([1.0] * won, confidence=0.95, step=1.0).low for won in (2, 3, 4, 5)]
    assert [low > 0 for low in found] == [False, False, False, True]


def test_one_task_tells_nothing() -> None:
    found = paired_gain([1.0], confidence=0.95, step=1.0)
    assert (found.method, found.low, found.high) == ("none", -1.0, 1.0)
