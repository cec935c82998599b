"""Intervals agree with published numbers and cover what they promise."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.evaluation.intervals import newcombe, paired_bootstrap, wilson


def test_wilson_agrees_with_the_published_example() -> None:
    # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3: 81 of 263.
    found = wilson(81, 263, 0.95)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998) 2635-2650, table II, method 10.
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((54, 0, 0, 0), -0.0664, 0.0664),
    ],
)
def test_newcombe_agrees_with_published_examples(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    both, first, second, neither = counts
    found = newcombe(both=both, first=first, second=second, neither=neither, confidence=0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@given(*(st.integers(0, 60) for _ in range(4)))
def test_difference_lies_in_its_interval_and_turns_with_its_sides(
    both: int, first: int, second: int, neither: int
) -> None:
    there = newcombe(both=both, first=first, second=second, neither=neither, confidence=0.9)
    back = newcombe(both=both, first=second, second=first, neither=neither, confidence=0.9)
    assert -1 <= there.low <= there.estimate <= there.high <= 1
    assert there.low == pytest.approx(-back.high)


def test_newcombe_covers_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(3)  # noqa: S311
    covered = 0
    for _ in range(400):
        pairs = []
        for _ in range(60):
            hard = draw.random() < 0.4
            pairs.append(
                (draw.random() < (0.3 if hard else 0.8), draw.random() < (0.2 if hard else 0.7))
            )
        found = newcombe(
            both=pairs.count((True, True)),
            first=pairs.count((True, False)),
            second=pairs.count((False, True)),
            neither=pairs.count((False, False)),
            confidence=0.95,
        )
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.99


def test_bootstrap_is_seeded_and_sees_a_gain() -> None:
    draw = random.Random(1)  # noqa: S311
    base = [draw.random() for _ in range(50)]
    better = [value + 0.2 + 0.1 * draw.random() for value in base]
    found = [
        paired_bootstrap(better, base, confidence=0.95, resamples=2000, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    assert 0.2 < found[0].low < found[0].estimate < found[0].high < 0.3


def test_one_task_tells_nothing() -> None:
    found = paired_bootstrap([1.0], [0.0], confidence=0.95, resamples=1000, seed=0)
    assert (found.method, found.low, found.high) == ("none", -1.0, 1.0)
