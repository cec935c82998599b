"""Lineage in both directions: from a step to the models that learned from it, and back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from train.substrate.source import LearningSource
from trajectory.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """One step that a model learned from."""

    tenant_id: str
    item_id: str
    trajectory_id: str
    step_id: str
    exchange_id: str | None
    policy_hash: str | None
    reward: float | None
    learned_by: str = ""
    """The version whose run learned it: the model itself, or one that it began with."""


@dataclass(frozen=True, slots=True)
class ModelLineage:
    """Everything that one model version came from."""

    model: str
    version: str
    run_id: str
    recipe: str
    base: str
    substrate: str
    substrate_version: str
    started_at: datetime
    ancestors: tuple[str, ...]
    """The versions that it began with, nearest first; it knows what they learned."""
    rows: tuple[LearnedRow, ...]
    """What it and its ancestors learned from."""
    subjects: tuple[str, ...]
    """Keyed pseudonyms of the people that these steps concern."""


@dataclass(frozen=True, slots=True)
class ExchangeOrigin:
    """The captured exchange that a step was read from."""

    exchange_id: str
    route: str
    started_at: datetime
    spool_writer: str
    spool_segment: int
    spool_offset: int


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model version whose run had a step before it."""

    model: str
    version: str
    status: str
    run_id: str
    substrate: str
    substrate_version: str
    learned: bool | None
    """Whether the run used the step; None when the model's folder is not here to tell."""
    inherited_from: str | None = None
    """The version it began with, where that one learned the step and not its own run."""


@dataclass(frozen=True, slots=True)
class StepLineage:
    """Origin of a step, and the substrates and models that use it."""

    tenant_id: str
    step_id: str
    trajectory_id: str
    origin: ExchangeOrigin | None
    substrates: tuple[tuple[str, str, str], ...]
    """(name, version, split)"""
    models: tuple[ModelUse, ...]

    def line(self) -> str:
        """Return the lineage as one line for people."""
        exchange = "?" if self.origin is None else self.origin.exchange_id
        substrates = ", ".join(f"{n}@{v} ({split})" for n, v, split in self.substrates)
        models = ", ".join(
            f"{use.model}@{use.version} [{use.status}]"
            + (f" through {use.inherited_from}" if use.inherited_from else "")
            for use in self.models
        )
        return (
            f"step {self.step_id} ← exchange {exchange} → substrates {substrates or 'none'} → "
            f"models {models or 'none'}"
        )


def lineage_of_model(
    source: LearningSource, name: str, version: str, *, models: Path | None = None
) -> ModelLineage:
    """Return the run, substrate, rows and subjects behind a model version.

    Args:
        source: the lake.
        name: of the model.
        version: of the model.
        models: folder of the registry; with it only the items that the run used are listed,
            without it all items of the train side of its substrate.

    Raises:
        ConfigurationError: the lake knows no run of such a model.
    """
    run = _run_of(source, name, version)
    if run is None:
        raise ConfigurationError(
            f"no run is known for model {name!r} version {version!r}; `headrace train list` shows them"
        )
    label, above = f"{name}@{version}", ancestors_of(source, f"{name}@{version}")
    learned = tuple(row for one in (label, *above) for row in _learned_by(source, one, models))
    return ModelLineage(
        model=name,
        version=version,
        run_id=run["run_id"],
        recipe=run["recipe"],
        base=run["base_model"],
        substrate=run["substrate"],
        substrate_version=run["substrate_version"],
        started_at=run["started_at"],
        ancestors=above,
        rows=learned,
        subjects=_subjects(source, learned),
    )


def is_made_by_run(source: LearningSource, name: str, version: str) -> bool:
    """Tell whether the lake knows the run that made a version; an adopted one has none."""
    return _run_of(source, name, version) is not None


def ancestors_of(source: LearningSource, label: str) -> tuple[str, ...]:
    """Return the registered versions that a version began with, nearest first."""
    bases = _bases(source)
    found: list[str] = []
    base = bases.get(label)
    while base in bases and base not in found:
        found.append(base)
        base = bases[base]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class RemovedVersion:
    """A version whose folder is gone, as the lake remembers it."""

    base: str
    """What it began with."""
    reward_model: str
    """What scored it; empty for none."""
    is_stale: bool
    """Its substrate holds something that may no longer be learned from; it may have learned that."""


def removed_version(source: LearningSource, label: str) -> RemovedVersion | None:
    """Return what the lake tells of a version without its folder; None where it tells nothing.

    Which items its run used stood in the folder, so all of its substrate count.
    """
    name, _, version = label.partition("@")
    found = source.query(
        """
        WITH run AS (
            SELECT r.substrate, r.substrate_version AS version,
                   json_extract_string(r.manifest, '$.reward_model') AS reward_model,
                   from_json(r.manifest, '{"data": {"purposes": ["VARCHAR"]}}').data.purposes AS purposes
            FROM models_latest m JOIN runs_latest r USING (run_id)
            WHERE m.name = $name AND m.version = $version
        ), lost AS (
            SELECT 1 FROM run r
            JOIN substrate_items i ON (i.substrate, i.version) = (r.substrate, r.version)
            LEFT JOIN eligible_steps e ON (e.tenant_id, e.step_id) = (i.tenant_id, i.step_id)
            WHERE NOT coalesce(list_has_all(e.purposes, coalesce(r.purposes, [])), false)
            UNION ALL
            SELECT 1 FROM run JOIN substrates_latest s
            ON (s.name, s.version) = (run.substrate, run.version) WHERE s.stale
        )
        SELECT coalesce(base, '') AS base, EXISTS (FROM lost) AS is_stale,
               coalesce((SELECT reward_model FROM run), '') AS reward_model
        FROM models_latest WHERE name = $name AND version = $version
        """,
        parameters={"name": name, "version": version},
    ).to_pylist()
    return RemovedVersion(**found[0]) if found else None


def _bases(source: LearningSource) -> dict[str, str]:
    """Return what each registered version began with."""
    rows = source.query("SELECT name, version, base FROM models_latest").to_pylist()
    return {f"{row['name']}@{row['version']}": row["base"] or "" for row in rows}


def _run_of(source: LearningSource, name: str, version: str) -> dict[str, Any] | None:
    runs: list[dict[str, Any]] = source.query(
        "SELECT r.* FROM models_latest m JOIN runs_latest r ON m.run_id = r.run_id "
        "WHERE m.name = ? AND m.version = ?",
        parameters=[name, version],
    ).to_pylist()
    return runs[0] if runs else None


def _learned_by(source: LearningSource, label: str, models: Path | None) -> list[LearnedRow]:
    name, _, version = label.partition("@")
    run = _run_of(source, name, version)
    if run is None:
        return []
    used = None if models is None else _used_items(models / name / version)
    rows = _rows(source, run["substrate"], run["substrate_version"])
    return [replace(row, learned_by=label) for row in rows if used is None or row.item_id in used]


def lineage_of_step(
    source: LearningSource, step_id: str, *, models: Path | None = None
) -> StepLineage:
    """Return the exchange behind a step, and the substrates and models that had it.

    Raises:
        ConfigurationError: the lake has no such step.
    """
    steps = source.query(
        "SELECT s.tenant_id, s.trajectory_id, x.exchange_id, x.route, x.started_at, x.spool_writer, "
        "x.spool_segment, x.spool_offset FROM steps s LEFT JOIN exchanges x "
        "ON s.tenant_id = x.tenant_id AND s.exchange_id = x.exchange_id WHERE s.step_id = ?",
        parameters=[step_id],
    ).to_pylist()
    if not steps:
        raise ConfigurationError(
            f"no step {step_id!r} in the lake; `headrace trajectory show` lists steps"
        )
    step = steps[0]
    items = source.query(
        "SELECT substrate, version, split FROM substrate_items WHERE step_id = ? "
        "ORDER BY substrate, version",
        parameters=[step_id],
    ).to_pylist()
    return StepLineage(
        tenant_id=step["tenant_id"],
        step_id=step_id,
        trajectory_id=step["trajectory_id"],
        origin=_origin(step),
        substrates=tuple((row["substrate"], row["version"], row["split"]) for row in items),
        models=models_after(source, [step_id], models=models),
    )


def lineage_of_exchange(source: LearningSource, exchange_id: str) -> tuple[str, ...]:
    """Return the ids of the steps that an exchange became."""
    found = source.query(
        "SELECT step_id FROM steps WHERE exchange_id = ? ORDER BY step_id", parameters=[exchange_id]
    )
    return tuple(found["step_id"].to_pylist())


def _origin(step: dict[str, Any]) -> ExchangeOrigin | None:
    if step["exchange_id"] is None:
        return None
    names = ExchangeOrigin.__dataclass_fields__
    return ExchangeOrigin(**{name: step[name] for name in names})


def models_after(
    source: LearningSource, steps: Sequence[str], *, models: Path | None = None
) -> tuple[ModelUse, ...]:
    """Return the model versions whose run had one of the steps before it, and those that began with one."""
    item_ids = {
        row["item_id"]
        for row in source.query(
            "SELECT DISTINCT item_id FROM substrate_items WHERE step_id IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[[*steps]],
        ).to_pylist()
    }
    found = source.query(
        "SELECT DISTINCT m.name, m.version, m.status, m.run_id, r.substrate, r.substrate_version "
        "FROM substrate_items i JOIN runs_latest r "
        "ON i.substrate = r.substrate AND i.version = r.substrate_version "
        "JOIN models_latest m ON m.run_id = r.run_id "
        "WHERE i.step_id IN (SELECT unnest(?::VARCHAR[])) AND i.split = 'train' ORDER BY m.name, m.version",
        parameters=[[*steps]],
    ).to_pylist()
    uses = []
    for row in found:
        used = None if models is None else _used_items(models / row["name"] / row["version"])
        uses.append(
            ModelUse(
                model=row["name"],
                version=row["version"],
                status=row["status"],
                run_id=row["run_id"],
                substrate=row["substrate"],
                substrate_version=row["substrate_version"],
                learned=None if used is None else not used.isdisjoint(item_ids),
            )
        )
    return (*uses, *_heirs(source, uses))


def _heirs(source: LearningSource, uses: list[ModelUse]) -> list[ModelUse]:
    """Return the versions that one which learned the step was base or reward model of, and their heirs."""
    known = {f"{use.model}@{use.version}": use for use in uses if use.learned is not False}
    seen = {f"{use.model}@{use.version}" for use in uses if use.learned}
    rows = source.query(
        "SELECT m.name, m.version, m.status, m.run_id, r.substrate, r.substrate_version, "
        "[m.base, json_extract_string(r.manifest, '$.reward_model')] AS made_with "
        "FROM models_latest m JOIN runs_latest r ON m.run_id = r.run_id ORDER BY m.name, m.version"
    ).to_pylist()
    heirs: list[ModelUse] = []
    grown = True
    while grown:
        grown = False
        for row in rows:
            label = f"{row['name']}@{row['version']}"
            parent = next((one for one in row["made_with"] if one in known), None)
            if parent is None or label in known or label in seen:
                continue
            heir = ModelUse(
                model=row["name"],
                version=row["version"],
                status=row["status"],
                run_id=row["run_id"],
                substrate=row["substrate"],
                substrate_version=row["substrate_version"],
                learned=known[parent].learned,
                inherited_from=parent,
            )
            heirs.append(heir)
            known[label] = heir
            grown = True
    return heirs


def _rows(source: LearningSource, substrate: str, version: str) -> list[LearnedRow]:
    columns = ", ".join(name for name in LearnedRow.__dataclass_fields__ if name != "learned_by")
    found = source.query(
        f"SELECT {columns} FROM substrate_items "  # noqa: S608 (fixed names)
        "WHERE substrate = ? AND version = ? AND split = 'train' ORDER BY item_id, step_id",
        parameters=[substrate, version],
    )
    return [LearnedRow(**row) for row in found.to_pylist()]


def _used_items(folder: Path) -> set[str] | None:
    path = folder / "items.parquet"
    if not path.exists():
        return None
    return set(pq.read_table(path, columns=["item_id"])["item_id"].to_pylist())


def _subjects(source: LearningSource, rows: tuple[LearnedRow, ...]) -> tuple[str, ...]:
    found = source.query(
        "SELECT DISTINCT unnest(subjects) AS subject FROM governance "
        "WHERE step_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY subject",
        parameters=[[row.step_id for row in rows]],
    )
    return tuple(found["subject"].to_pylist())
