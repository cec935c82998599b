"""Clusters of failures: which tool, version, tenant or message the rise comes from.

A cluster is what sessions share, such as a tool or a version. It must pass two exact tests of Fisher (1935,
one-sided). Its sessions fail more often than the rest, and more often than before the case. The larger of both
p-values counts; those of all clusters pass the step-up procedure of Benjamini and Hochberg (J. R. Stat. Soc. B 57,
1995).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.detectors import Counted
from evolve.policy import ClusterTests, Dimension

VERSIONS = ("harness_version", "model_version")
"""Dimensions whose values come one after the other: the rest of such a one is all others, at any time."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """What sessions that share a value did before and since the case began."""

    dimension: Dimension
    value: str
    before: Counted
    since: Counted
    tenants: int
    """With events since the case began."""
    first_night: int
    """The first night of the window that has it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A value that may be the cause, and what speaks for it."""

    dimension: Dimension
    value: str
    sessions: int
    events: int
    tenants: int
    lift: float | None
    """How often its sessions fail, in multiples of the rest; None where the rest never does."""
    share: float
    """Part of the rise that it accounts for."""
    p_value: float
    q_value: float
    is_new: bool
    is_cause: bool
    """It passed the tests and accounts for enough of the rise."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All sessions of the case's signal."""

    before: Counted
    since: Counted
    start: int
    """The night in which the case began."""


def find_clusters(
    groups: Sequence[Grouped], whole: Whole, spec: ClusterTests
) -> tuple[Cluster, ...]:
    """Return the clusters that were tested, causes first, then by what they account for."""
    tested = [one for one in groups if one.since.events >= spec.minimum_events]
    p_values = [_p_value(one, whole) for one in tested]
    found = [
        _cluster(one, whole, p_value, q_value, spec)
        for one, p_value, q_value in zip(tested, p_values, adjusted(p_values), strict=True)
    ]
    return tuple(
        sorted(found, key=lambda one: (not one.is_cause, -one.share, one.dimension, one.value))
    )


def _cluster(
    one: Grouped, whole: Whole, p_value: float, q_value: float, spec: ClusterTests
) -> Cluster:
    rest = _rest(one, whole)
    own = one.since.events / one.since.sessions
    others = rest.events / rest.sessions if rest.sessions else 0.0
    rise = _part(whole.since.events, whole.since) - _part(whole.before.events, whole.before)
    own_rise = _part(one.since.events, whole.since) - _part(one.before.events, whole.before)
    share = own_rise / rise if rise > 0 else 0.0
    is_new = one.first_night > 0 and one.first_night >= whole.start - spec.new_within_nights
    is_cause = q_value <= spec.false_discoveries and share >= spec.minimum_share
    return Cluster(
        one.dimension, one.value, one.since.sessions, one.since.events, one.tenants,
        own / others if others else None, share, p_value, q_value,
        one.dimension in VERSIONS and is_new, is_cause,
    )  # fmt: skip


def _part(events: int, all_sessions: Counted) -> float:
    return events / all_sessions.sessions if all_sessions.sessions else 0.0


def _rest(one: Grouped, whole: Whole) -> Counted:
    """Return the sessions that a cluster is compared with."""
    rest = Counted(whole.since.sessions - one.since.sessions, whole.since.events - one.since.events)
    if one.dimension not in VERSIONS:
        return rest
    return Counted(
        rest.sessions + whole.before.sessions - one.before.sessions,
        rest.events + whole.before.events - one.before.events,
    )


def _p_value(one: Grouped, whole: Whole) -> float:
    rest = _rest(one, whole)
    against_rest = fisher(
        one.since.events, one.since.sessions - one.since.events,
        rest.events, rest.sessions - rest.events,
    )  # fmt: skip
    against_before = fisher(
        one.since.events, whole.since.sessions - one.since.events,
        one.before.events, whole.before.sessions - one.before.events,
    )  # fmt: skip
    return max(against_rest, against_before)


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Return the chance of at least ``a`` in the table [[a, b], [c, d]] with these margins."""
    drawn, marked, everything = a + b, a + c, a + b + c + d
    least, most = max(0, drawn + marked - everything), min(drawn, marked)
    if a <= least:
        return 1.0
    whole = _log_choose(everything, drawn)
    logs = [
        _log_choose(marked, x) + _log_choose(everything - marked, drawn - x) - whole
        for x in range(a, most + 1)
    ]
    return min(1.0, math.fsum(math.exp(one) for one in logs))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Benjamini and Hochberg, in the same order."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at], reverse=True)
    found = [1.0] * len(p_values)
    least = 1.0
    for rank, at in enumerate(order):
        least = min(least, p_values[at] * len(p_values) / (len(p_values) - rank))
        found[at] = least
    return found
