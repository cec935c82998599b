"""Detectors that may be looked at every night: a CUSUM opens a case, an e-process confirms it.

All count sessions in which something went wrong, night by night. Sources: the CUSUM is Page's (Biometrika 41,
1954) for a share. The e-process compares "the share changed in night j" with "it was the same all the time", the
latter at its best fit (universal inference: Wasserman, Ramdas and Balakrishnan, PNAS 117, 2020), so the usual
share need not be known. Summed over every night j in which the change may have begun, it is an e-detector (Shin,
Ramdas and Rinaldo, arXiv 2203.03532). In T quiet nights it passes a level A with a chance of at most T / A,
however often somebody looks.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from evolve.policy import Detectors, EvidenceWindow, MixDrift, SignalName

SHIFTS = (0.6, 1.2, 2.0, 4.0, 8.0)
"""Changes that the e-process bets on in equal parts, in multiples of the policy's ``shift``."""
_MOST = 0.995


class Counted(NamedTuple):
    """Sessions of a night, and those of them in which it happened."""

    sessions: int
    events: int


@dataclass(frozen=True, slots=True)
class Series:
    """One signal, perhaps of one subject, over the nights of the window; events are what is bad."""

    signal: SignalName
    subject: str
    """Tool and class of error where the signal is told by tool, else empty."""
    nights: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class DetectorState:
    """What the detectors say of a series in the window's last night."""

    signal: SignalName
    subject: str
    start: int
    """First night of the window in which the change may have begun, by the CUSUM."""
    reference: Counted
    case: Counted
    """Since ``start``."""
    cusum: float
    opened: bool
    log_e: float
    """Natural logarithm of the e-process."""
    needed: float
    """What it must reach."""
    confirmed: bool


def examine(
    series: Series, spec: Detectors, window: EvidenceWindow, *, alike: int
) -> DetectorState | None:
    """Return what the detectors say; None where there are too few nights to say anything.

    Args:
        series: the nights, the last one is the present.
        spec: of the policy.
        window: of the policy.
        alike: detectors among which the risk of a false alarm is shared.
    """
    nights = series.nights
    first = next((at for at, night in enumerate(nights) if night.sessions), len(nights))
    begin = len(nights) - min(window.case_nights, (len(nights) - first) // 2)
    usual = total(nights[first:begin])
    if not usual.sessions or begin == len(nights):
        return None
    height, start = cusum(nights[begin:], usual, spec.shift)
    opened = height >= spec.opens_at
    needed = math.log(spec.false_alarms.per_nights * alike / spec.false_alarms.at_most)
    log_e = -math.inf
    if opened:
        log_e = e_process(nights, begin, window.reference_nights, spec.shift)
    return DetectorState(
        series.signal, series.subject, begin + start, total(nights[first : begin + start]),
        total(nights[begin + start :]), height, opened, log_e, needed, log_e >= needed,
    )  # fmt: skip


def total(nights: Sequence[Counted]) -> Counted:
    """Return the counts of nights together."""
    return Counted(sum(night.sessions for night in nights), sum(night.events for night in nights))


def cusum(nights: Sequence[Counted], usual: Counted, shift: float) -> tuple[float, int]:
    """Return the height of the CUSUM, and in which night it left the ground for the last time."""
    before = _share(usual)
    after = min(before + shift, _MOST)
    height, start = 0.0, 0
    for at, night in enumerate(nights):
        if height == 0.0:
            start = at
        gain = _log_likelihood(night, after) - _log_likelihood(night, before)
        height = max(0.0, height + gain)
    return height, start


def e_process(nights: Sequence[Counted], begin: int, reference: int, shift: float) -> float:
    """Return the logarithm of the e-process, summed over all nights from ``begin`` as the first."""
    return _log_sum([
        _changed_in(nights[max(0, first - reference) : first], nights[first:], shift)
        for first in range(begin, len(nights))
    ])  # fmt: skip


def _changed_in(before: Sequence[Counted], since: Sequence[Counted], shift: float) -> float:
    """Return log of: likelihood with a change between the two, over the best one without.

    The first half of the nights before is only the prior for the second. So knowing the usual share costs next to
    nothing, and the bound holds whatever the prior.
    """
    middle = len(before) // 2
    prior, base, case = total(before[:middle]), total(before[middle:]), total(since)
    if not base.sessions or not case.sessions:
        return -math.inf
    usual = _share(total(before))
    bets = [_log_likelihood(case, min(usual + size * shift, _MOST)) for size in SHIFTS]
    changed = log_marginal(base, prior) + _log_sum(bets) - math.log(len(bets))
    return changed - log_best(Counted(base.sessions + case.sessions, base.events + case.events))


def log_marginal(counted: Counted, prior: Counted) -> float:
    """Return the log-likelihood under a beta mixture, Jeffreys' prior with earlier counts added."""
    a = 0.5 + prior.events
    b = 0.5 + prior.sessions - prior.events
    return _log_beta(a + counted.events, b + counted.sessions - counted.events) - _log_beta(a, b)


def log_best(counted: Counted) -> float:
    """Return the largest log-likelihood that any one share gives."""
    n, k = counted
    return sum(x * math.log(x / n) for x in (k, n - k) if x)


def _log_likelihood(counted: Counted, share: float) -> float:
    n, k = counted
    return k * math.log(share) + (n - k) * math.log1p(-share)


def _share(counted: Counted) -> float:
    """Return the share, never quite 0 or 1."""
    return min((counted.events + 0.5) / (counted.sessions + 1), _MOST)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    if most == -math.inf:
        return most
    return most + math.log(math.fsum(math.exp(one - most) for one in logs))


@dataclass(frozen=True, slots=True)
class MixState:
    """Whether the work of the recent nights is another than before."""

    distance: float
    """Total variation: the share of the sessions that would have to be others."""
    usual: float
    """The distance that as many nights of the reference exceed in half of the draws."""
    p_value: float
    drifted: bool


def examine_mix(
    kinds: Mapping[str, Sequence[int]], spec: MixDrift, window: EvidenceWindow
) -> MixState | None:
    """Compare the recent nights with those of the reference; None with too few nights.

    The null is a bootstrap over whole nights, so what varies from night to night anyway is no drift.

    Args:
        kinds: sessions per night of each kind of work.
        spec: of the policy.
        window: of the policy.
    """
    if not kinds:
        return None
    counts = np.array([kinds[name] for name in sorted(kinds)], dtype=np.int64).T
    counts = counts[counts.sum(axis=1) > 0]
    recent = counts[-spec.recent_nights :]
    before = counts[: -spec.recent_nights][-window.reference_nights :]
    if len(before) < 2 * spec.recent_nights:
        return None
    usual = _mixture(before.sum(axis=0))
    found = _distance(_mixture(recent.sum(axis=0)), usual)
    drawn = before[np.array(_draws(len(before), spec.recent_nights, spec.resamples))].sum(axis=1)
    null = 0.5 * np.abs(drawn / drawn.sum(axis=1, keepdims=True) - usual).sum(axis=1)
    p_value = float((1 + (null >= found).sum()) / (1 + spec.resamples))
    return MixState(found, float(np.median(null)), p_value, p_value <= spec.risk)


@lru_cache(maxsize=64)
def _draws(nights: int, size: int, resamples: int) -> tuple[tuple[int, ...], ...]:
    """Return nights drawn with replacement; the same ones for the same numbers."""
    draw = random.Random(f"{nights} {size} {resamples}")  # noqa: S311 - no secret
    return tuple(tuple(draw.randrange(nights) for _ in range(size)) for _ in range(resamples))


def _mixture(counts: "np.typing.NDArray[np.int64]") -> "np.typing.NDArray[np.float64]":
    return np.asarray(counts / counts.sum(), dtype=np.float64)


def _distance(
    one: "np.typing.NDArray[np.float64]", other: "np.typing.NDArray[np.float64]"
) -> float:
    return float(0.5 * np.abs(one - other).sum())
