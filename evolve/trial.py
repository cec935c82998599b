"""A trial of a candidate beside its control, look by look: is it worse, is it no worse, and what follows.

Each look brings sessions of both arms that nobody has counted before, with how many went wrong. Its factor is a
likelihood ratio. Above stand two shares that were fixed before the look, below the nearest two shares of what is
to be refuted ("no more than ``bound`` above the control"). Nearest is by Kullback and Leibler, weighed by the
sessions of the arms. The product over the looks is an e-process, however often and whenever somebody looks, and
however the shares move from look to look: Turner, Ly and Grünwald, "Generic E-variables for exact sequential
k-sample tests" (arXiv 2106.02693), and Ville's inequality.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

from evolve.detectors import Counted
from evolve.policy import Ladder

BETS = (1.0, 2.0, 4.0)
"""Differences that are bet on in equal parts, in multiples of the policy's ``margin``."""
SUCCESS = "success"
"""The comparison that a trial is about; ``success in <slice>`` is that of a slice."""
MOST = 0.8
"""No larger difference is bet on."""
LEAST = 20
"""Sessions that must be known before a look is bet on: a guess of the share alone would lose."""
_EDGE = 1e-3
_HALVINGS = 30


class Arms(NamedTuple):
    """Sessions of both arms; events are what is bad."""

    candidate: Counted
    control: Counted

    @property
    def sessions(self) -> int:
        """Sessions of both."""
        return self.candidate.sessions + self.control.sessions

    def plus(self, other: "Arms") -> "Arms":
        """Return both together."""
        return Arms(
            Counted(*(a + b for a, b in zip(self.candidate, other.candidate, strict=True))),
            Counted(*(a + b for a, b in zip(self.control, other.control, strict=True))),
        )


NONE = Arms(Counted(0, 0), Counted(0, 0))
START = (0.0,) * len(BETS)


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """What is known of one thing that may go wrong, after some looks."""

    arms: Arms = NONE
    harm: tuple[float, ...] = START
    """For each bet the logarithm of its e-process against "the candidate is no worse"."""
    no_worse: tuple[float, ...] = START
    """The same against "the candidate is worse by more than the margin"."""

    @property
    def log_harm(self) -> float:
        """Natural logarithm of the e-process for harm."""
        return _log_mean(self.harm)

    @property
    def log_no_worse(self) -> float:
        """Natural logarithm of the e-process for non-inferiority."""
        return _log_mean(self.no_worse)

    @property
    def difference(self) -> float | None:
        """Share of the candidate less that of the control; None without sessions of one."""
        candidate, control = self.arms
        if not candidate.sessions or not control.sessions:
            return None
        return candidate.events / candidate.sessions - control.events / control.sessions


def look(before: ArmComparison, fresh: Arms, margin: float) -> ArmComparison:
    """Return what is known after a look.

    Args:
        before: what was known.
        fresh: sessions that were counted in no earlier look.
        margin: by how much the candidate may be worse and still count as no worse.
    """
    arms = before.arms.plus(fresh)
    if before.arms.sessions < LEAST:
        return ArmComparison(arms, before.harm, before.no_worse)
    usual = _share(before.arms)
    sizes = [min(margin * bet, MOST) for bet in BETS]
    return ArmComparison(
        arms,
        tuple(
            known + log_factor(fresh, usual, size, 0.0)
            for known, size in zip(before.harm, sizes, strict=True)
        ),
        tuple(
            known + log_factor(fresh, usual, margin - size, margin)
            for known, size in zip(before.no_worse, sizes, strict=True)
        ),
    )


def log_factor(fresh: Arms, usual: float, difference: float, bound: float) -> float:
    """Return the logarithm of one look's e-value.

    Args:
        fresh: the look.
        usual: share of both arms together, as it was known before the look.
        difference: of the two shares that are bet on; above ``bound`` it speaks for harm.
        bound: the difference that what is to be refuted ends at.
    """
    if not fresh.sessions:
        return 0.0
    weight = fresh.candidate.sessions / fresh.sessions
    control = min(
        max(usual - difference * weight, _EDGE - min(0.0, difference)),
        1 - _EDGE - max(0.0, difference),
    )
    candidate = control + difference
    nearest = _nearest(fresh, candidate, control, bound)
    return (
        _log_likelihood(fresh.candidate, candidate) + _log_likelihood(fresh.control, control)
        - _log_likelihood(fresh.candidate, nearest + bound)
        - _log_likelihood(fresh.control, nearest)
    )  # fmt: skip


def _nearest(fresh: Arms, candidate: float, control: float, bound: float) -> float:
    """Return the control's share of the nearest pair with the difference ``bound``.

    There the slopes of both divergences cancel out. That makes the factor's expectation at most 1 for
    every pair that is to be refuted, not only for this one.
    """
    n, m = fresh.candidate.sessions, fresh.control.sessions
    if not bound:
        return (n * candidate + m * control) / (n + m)
    low, high = max(0.0, -bound), 1 - max(0.0, bound)
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        other = share + bound
        slope = n * (other - candidate) / (other * (1 - other))
        slope += m * (share - control) / (share * (1 - share))
        low, high = (low, share) if slope > 0 else (share, high)
    return (low + high) / 2


def _share(arms: Arms) -> float:
    events = arms.candidate.events + arms.control.events
    return (events + 0.5) / (arms.sessions + 1)


def _log_likelihood(counted: Counted, share: float) -> float:
    n, k = counted
    return k * math.log(share) + (n - k) * math.log1p(-share)


def _log_mean(logs: tuple[float, ...]) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs) / len(logs))


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """What follows from a look."""

    outcome: Literal["go on", "promote", "roll back", "end"]
    reasons: tuple[str, ...]
    """Why; while it goes on, what is still to be shown."""


def margin_of(ladder: Ladder, name: str) -> float:
    """Return by how much the candidate may be worse in a comparison."""
    if name == SUCCESS:
        return ladder.margin
    return ladder.guard_margin if name in ladder.guards else ladder.slice_margin


def log_needed(ladder: Ladder, name: str, comparisons: int) -> tuple[float, float]:
    """Return from which logarithm on the e-processes of a comparison show harm, and that it is no worse.

    Half of the risk of a false rollback is success's own, the others share the rest.
    """
    risk = ladder.false_rollbacks / 2 / (1 if name == SUCCESS else max(1, comparisons - 1))
    return -math.log(risk), -math.log(ladder.false_promotions)


def judge(
    ladder: Ladder, comparisons: Mapping[str, ArmComparison], lasted: timedelta
) -> TrialVerdict:
    """Return what follows; the same policy, counts and time give the same verdict.

    Harm in any comparison rolls back. A promotion needs every comparison to be shown no worse, which costs no
    risk. A candidate that is worse in one passes at most as often as it passes that one.
    """
    harmed, open_still = [], []
    for name, found in comparisons.items():
        harm, no_worse = log_needed(ladder, name, len(comparisons))
        if found.log_harm >= harm:
            harmed.append(f"{name} is worse: {_told(found)}")
        if found.log_no_worse < no_worse:
            open_still.append(f"{name}: {_told(found)}")
    if harmed:
        return TrialVerdict("roll back", tuple(harmed))
    if not open_still:
        return TrialVerdict("promote", (f"no worse in {len(comparisons)} comparisons",))
    if lasted >= timedelta(days=ladder.max_days):
        return TrialVerdict("end", (f"nothing shown within {ladder.max_days} days", *open_still))
    return TrialVerdict("go on", tuple(open_still))


def _told(found: ArmComparison) -> str:
    parts = (f"{each.events} of {each.sessions} sessions went wrong" for each in found.arms)
    return ", control ".join(parts)
