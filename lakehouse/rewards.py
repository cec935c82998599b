"""How signals become one number: the one definition, in SQL, that every reader of rewards shares.

A reward is a weighted sum of named signals. Its weights are data (a substrate's document holds
them), so weighing otherwise rewrites nothing. Several signals of one name on one trajectory are
combined by *shares*: ``last`` gives the nearest and latest one the whole share, ``mean`` gives each
the same, ``minimum`` the smallest the whole, ``sum`` each a whole. A share belongs to one
signal, and a signal to one step or to the trajectory's end. So the same shares say where along the
trajectory the reward was earned: the step rewards of ``lakehouse.credit`` add up to the reward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.read.conversations import RunSql
from lakehouse.read.views.catalog import part_of
from trajectory.canonical import JsonObject, content_hash

SHARES = part_of("weighted_rewards", "from units and weights to rewards", "end of rewards").strip()
"""Common table expressions from ``units (unit, tenant_id, trajectory_id, steps)`` and ``weights
(weights_id, name, weight, combine, missing, gate, at_least)`` to ``shares`` and ``rewards``. ``steps`` limits a unit
to signals about these steps; null takes all of the trajectory's."""


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """Which signals make the reward, and how."""

    signals: Mapping[str, float]
    """Signal name → weight."""
    combine: str = "last"
    """last | mean | minimum | sum: what several signals of one name on one trajectory become."""
    missing: str = "leave_out"
    """leave_out | zero: what an absent signal means."""
    gate: str | None = None
    """Signal of the outcome: signals about steps count only where it passed. A judge of steps is then not
    learned to be pleased at the task's cost (Posterior-GRPO, arXiv 2508.05170)."""
    gate_at_least: float = 0.5
    """From which value on the outcome passed."""

    @property
    def weights_hash(self) -> str:
        """Name of these weights, by which credits say what they were computed with."""
        said: JsonObject = {
            "signals": dict(self.signals),
            "combine": self.combine,
            "missing": self.missing,
        }
        if self.gate is not None:
            said["gate"] = {"signal": self.gate, "at_least": self.gate_at_least}
        return content_hash(said)

    def relation(self) -> tuple[str, list[Any]]:
        """Return the relation ``weights`` as a SELECT with its parameters."""
        names = sorted(self.signals)
        select = (
            "SELECT 'w' AS weights_id, unnest(?::VARCHAR[]) AS name, unnest(?::DOUBLE[]) AS weight, "
            "?::VARCHAR AS combine, ?::VARCHAR AS missing, ?::VARCHAR AS gate, ?::DOUBLE AS at_least"
        )
        values = [names, [self.signals[n] for n in names], self.combine, self.missing]
        return select, [*values, self.gate, self.gate_at_least]


@dataclass(frozen=True, slots=True)
class RewardUnit:
    """Something that gets one reward: a trajectory, or those steps of it that an item is made of."""

    unit: str
    tenant_id: str
    trajectory_id: str
    steps: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reward:
    """What a unit's signals amount to."""

    value: float | None
    """None when a signal is missing and the weights leave such units out."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Signal name → combined value, by name."""


def rewards_of(
    ask: RunSql, units: Sequence[RewardUnit], weights: RewardWeights
) -> dict[str, Reward]:
    """Return unit → reward by the weights, of signals about the units' own steps or above them."""
    select, values = weights.relation()
    table = ask(
        "WITH units AS (SELECT unnest(?::VARCHAR[]) AS unit, unnest(?::VARCHAR[]) AS tenant_id, "  # noqa: S608 (fixed text)
        "unnest(?::VARCHAR[]) AS trajectory_id, unnest(?::VARCHAR[][]) AS steps), "
        f"weights AS ({select}), {SHARES} SELECT unit, reward, components FROM rewards",
        [
            [unit.unit for unit in units],
            [unit.tenant_id for unit in units],
            [unit.trajectory_id for unit in units],
            [list(unit.steps) for unit in units],
            *values,
        ],
    )
    return {
        row["unit"]: Reward(row["reward"], dict(row["components"])) for row in table.to_pylist()
    }
