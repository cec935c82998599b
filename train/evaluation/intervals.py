"""Intervals for what an evaluation found: one rate, and the difference of two on the same tasks.

One proportion: Wilson's score interval (J. Am. Stat. Assoc. 22, 1927). A difference on the same tasks: Student's
interval of the mean difference, with one more win and one more loss among the tasks. For one yes or no per task
that is the adjusted interval of Bonett and Price (J. Educ. Behav. Stat. 37, 2012, 479–488), which Fagerland,
Lydersen and Laake recommend (Statistics in Medicine 33, 2014, 2850–2875). Student's quantile in place of the normal
one keeps its level where tasks are few; ``tests/train/test_gate_errors.py`` holds it so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    method: str
    """wilson | paired-t | none (too little data)"""


def wilson(successes: float, trials: int, confidence: float) -> Interval:
    """Return the score interval of a proportion; (0, 1) without trials.

    Trials that succeed in part, as a task of several attempts, vary less than ones of yes or no: then it is wide.
    """
    if trials == 0:
        return Interval(0.0, 0.0, 1.0, "none")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    half = z * spread / (1 + z * z / trials)
    return Interval(rate, max(0.0, centre - half), min(1.0, centre + half), "wilson")


def paired_gain(gains: Sequence[float], *, confidence: float, step: float = 0.0) -> Interval:
    """Return the interval of a mean difference on the same tasks.

    Args:
        gains: one difference per task.
        confidence: such as 0.95.
        step: the least difference that a task can show, of shares: one win and one loss of that size are added.
            0 for numbers of any size, to which nothing is added.
    """
    if len(gains) < 2:
        return Interval(math.fsum(gains), -1.0, 1.0, "none")
    values = [*gains, step, -step] if step else [*gains]
    count = len(values)
    centre = math.fsum(values) / count
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    half = _quantile(confidence, count - 1) * math.sqrt(variance / count)
    most = 1.0 if step else math.inf
    estimate = math.fsum(gains) / len(gains)
    return Interval(
        estimate,
        max(-most, min(centre - half, estimate)),
        min(most, max(centre + half, estimate)),
        "paired-t",
    )


@lru_cache(maxsize=256)
def _quantile(confidence: float, freedom: int) -> float:
    """Return Student's quantile of a two-sided interval."""
    from scipy.stats import t

    return float(t.isf((1 - confidence) / 2, freedom))


def confidence_at_look(confidence: float, look: int) -> float:
    """Return the confidence that is left for the n-th look at candidates, as a two-sided one.

    ``1 - confidence`` is the risk of taking a candidate for better that is not. All looks to come share it: the
    n-th gets ``1 / (n (n + 1))`` of it, and these shares add up to 1. The bound holds however the looks depend on
    each other, so each may be at the same tasks. The first look is the usual two-sided interval.
    """
    return 1 - 2 * (1 - confidence) / (look * (look + 1))
