"""The winners that a candidate learned from, seen together: whether one part of the reward made them, and how
many of them say the same.

A reward of several parts is gamed at its cheapest part. Then that part alone gives what winners earn, and winners
are copies of the one trick that earns it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.substrate.dedup import near_duplicates, texts_of
from train.substrate.source import LearningSource
from train.substrate.spec import NearSpec, RewardSpec
from train.types import ScoredItem

_OUTCOME = "success"
_MOST = 5000
"""Winners that are compared with each other."""


@dataclass(frozen=True, slots=True)
class RewardAudit:
    """What is to be known of a run's winners."""

    winners: int
    near_duplicates: float
    """Share of the winners that are near to another winner, at another task."""
    component: str | None = None
    """The part of the reward, other than the outcome, that gave most of what they earned; None where
    the reward has one part alone."""
    component_share: float = 0.0
    """Its share of what they earned."""


def audit_rewards(
    source: LearningSource, items: Sequence[ScoredItem], reward: RewardSpec
) -> RewardAudit:
    """Look at the rewarded items of the training side.

    Args:
        source: the lake with their texts.
        items: of a substrate.
        reward: how their rewards were made.
    """
    winners = [one for one in items if one.split == "train" and one.rewarded]
    compared = sorted(winners, key=lambda one: one.item.item_id)[:_MOST]
    texts = texts_of(source, [one.item for one in compared])
    alike = len(near_duplicates(compared, texts, NearSpec())) / max(1, len(compared))
    component, share = largest_component(winners, reward)
    return RewardAudit(len(winners), alike, component, share)


def largest_component(
    winners: Sequence[ScoredItem], reward: RewardSpec
) -> tuple[str | None, float]:
    """Return the part of the reward that gave most, and its share; the outcome is not asked."""
    outcome = _OUTCOME if reward.gate is None else reward.gate.signal
    earned: defaultdict[str, float] = defaultdict(float)
    for one in winners:
        for name, value in _values(one).items():
            earned[name] += max(0.0, reward.signals.get(name, 0.0) * value)
    parts = {name: earned[name] for name in sorted(reward.signals) if name != outcome}
    if len(reward.signals) < 2 or not parts or not sum(earned.values()):
        return None, 0.0
    most = max(parts, key=lambda name: parts[name])
    return most, parts[most] / sum(earned.values())


def _values(one: ScoredItem) -> Mapping[str, float]:
    values: dict[str, float] = json.loads(one.signals)
    return values
