"""Computes credits over a lake and appends them: facts that later rewards can outdate, never change."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa

from lakehouse.credit.algorithms import Algorithm, Value
from lakehouse.credit.sql import WORLD
from lakehouse.rewards import RewardWeights
from trajectory.canonical import canonical_json


class CreditLake(Protocol):
    """What computing credits needs of a lake."""

    def query(self, sql: str, *, parameters: Any = None) -> pa.Table:
        """Return the rows of one SQL statement."""
        ...

    def append_rows(self, table: str, rows: list[dict[str, Any]]) -> int:
        """Append rows to a table."""
        ...


@dataclass(frozen=True, slots=True)
class Scope:
    """Which attempts are compared with one another; all conditions hold."""

    tenant: str | None = None
    substrate: str | None = None
    """Name of a substrate: only trajectories of its items."""
    version: str | None = None
    """Version of that substrate."""

    def sql(self) -> tuple[str, dict[str, Any]]:
        """Return a SELECT of tenant and trajectory, and its named parameters."""
        conditions: list[str] = ["true"]
        values: dict[str, Any] = {}
        if self.tenant is not None:
            conditions.append("tenant_id = $tenant")
            values["tenant"] = self.tenant
        table = "agent_steps"
        if self.substrate is not None:
            table = "substrate_items"
            conditions.append("substrate = $substrate AND version = $version")
            values |= {"substrate": self.substrate, "version": self.version}
        return (
            f"SELECT tenant_id, trajectory_id FROM {table} WHERE {' AND '.join(conditions)}",  # noqa: S608 (fixed text)
            values,
        )


@dataclass(frozen=True, slots=True)
class CreditReport:
    """What one computation gave."""

    computation_id: str
    algorithm: str
    parameters: Mapping[str, Value]
    weights_hash: str
    trajectories: int
    steps: int
    alone: int
    """Steps that were compared with nothing."""
    mean: float | None
    """Mean advantage; None without steps."""


def parameters_text(algorithm: Algorithm, given: Mapping[str, Value]) -> str:
    """Return the canonical text of all parameters, by which credits are told apart.

    Raises:
        ConfigurationError: a parameter is unknown or out of range.
    """
    return canonical_json(algorithm.settle(given)).decode()


def credit_rows(
    lake: CreditLake,
    algorithm: Algorithm,
    given: Mapping[str, Value],
    weights: RewardWeights,
    scope: Scope,
) -> pa.Table:
    """Return one row per decision of each attempt that has a reward and may be learned from.

    Raises:
        ConfigurationError: a parameter is unknown or out of range.
    """
    settled = algorithm.settle(given)
    among, values = scope.sql()
    names = sorted(weights.signals)
    world = WORLD.replace("/* scope */", among).replace(
        "/* weights */",
        "SELECT 'w' AS weights_id, unnest($names::VARCHAR[]) AS name, "
        "unnest($weighing::DOUBLE[]) AS weight, $combine::VARCHAR AS combine, "
        "$missing::VARCHAR AS missing, $gate::VARCHAR AS gate, $at_least::DOUBLE AS at_least",
    )
    sql = (
        f"{world}, found AS (SELECT * FROM ({_nested(algorithm)})) "  # noqa: S608 (fixed text)
        "SELECT d.tenant_id, d.trajectory_id, d.step_id, d.group_id, d.position, d.decisions, "
        "a.reward, d.reward AS step_reward, f.advantage::DOUBLE AS advantage, f.peers::BIGINT AS peers "
        "FROM found f JOIN decided d ON f.tenant_id = d.tenant_id AND f.step_id = d.step_id "
        "JOIN attempts a ON d.tenant_id = a.tenant_id AND d.trajectory_id = a.trajectory_id "
        "ORDER BY d.tenant_id, d.trajectory_id, d.position"
    )
    return lake.query(
        sql,
        parameters={
            **values,
            **settled,
            "names": names,
            "weighing": [weights.signals[name] for name in names],
            "combine": weights.combine,
            "missing": weights.missing,
            "gate": weights.gate,
            "at_least": weights.gate_at_least,
        },
    )


def _nested(algorithm: Algorithm) -> str:
    """Return an algorithm's text as one SELECT of its own: its leading comma becomes WITH."""
    text = algorithm.sql.strip()
    return f"WITH {text.removeprefix(',')}" if text.startswith(",") else text


def compute_credits(
    lake: CreditLake,
    algorithm: Algorithm,
    given: Mapping[str, Value],
    weights: RewardWeights,
    scope: Scope,
) -> CreditReport:
    """Compute credits and append them as one commit; return what was computed.

    Raises:
        ConfigurationError: a parameter is unknown or out of range.
        RetryableError: the commit failed for good.
    """
    rows = credit_rows(lake, algorithm, given, weights, scope).to_pylist()
    common = {
        "recorded_at": datetime.now(UTC),
        "computation_id": f"credit-{uuid4().hex}",
        "algorithm": algorithm.name,
        "algorithm_version": algorithm.version,
        "parameters": parameters_text(algorithm, given),
        "weights_hash": weights.weights_hash,
        "substrate": None if scope.substrate is None else f"{scope.substrate}@{scope.version}",
    }
    lake.append_rows("credits", [{**row, **common} for row in rows])
    return CreditReport(
        computation_id=str(common["computation_id"]),
        algorithm=algorithm.name,
        parameters=algorithm.settle(given),
        weights_hash=weights.weights_hash,
        trajectories=len({(row["tenant_id"], row["trajectory_id"]) for row in rows}),
        steps=len(rows),
        alone=sum(row["peers"] == 0 for row in rows),
        mean=sum(row["advantage"] for row in rows) / len(rows) if rows else None,
    )
