"""Intervals for what an evaluation found: one rate, and the difference of two on the same tasks.

One proportion: Wilson's score interval (J. Am. Stat. Assoc. 22, 1927). A difference of paired proportions: method
10 of Newcombe (Statistics in Medicine 17, 1998, 2635–2650). It stays honest for few tasks and for rates near 0 and
1. Anything but one yes or no per task: the percentile bootstrap over tasks, drawn in pairs (Efron and Tibshirani,
An Introduction to the Bootstrap, 1993, chapter 13).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    method: str
    """wilson | newcombe-10 | paired-bootstrap | none (too little data)"""


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


def newcombe(*, both: int, first: int, second: int, neither: int, confidence: float) -> Interval:
    """Return the interval of ``rate(first) - rate(second)`` on the same tasks.

    Args:
        both: tasks that both solved.
        first: tasks that only the first solved.
        second: tasks that only the second solved.
        neither: tasks that neither solved.
        confidence: such as 0.95.
    """
    trials = both + first + second + neither
    if trials == 0:
        return Interval(0.0, -1.0, 1.0, "none")
    one = wilson(both + first, trials, confidence)
    two = wilson(both + second, trials, confidence)
    phi = _corrected_phi(both, first, second, neither)
    gain = one.estimate - two.estimate
    low = _root(one.estimate - one.low, two.high - two.estimate, phi)
    high = _root(one.high - one.estimate, two.estimate - two.low, phi)
    return Interval(gain, max(-1.0, gain - low), min(1.0, gain + high), "newcombe-10")


def confidence_at_look(confidence: float, look: int) -> float:
    """Return the confidence that is left for the n-th look at candidates, as a two-sided one.

    ``1 - confidence`` is the risk of taking a candidate for better that is not. All looks to come share it: the
    n-th gets ``1 / (n (n + 1))`` of it, and these shares add up to 1. The bound holds however the looks depend on
    each other, so each may be at the same tasks. The first look is the usual two-sided interval.
    """
    return 1 - 2 * (1 - confidence) / (look * (look + 1))


def widened(interval: Interval, confidence: float, wanted: float) -> Interval:
    """Return an interval of one confidence at a higher one, each half in proportion to its quantile."""
    normal = NormalDist()
    factor = normal.inv_cdf(0.5 + wanted / 2) / normal.inv_cdf(0.5 + confidence / 2)
    low = interval.estimate - factor * (interval.estimate - interval.low)
    high = interval.estimate + factor * (interval.high - interval.estimate)
    return Interval(interval.estimate, max(-1.0, low), min(1.0, high), interval.method)


def _corrected_phi(both: int, first: int, second: int, neither: int) -> float:
    """Correlation of the two outcomes, with the continuity correction of method 10."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if margins == 0:
        return 0.0
    product = float(both * neither - first * second)
    if product > 0:
        product = max(0.0, product - (both + first + second + neither) / 2)
    return product / math.sqrt(margins)


def _root(left: float, right: float, phi: float) -> float:
    return math.sqrt(max(0.0, left * left - 2 * phi * left * right + right * right))


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], *, confidence: float, resamples: int, seed: int
) -> Interval:
    """Return the interval of ``mean(first) - mean(second)``, tasks drawn in pairs."""
    import numpy as np

    if len(first) < 2:
        return Interval(sum(first) - sum(second), -1.0, 1.0, "none")
    gains = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    for start in range(0, resamples, 256):
        draws = generator.integers(0, len(gains), size=(min(256, resamples - start), len(gains)))
        means[start : start + len(draws)] = gains[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(gains.mean()), float(low), float(high), "paired-bootstrap")
