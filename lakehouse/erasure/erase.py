"""Erasure of a person and the retention sweep: out of tables, history, statistics and substrates.

A person is named by keyed pseudonyms, as the column ``governance.subjects`` holds them. Whole
trajectories go, because the later steps of a conversation stand on its earlier ones. Registered
substrates that held a step become stale, and every model trained on them is named.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from deltalake.exceptions import DeltaError

from lakehouse.erasure.removal import (
    REMOVED_FROM,
    purge_history,
    remove_feedback,
    remove_trajectories,
    remove_unnamed,
    unnamed_messages,
)
from lakehouse.erasure.retention import Holds, due_alone, due_trajectories, without_held
from lakehouse.errors import in_one_line
from lakehouse.schema.tables import TABLES
from trajectory.assembly.placer import STANDS_ON
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError, RetryableError

if TYPE_CHECKING:
    from lakehouse.lake import Lake

type Progress = Callable[[int, int], None]

_UNDER_WAY = "removal-under-way"
"""The note of a removal that has begun; it is empty when what was deleted has left the disk."""


@dataclass(frozen=True, slots=True)
class DownstreamData:
    """Everything downstream of some trajectories."""

    trajectories: tuple[str, ...]
    substrates: tuple[str, ...]
    """name@version"""
    runs: tuple[str, ...]
    models: tuple[str, ...]
    """name@version, those made with such a model included: on its weights, or by its scores."""


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """What an erasure or a sweep did, or would do."""

    removal_id: str
    reach: DownstreamData
    rows: dict[str, int]
    """Rows removed per table; ``exchanges`` counts ledger rows that were emptied."""
    files: int
    """Files taken off the disk."""
    dry_run: bool
    held: int = 0
    """Trajectories under legal hold: they stay."""
    held_subjects: tuple[str, ...] = ()
    """Those of the people to erase who stand in a trajectory under legal hold."""
    alone: int = 0
    """Feedback, decisions and messages that no trajectory takes with it, and that go or would go."""
    interrupted: bool = False
    """Whether an earlier removal was killed before what it had deleted left the disk; it leaves with this."""
    ended: tuple[str, ...] = ()
    """Interrupted erasures that this run completed; ``rows`` leaves out what they had deleted."""


def erase_subject(
    lake: "Lake",
    tenant: str,
    subjects: Sequence[str],
    *,
    reference: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    holds: Holds | None = None,
    finish: Callable[[RemovalReport], Sequence[str]] | None = None,
) -> RemovalReport:
    """Remove a person from the lake.

    Old files of all tables leave the disk, whether the person has rows in them or not: in an object store those that
    retention took from the tables lie in some until the vacuum.

    This one ends a killed erasure of the same person. It names that one's substrates and models again, and deletes
    from the disk what that one had removed.

    Args:
        lake: the lake.
        tenant: whose data.
        subjects: the pseudonyms of the person in this tenant.
        reference: ticket or document; no personal data.
        dry_run: only report.
        progress: called with trajectories done and in all.
        holds: the legal holds in force; without it, those that rows were stamped with count.
        finish: called with the report before the erasure counts as done: what it does outside the
            lake is part of it, and done again when it was killed. It returns all names of people whom a
            legal hold keeps, as other homes are to know them.

    Raises:
        ConfigurationError: no pseudonym was given.
        RetryableError: a table kept changing; what was removed is removed, run the same again.
    """
    if not subjects or {"*", ""} & {*subjects}:
        raise ConfigurationError(
            "give at least one pseudonym of the person to erase, and no pattern"
        )
    removal_id = f"erasure-{uuid4().hex}"
    if not dry_run:
        asked: dict[str, dict[str, Any]] = {one: {} for one in subjects}
        _record(lake, tenant, asked, removal_id, "requested", reference)
    with lake.lease(alone=not dry_run), _explained():
        lake.recover()
        concerned = _concerned(lake, tenant, subjects)
        names, held = without_held(lake, tenant, concerned, holds)
        held_subjects = _subjects_in(concerned, held)
        feedback = {tenant: _wide_feedback(lake, tenant, names, holds)}
        unfinished = _unfinished(lake, tenant, subjects, removal_id)
        if names and not dry_run:  # first: what goes tells whom its later calls belong to
            begun = _going_with(subjects, concerned, names)
            _record(lake, tenant, begun, removal_id, "begun", reference)
        report = _remove(
            lake, {tenant: names}, feedback, removal_id, len(held), dry_run, progress,
            earlier=[*unfinished], everywhere=True,
        )  # fmt: skip
    ended = {name: some for name, some in unfinished.items() if {*some} <= {*subjects}}
    report = replace(report, ended=tuple(ended), held_subjects=held_subjects)
    if not dry_run:
        if finish is not None:
            report = replace(report, held_subjects=tuple(finish(report)))
        done = dict.fromkeys(subjects, asdict(report))
        _record(lake, tenant, done, removal_id, "done", reference)
        for name, people in ended.items():
            told: dict[str, dict[str, Any]] = {one: {"ended_by": removal_id} for one in people}
            _record(lake, tenant, told, name, "done", None)
    return report


def expire(
    lake: "Lake",
    *,
    now: datetime | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    holds: Holds | None = None,
) -> RemovalReport:
    """Remove every trajectory that has a stored step past its retention; a legal hold keeps it.

    Feedback on sessions, groups and what is not stored ends by itself. In a folder, where the lease
    holds writers off, what goes leaves the disk at once, and messages that no step names go too; in
    an object store the vacuum takes it when its horizon has passed.

    Args:
        lake: the lake.
        now: the moment to judge by.
        dry_run: only report.
        progress: called with trajectories done and in all.
        holds: the legal holds in force; without it, those that rows were stamped with count.
    """
    with lake.lease(alone=not dry_run), _explained():
        lake.recover()
        moment = now or datetime.now(UTC)
        going, held = due_trajectories(lake, moment, holds)
        alone = due_alone(lake, moment, holds)
        removal_id = f"expiry-{uuid4().hex}"
        return _remove(
            lake, going, alone, removal_id, held, dry_run, progress,
            purge=lake.location.is_local, unnamed=lake.location.is_local,
        )  # fmt: skip


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the errors of files and of delta-rs into ours."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise RetryableError(
            f"the removal did not end ({in_one_line(error)}); check disk space and permissions, then run the same "
            "again: it ends what was begun"
        ) from error


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


def _wide_feedback(
    lake: "Lake", tenant: str, trajectories: Sequence[str], holds: Holds | None
) -> list[str]:
    """Return the feedback on sessions and groups in which these trajectories stand.

    It stays where a legal hold keeps another trajectory of the same session or group.
    """
    if not trajectories:
        return []
    found = lake.query(
        """
        WITH places AS (
            SELECT DISTINCT 'session' AS target_kind, session_hint AS target_id, trajectory_id
            FROM steps WHERE tenant_id = $tenant AND session_hint IS NOT NULL
            UNION ALL
            SELECT DISTINCT 'group', group_id, trajectory_id
            FROM steps WHERE tenant_id = $tenant AND group_id IS NOT NULL
        ), about AS (
            SELECT s.signal_id, p.trajectory_id FROM signals s
            JOIN places p USING (target_kind, target_id)
            WHERE s.tenant_id = $tenant AND s.trajectory_id IS NULL
        ), held AS (
            SELECT DISTINCT trajectory_id FROM governance WHERE tenant_id = $tenant AND legal_hold
        )
        SELECT signal_id, list(DISTINCT trajectory_id) AS places,
               list(DISTINCT trajectory_id) FILTER (trajectory_id IN (FROM held)) AS held
        FROM about GROUP BY signal_id
        HAVING list_has_any(list(DISTINCT trajectory_id), $going::VARCHAR[]) ORDER BY ALL
        """,
        parameters={"tenant": tenant, "going": list(trajectories)},
    ).to_pylist()
    others = sorted({place for row in found for place in row["places"]} - {*trajectories})
    held = {place for row in found for place in row["held"] or ()}
    if holds is not None:
        held = holds(tenant, others)
    return [
        row["signal_id"] for row in found if held.isdisjoint({*row["places"]} - {*trajectories})
    ]


def reach_of(
    lake: "Lake", trajectories: Sequence[str], earlier: Sequence[str] = ()
) -> DownstreamData:
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
    return DownstreamData(
        trajectories=tuple(trajectories),
        substrates=tuple(f"{row['substrate']}@{row['version']}" for row in substrates),
        runs=tuple(sorted(row["run_id"] for row in runs)),
        models=models,
    )


def _models_of(lake: "Lake", runs: set[str]) -> tuple[str, ...]:
    """Return the models of these runs and all that were made with one: on its weights, or by its scores."""
    rows = lake.query("SELECT name, version, run_id, path, base FROM models_latest").to_pylist()
    made_with = {
        row["run_id"]: {row["base_model"], row["reward_model"]}
        for row in lake.query(
            "SELECT run_id, base_model, json_extract_string(manifest, '$.reward_model') AS reward_model "
            "FROM runs_latest"
        ).to_pylist()
    }
    found: dict[str, str] = {}
    grown = True
    while grown:
        known = set(found) | set(found.values())
        fresh = {
            f"{row['name']}@{row['version']}": row["path"]
            for row in rows
            if row["run_id"] in runs or {row["base"], *made_with.get(row["run_id"], ())} & known
        }
        grown = fresh.keys() > found.keys()
        found.update(fresh)
    return tuple(sorted(found))


def _concerned(lake: "Lake", tenant: str, subjects: Sequence[str]) -> list[dict[str, Any]]:
    """Return the trajectories that concern these people, each with whom.

    Where a session took over the history of one, or was started by its agent, after a step that concerned a person,
    what that session holds is the person's too, whomever its calls name.
    """
    rows: list[dict[str, Any]] = lake.query(
        """
        WITH RECURSIVE concerned AS (
            SELECT subject, trajectory_id, min(begun) AS since FROM (
                SELECT unnest(subjects) AS subject, trajectory_id,
                       counts_from(started_at, started_at > decided_at) AS begun FROM governance
                WHERE tenant_id = $tenant AND list_has_any(subjects, $subjects::VARCHAR[])
            ) WHERE list_contains($subjects::VARCHAR[], subject) GROUP BY ALL
            UNION
            SELECT c.subject, l.trajectory_id, t.started_at FROM concerned c
            JOIN steps f ON f.trajectory_id = c.trajectory_id
            JOIN links l ON l.from_step_id = f.step_id AND l.trajectory_id <> f.trajectory_id
            JOIN steps t ON t.step_id = l.to_step_id AND t.started_at >= c.since
            WHERE f.tenant_id = $tenant AND l.tenant_id = $tenant AND t.tenant_id = $tenant
                AND list_contains($kinds::VARCHAR[], l.kind)
        )
        SELECT DISTINCT trajectory_id, subject FROM concerned ORDER BY ALL
        """,
        parameters={"tenant": tenant, "subjects": [*subjects], "kinds": [*STANDS_ON]},
    ).to_pylist()
    return rows


def _subjects_in(
    concerned: Sequence[dict[str, Any]], trajectories: Sequence[str]
) -> tuple[str, ...]:
    """Return the people whom these trajectories concern."""
    found = {row["subject"] for row in concerned if row["trajectory_id"] in {*trajectories}}
    return tuple(sorted(found))


def _going_with(
    subjects: Sequence[str], concerned: Sequence[dict[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return for each person which of the trajectories that go concern them.

    What goes because it belongs together with others is told of all.
    """
    own = {(row["subject"], row["trajectory_id"]) for row in concerned}
    known = {trajectory for _, trajectory in own}
    going = {
        subject: [name for name in names if (subject, name) in own or name not in known]
        for subject in subjects
    }
    return {subject: {"reach": {"trajectories": some}} for subject, some in going.items()}


def _remove(
    lake: "Lake",
    going: dict[str, list[str]],
    feedback: dict[str, list[str]],
    removal_id: str,
    held: int,
    dry_run: bool,
    progress: Progress | None,
    *,
    purge: bool = True,
    everywhere: bool = False,
    earlier: Sequence[str] = (),
    unnamed: bool = False,
) -> RemovalReport:
    """Remove trajectories and feedback by tenant; with ``unnamed`` messages that no step names too.

    What ``purge`` takes off the disk are old files of the tables that lost rows, or with ``everywhere`` of all.
    """
    reach = reach_of(lake, [name for names in going.values() for name in names], earlier)
    rows: dict[str, int] = {}
    files = 0
    alone = sum(map(len, feedback.values())) + (len(unnamed_messages(lake)) if unnamed else 0)
    interrupted = purge and lake.notes().get(_UNDER_WAY) not in (None, b"")
    if not dry_run:
        removed: Counter[str] = Counter()
        if purge:
            lake.notes().put(_UNDER_WAY, removal_id.encode(), lasting=True)
        if reach.trajectories or earlier:
            _mark_stale(lake, reach, removal_id)
        for tenant, names in feedback.items():  # first: its place is found by the steps
            removed.update(remove_feedback(lake, tenant, names))
        for tenant, names in going.items():
            removed.update(
                remove_trajectories(lake, tenant, names, reason=removal_id, progress=progress)
            )
        if unnamed:
            removed["messages"] += remove_unnamed(lake)
        rows = dict(removed) if reach.trajectories or earlier else dict(+removed)
        if purge:
            touched = [name for name, count in rows.items() if count]
            files = purge_history(lake, REMOVED_FROM if everywhere or interrupted else touched)
            lake.notes().put(_UNDER_WAY, b"", lasting=True)
    return RemovalReport(
        removal_id, reach, rows, files, dry_run, held, alone=alone, interrupted=interrupted
    )


def _mark_stale(lake: "Lake", reach: DownstreamData, removal_id: str) -> None:
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
    reports: Mapping[str, dict[str, Any]],
    removal_id: str,
    status: str,
    reference: str | None,
) -> None:
    """Write down a state of an erasure, with what is told of each of its people."""
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
            for subject, report in reports.items()
        ],
    )
