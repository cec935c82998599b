"""How signals become one number: the one definition, in SQL, that every reader of rewards shares.

A reward is a weighted sum of named signals. Its weights are data (a substrate's document holds
them), so weighing otherwise rewrites nothing. Several signals of one name on one trajectory are
combined by *shares*: ``last`` gives the nearest and latest one the whole share, ``mean`` gives each
the same, ``minimum`` the smallest the whole, ``sum`` each a whole. Because a share belongs to one
signal, and a signal to one step or to the trajectory's end, the same shares say where along the
trajectory the reward was earned: the step rewards of ``lakehouse.credit`` add up to the reward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from trajectory.canonical import content_hash

SHARES = """
evidence AS (
    SELECT w.weights_id, u.unit, w.weight, w.combine, s.tenant_id, s.trajectory_id, s.step_id,
           s.name, s.value, s.distance, s.recorded_at, s.signal_id
    FROM units u
    JOIN trajectory_signals s
      ON u.tenant_id = s.tenant_id AND u.trajectory_id = s.trajectory_id
     AND (s.step_id IS NULL OR u.steps IS NULL OR list_contains(u.steps, s.step_id))
    JOIN weights w ON s.name = w.name
    WHERE s.value IS NOT NULL
), shares AS (
    SELECT *, CASE combine
           WHEN 'sum' THEN 1.0
           WHEN 'mean' THEN 1.0 / count(*) OVER alike
           WHEN 'minimum' THEN (row_number() OVER (
               alike ORDER BY value, distance, recorded_at DESC, signal_id DESC) = 1)::INT
           ELSE (row_number() OVER (
               alike ORDER BY distance, recorded_at DESC, signal_id DESC) = 1)::INT
           END AS share
    FROM evidence
    WINDOW alike AS (PARTITION BY weights_id, tenant_id, unit, name)
), components AS (
    SELECT weights_id, tenant_id, unit, name, any_value(weight) AS weight,
           sum(value * share ORDER BY recorded_at, signal_id)::DOUBLE AS value
    FROM shares GROUP BY ALL
), whole AS (
    SELECT weights_id, count(*) AS names, any_value(missing) AS missing FROM weights GROUP BY ALL
), rewards AS (
    SELECT h.weights_id, u.tenant_id, u.unit, u.trajectory_id,
           CASE WHEN count(c.name) = h.names OR h.missing = 'zero'
                THEN coalesce(sum(c.weight * c.value ORDER BY c.name), 0.0) END AS reward,
           map(coalesce(list(c.name ORDER BY c.name) FILTER (c.name IS NOT NULL), []),
               coalesce(list(c.value ORDER BY c.name) FILTER (c.name IS NOT NULL), [])) AS components
    FROM units u CROSS JOIN whole h
    LEFT JOIN components c
      ON h.weights_id = c.weights_id AND u.tenant_id = c.tenant_id AND u.unit = c.unit
    GROUP BY h.weights_id, h.names, h.missing, u.tenant_id, u.unit, u.trajectory_id
)
"""
"""Common table expressions from ``units (unit, tenant_id, trajectory_id, steps)`` and ``weights
(weights_id, name, weight, combine, missing)`` to ``shares`` and ``rewards``. ``steps`` limits a unit
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

    @property
    def weights_hash(self) -> str:
        """Name of these weights, by which credits say what they were computed with."""
        return content_hash(
            {"signals": dict(self.signals), "combine": self.combine, "missing": self.missing}
        )

    def relation(self) -> tuple[str, list[Any]]:
        """Return the relation ``weights`` as a SELECT with its parameters."""
        names = sorted(self.signals)
        select = (
            "SELECT 'w' AS weights_id, unnest(?::VARCHAR[]) AS name, unnest(?::DOUBLE[]) AS weight, "
            "?::VARCHAR AS combine, ?::VARCHAR AS missing"
        )
        return select, [names, [self.signals[n] for n in names], self.combine, self.missing]


@dataclass(frozen=True, slots=True)
class Unit:
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


class Ask(Protocol):
    """Runs SQL with positional parameters."""

    def __call__(self, sql: str, parameters: list[Any]) -> pa.Table: ...


def rewards_of(ask: Ask, units: Sequence[Unit], weights: RewardWeights) -> dict[str, Reward]:
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
