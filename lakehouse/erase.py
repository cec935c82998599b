"""Erasure of a person and the retention sweep: out of tables, history, statistics and substrates.

A person is named by keyed pseudonyms, as the column ``governance.subjects`` holds them. Whole
trajectories go, because the later steps of a conversation stand on its earlier ones. Registered
substrates that held a step become stale, and every model trained on them is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehouse.removal import REMOVED_FROM, purge_history, remove_trajectories
from lakehouse.schema import TABLES
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

type Progress = Callable[[int, int], None]
type Holds = Callable[[str, Sequence[str]], set[str]]
"""Returns those of a tenant's trajectories that a legal hold keeps now."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Everything downstream of some trajectories."""

    trajectories: tuple[str, ...]
    substrates: tuple[str, ...]
    """name@version"""
    runs: tuple[str, ...]
    models: tuple[str, ...]
    """name@version, those trained on such a model's weights included."""


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """What an erasure or a sweep did, or would do."""

    removal_id: str
    reach: Reach
    rows: dict[str, int]
    """Rows removed per table; ``exchanges`` counts ledger rows that were emptied."""
    files: int
    """Files taken off the disk."""
    dry_run: bool
    held: int = 0
    """Trajectories under legal hold: they stay."""
    ended: tuple[str, ...] = ()
    """Killed erasures that this one ends; what they had deleted stands in no count of ``rows``."""


def erase_subject(
    lake: "Lake",
    tenant: str,
    subjects: Sequence[str],
    *,
    reference: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    holds: Holds | None = None,
) -> RemovalReport:
    """Remove a person from the lake.

    An erasure of the same person that was killed is ended by this one: its substrates and models
    are named again, and what it had deleted leaves the disk.

    Args:
        lake: the lake.
        tenant: whose data.
        subjects: the pseudonyms of the person in this tenant.
        reference: ticket or document; no personal data.
        dry_run: only report.
        progress: called with trajectories done and in all.
        holds: the legal holds in force; without it, those that rows were stamped with count.

    Raises:
        ConfigurationError: no pseudonym was given.
        RetryableError: a table kept changing; what was removed is removed, run the same again.
    """
    if not subjects:
        raise ConfigurationError("give at least one pseudonym of the person to erase")
    removal_id = f"erasure-{uuid4().hex}"
    if not dry_run:
        _record(lake, tenant, subjects, removal_id, "requested", reference, {})
    with lake.lease(alone=not dry_run):
        lake.recover()
        names, held = _trajectories_of(lake, tenant, subjects, holds)
        unfinished = _unfinished(lake, tenant, subjects, removal_id)
        report = _remove(
            lake, {tenant: names}, removal_id, held, dry_run, progress, earlier=[*unfinished]
        )
    ended = {name: some for name, some in unfinished.items() if {*some} <= {*subjects}}
    report = replace(report, ended=tuple(ended))
    if not dry_run:
        _record(lake, tenant, subjects, removal_id, "done", reference, asdict(report))
        for name, people in ended.items():
            _record(lake, tenant, people, name, "done", None, {"ended_by": removal_id})
    return report


def expire(
    lake: "Lake",
    *,
    now: datetime | None = None,
    dry_run: bool = False,
    purge: bool = True,
    progress: Progress | None = None,
    holds: Holds | None = None,
) -> RemovalReport:
    """Remove every trajectory of which a step's retention has ended; a legal hold keeps it.

    Args:
        lake: the lake.
        now: the moment to judge by.
        dry_run: only report.
        purge: take the files off the disk at once; False leaves them to the vacuum's horizon, as
            is needed beside writers that no lease holds off (object stores).
        progress: called with trajectories done and in all.
        holds: the legal holds in force; without it, those that rows were stamped with count.
    """
    with lake.lease(alone=not dry_run):
        lake.recover()
        going, held = _expired(lake, now or datetime.now(UTC), holds)
        removal_id = f"expiry-{uuid4().hex}"
        return _remove(lake, going, removal_id, held, dry_run, progress, purge=purge)


def erasures_of(lake: "Lake", tenant: str, subjects: Sequence[str]) -> list[str]:
    """Return the erasures that one of these people had before, in their order."""
    found = lake.query(
        "SELECT erasure_id FROM erasures WHERE tenant_id = ? AND status = 'done' "
        "AND list_contains(?::VARCHAR[], subject) "
        "GROUP BY erasure_id ORDER BY min(recorded_at), erasure_id",
        parameters=[tenant, list(subjects)],
    )
    return list(found["erasure_id"].to_pylist())


def _unfinished(
    lake: "Lake", tenant: str, subjects: Sequence[str], removal_id: str
) -> dict[str, list[str]]:
    """Return the erasures of these people that were asked for and never ended, with their people."""
    found = lake.query(
        "SELECT erasure_id, list_sort(list(DISTINCT subject)) AS people FROM erasures "
        "WHERE tenant_id = ? AND erasure_id <> ? GROUP BY erasure_id "
        "HAVING NOT bool_or(status = 'done') "
        "AND list_has_any(list(DISTINCT subject), ?::VARCHAR[]) ORDER BY ALL",
        parameters=[tenant, removal_id, list(subjects)],
    ).to_pylist()
    return {row["erasure_id"]: row["people"] for row in found}


def _expired(
    lake: "Lake", moment: datetime, holds: Holds | None
) -> tuple[dict[str, list[str]], int]:
    """Return tenant → trajectories past their retention, and how many a legal hold keeps."""
    found = lake.query(
        """
        WITH latest AS (
            SELECT * FROM governance
            WHERE (tenant_id, trajectory_id) IN
                (SELECT (tenant_id, trajectory_id) FROM governance WHERE expires_at <= $now)
            -- Feedback ends with its trajectory, by itself only where it has none.
            AND (trajectory_id = '' OR NOT starts_with(coalesce(reasons[1], ''), 'signal:'))
            QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1
        )
        SELECT tenant_id, trajectory_id, bool_or(legal_hold) AS held FROM latest
        GROUP BY ALL HAVING min(expires_at) <= $now
        ORDER BY tenant_id, trajectory_id
        """,
        parameters={"now": moment},
    ).to_pylist()
    tenants: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        tenants.setdefault(row["tenant_id"], []).append(row)
    going: dict[str, list[str]] = {}
    kept = 0
    for tenant, rows in tenants.items():
        names, held = _without_held(tenant, rows, holds)
        kept += held
        if names:
            going[tenant] = names
    return going, kept


def _without_held(
    tenant: str, rows: Sequence[dict[str, Any]], holds: Holds | None
) -> tuple[list[str], int]:
    """Return the trajectories that no legal hold keeps, and how many one does."""
    names = [row["trajectory_id"] for row in rows]
    held = {row["trajectory_id"] for row in rows if row["held"]}
    if holds is not None:
        held = holds(tenant, names)
    return [name for name in names if name not in held], len(held)


def reach_of(lake: "Lake", trajectories: Sequence[str], earlier: Sequence[str] = ()) -> Reach:
    """Return the substrates, runs and models that some trajectories went into.

    With what ``earlier`` removals had marked before they were killed: its items are gone.
    """
    substrates = lake.query(
        "SELECT substrate, version FROM substrate_items "
        "WHERE trajectory_id IN (SELECT unnest($names::VARCHAR[])) UNION "
        "SELECT name, version FROM substrates "
        "WHERE stale_reason IN (SELECT unnest($earlier::VARCHAR[])) ORDER BY ALL",
        parameters={"names": list(trajectories), "earlier": list(earlier)},
    ).to_pylist()
    runs = [
        row
        for row in lake.query(
            "SELECT run_id, substrate, substrate_version FROM runs_latest"
        ).to_pylist()
        if {"substrate": row["substrate"], "version": row["substrate_version"]} in substrates
    ]
    models = _models_of(lake, {row["run_id"] for row in runs})
    return Reach(
        trajectories=tuple(trajectories),
        substrates=tuple(f"{row['substrate']}@{row['version']}" for row in substrates),
        runs=tuple(sorted(row["run_id"] for row in runs)),
        models=models,
    )


def _models_of(lake: "Lake", runs: set[str]) -> tuple[str, ...]:
    """Return the models of these runs and all that were trained on their weights."""
    rows = lake.query("SELECT name, version, run_id, path, base FROM models_latest").to_pylist()
    bases = {
        row["run_id"]: row["base_model"]
        for row in lake.query("SELECT run_id, base_model FROM runs_latest").to_pylist()
    }
    found: dict[str, str] = {}
    grown = True
    while grown:
        known = set(found) | set(found.values())
        fresh = {
            f"{row['name']}@{row['version']}": row["path"]
            for row in rows
            if row["run_id"] in runs or {row["base"], bases.get(row["run_id"])} & known
        }
        grown = fresh.keys() > found.keys()
        found.update(fresh)
    return tuple(sorted(found))


def _trajectories_of(
    lake: "Lake", tenant: str, subjects: Sequence[str], holds: Holds | None
) -> tuple[list[str], int]:
    """Return the trajectories that concern the person, and how many more a legal hold keeps."""
    rows = lake.query(
        "SELECT trajectory_id, bool_or(legal_hold) AS held FROM governance "
        "WHERE tenant_id = ? AND list_has_any(subjects, ?::VARCHAR[]) GROUP BY ALL ORDER BY ALL",
        parameters=[tenant, list(subjects)],
    ).to_pylist()
    return _without_held(tenant, rows, holds)


def _remove(
    lake: "Lake",
    going: dict[str, list[str]],
    removal_id: str,
    held: int,
    dry_run: bool,
    progress: Progress | None,
    *,
    purge: bool = True,
    earlier: Sequence[str] = (),
) -> RemovalReport:
    reach = reach_of(lake, [name for names in going.values() for name in names], earlier)
    rows: dict[str, int] = {}
    files = 0
    if not dry_run and (reach.trajectories or earlier):
        _mark_stale(lake, reach, removal_id)
        for tenant, names in going.items():
            counted = remove_trajectories(lake, tenant, names, reason=removal_id, progress=progress)
            rows = {name: rows.get(name, 0) + count for name, count in counted.items()}
        if purge:
            touched = [name for name, count in rows.items() if count]
            files = purge_history(lake, REMOVED_FROM if earlier else touched)
    return RemovalReport(removal_id, reach, rows, files, dry_run, held)


def _mark_stale(lake: "Lake", reach: Reach, removal_id: str) -> None:
    columns = [column.name for column in TABLES["substrates"].columns]
    rows: list[dict[str, Any]] = [
        {**row, "stale": True, "stale_reason": removal_id, "recorded_at": datetime.now(UTC)}
        for row in lake.query("SELECT * FROM substrates_latest").select(columns).to_pylist()
        if f"{row['name']}@{row['version']}" in reach.substrates
    ]
    lake.append_rows("substrates", rows)


def _record(
    lake: "Lake",
    tenant: str,
    subjects: Sequence[str],
    removal_id: str,
    status: str,
    reference: str | None,
    report: dict[str, Any],
) -> None:
    lake.append_rows(
        "erasures",
        [
            {
                "tenant_id": tenant,
                "erasure_id": removal_id,
                "subject": subject,
                "status": status,
                "recorded_at": datetime.now(UTC),
                "reference": reference,
                "report": canonical_json(report).decode(),
            }
            for subject in subjects
        ],
    )
