"""Lineage of versions and trajectories: from a model or an artefact back to steps, and from a trajectory on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.app.context import AppContext
from train.registry.artifacts import ArtifactRegistry
from train.registry.lineage import (
    ModelUse,
    is_made_by_run,
    lineage_of_exchange,
    lineage_of_model,
    models_after,
)
from train.registry.versions import ModelRegistry
from trajectory.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TrajectoryShare:
    """A trajectory that a version came from."""

    tenant_id: str
    trajectory_id: str
    steps: int
    """How many of its steps."""


@dataclass(frozen=True, slots=True)
class VersionLineage:
    """What a version of a model or of an artefact came from."""

    label: str
    kind: str
    """model | artifact"""
    run_id: str | None
    """None for an artefact, and for a model that was adopted: no run made it here."""
    substrate: str | None
    """``name@version`` of what a model's run learned from."""
    ancestors: tuple[str, ...]
    """The versions that a model began with, nearest first; it knows what they learned."""
    decision: str | None
    """The decision that an artefact follows."""
    trajectories: tuple[TrajectoryShare, ...]
    steps: int
    people: int


@dataclass(frozen=True, slots=True)
class SubstrateUse:
    """A substrate with steps of a trajectory."""

    substrate: str
    split: str
    steps: int


@dataclass(frozen=True, slots=True)
class ArtifactUse:
    """A version of an artefact that was drawn from steps of a trajectory."""

    artifact: str
    version: str
    status: str
    steps: int


@dataclass(frozen=True, slots=True)
class TrajectoryLineage:
    """What came of a trajectory."""

    tenant_id: str
    trajectory_id: str
    steps: int
    substrates: tuple[SubstrateUse, ...]
    models: tuple[ModelUse, ...]
    artifacts: tuple[ArtifactUse, ...]
    decisions: tuple[str, ...]
    """Decisions that name it as an example."""


def lineage_of(app: AppContext, what: str) -> VersionLineage | TrajectoryLineage:
    """Return the lineage of NAME@VERSION, or of a trajectory by its own id, a step's or an exchange's.

    Raises:
        ConfigurationError: there is nothing of this name.
    """
    if "@" in what:
        return _of_version(app, what)
    return _of_trajectory(app, _trajectory_of(app, what))


def _of_version(app: AppContext, label: str) -> VersionLineage:
    name, _, version = label.partition("@")
    artifacts = ArtifactRegistry(app.home.artifacts, source=app.lake)
    if name in artifacts.names():
        one = artifacts.get(name, version)
        shares = _shares(app, one.manifest["tenant"], one.evidence)
        return VersionLineage(
            label, "artifact", None, None, (), one.manifest["decision"], shares,
            len(one.evidence), len(one.subjects),
        )  # fmt: skip
    if is_adopted(app, name, version):
        return VersionLineage(label, "model", None, None, (), None, (), 0, 0)
    found = lineage_of_model(app.lake, name, version, models=app.home.models)
    steps = {(row.tenant_id, row.trajectory_id, row.step_id) for row in found.rows}
    counted = Counter((tenant, trajectory) for tenant, trajectory, _ in steps)
    return VersionLineage(
        label,
        "model",
        found.run_id,
        f"{found.substrate}@{found.substrate_version}",
        found.ancestors,
        None,
        tuple(TrajectoryShare(*whose, count) for whose, count in sorted(counted.items())),
        len(steps),
        len(found.subjects),
    )


def is_adopted(app: AppContext, name: str, version: str) -> bool:
    """Tell whether a model was brought from elsewhere: no run of this installation made it."""
    known = ModelRegistry(app.home.models, source=app.lake).versions(name)
    is_known = any(one.version == version for one in known)
    return is_known and not is_made_by_run(app.lake, name, version)


def _shares(
    app: AppContext, tenant: str | None, steps: Sequence[str]
) -> tuple[TrajectoryShare, ...]:
    """Return the trajectories of steps that are still in the lake."""
    rows = _rows(
        app,
        "SELECT tenant_id, trajectory_id, count(*) AS steps FROM steps WHERE tenant_id = $tenant "
        "AND step_id IN (SELECT unnest($steps::VARCHAR[])) GROUP BY ALL ORDER BY trajectory_id",
        tenant=tenant,
        steps=list(steps),
    )
    return tuple(TrajectoryShare(**row) for row in rows)


def _trajectory_of(app: AppContext, what: str) -> tuple[str, str, list[str]]:
    """Return a trajectory's tenant, id and steps, by its own id, a step's or an exchange's."""
    wanted = [what, *lineage_of_exchange(app.lake, what)]
    rows = _rows(
        app,
        "SELECT tenant_id, trajectory_id, list(step_id ORDER BY step_id) AS steps FROM steps "
        "WHERE (tenant_id, trajectory_id) IN (SELECT (tenant_id, trajectory_id) FROM steps "
        "WHERE trajectory_id = $what OR step_id IN (SELECT unnest($wanted::VARCHAR[]))) "
        "GROUP BY ALL ORDER BY tenant_id LIMIT 1",
        what=what,
        wanted=wanted,
    )
    if not rows:
        raise ConfigurationError(
            f"no trajectory, step or exchange {what!r}; a version is written NAME@VERSION"
        )
    return rows[0]["tenant_id"], rows[0]["trajectory_id"], rows[0]["steps"]


def _of_trajectory(app: AppContext, found: tuple[str, str, list[str]]) -> TrajectoryLineage:
    tenant, trajectory, steps = found
    given = {"tenant": tenant, "steps": steps}
    substrates = _rows(
        app,
        "SELECT substrate || '@' || version AS substrate, split, count(DISTINCT step_id) AS steps "
        "FROM substrate_items WHERE tenant_id = $tenant "
        "AND step_id IN (SELECT unnest($steps::VARCHAR[])) GROUP BY ALL ORDER BY ALL",
        **given,
    )
    artifacts = _rows(
        app,
        "SELECT name AS artifact, version, status, len(list_intersect(evidence, $steps::VARCHAR[])) AS steps "
        "FROM artifacts_latest WHERE for_tenant = $tenant AND list_has_any(evidence, $steps::VARCHAR[]) "
        "ORDER BY name, version",
        **given,
    )
    decisions = _rows(
        app,
        "SELECT decision_id FROM decisions_latest WHERE contains(document, $quoted) ORDER BY decision_id",
        quoted=f'"{trajectory}"',
    )
    return TrajectoryLineage(
        tenant,
        trajectory,
        len(steps),
        tuple(SubstrateUse(**row) for row in substrates),
        models_after(app.lake, steps, models=app.home.models),
        tuple(ArtifactUse(**row) for row in artifacts),
        tuple(row["decision_id"] for row in decisions),
    )


def _rows(app: AppContext, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = app.lake.query(sql, parameters=parameters).to_pylist()
    return found
