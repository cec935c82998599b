"""Takes whole trajectories out of every table and out of their history.

What goes: steps, tokens, signals, credits, links, governance, quarantine, corrections and substrate items of the
trajectories, as corrected and as stored; messages and harnesses that no other step names, nor named before a
correction. Their ledger rows (metadata, no content) stay, so that the count of exchanges still adds up. They are
marked ``erased`` with the reason, and name no trajectory or step. Predicates kept in the tables' history name
trajectory and message ids (keyed hashes) only.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import CommitFailedError

from lakehouse.maintenance.table_maintenance import vacuum_table
from lakehouse.read.sources import literal
from lakehouse.read.spill import sweep_spills
from lakehouse.schema.tables import LOG_RETENTION
from lakehouse.write.commits import back_off, exhausted
from lakehouse.write.table_log import lasting, make_checkpoint, refresh
from trajectory.files import sync_folder

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_CHUNK = 2_000
_ATTEMPTS = 12

_BY_TRAJECTORY = ("substrate_items", "credits", "signals", "links", "tokens", "quarantine")
REMOVED_FROM = (
    *_BY_TRAJECTORY, "messages", "harnesses", "exchanges", "steps", "governance", "corrections",
)  # fmt: skip
"""Tables from which rows go."""


def together(lake: "Lake", tenant: str, trajectories: Sequence[str]) -> dict[str, list[str]]:
    """Return each trajectory with those that steps of it were stored in, or are in by now, and with the
    shadows of its steps.
    """
    moves = lake.query(
        "SELECT DISTINCT trajectory_id, stored_trajectory_id FROM corrections "
        "WHERE tenant_id = ? AND trajectory_id <> stored_trajectory_id",
        parameters=[tenant],
    )
    beside: dict[str, set[str]] = defaultdict(set)
    for one, other in zip(*(column.to_pylist() for column in moves.columns), strict=True):
        beside[one].add(other)
        beside[other].add(one)
    found = {name: _reached(name, beside) for name in trajectories}
    asked: set[str] = set()
    while names := {name for some in found.values() for name in some} - asked:
        asked |= names
        copies = lake.query(_SHADOWS, parameters={"tenant": tenant, "names": sorted(names)})
        if not copies.num_rows:
            break
        for one, other in zip(*(column.to_pylist() for column in copies.columns), strict=True):
            beside[one].add(other)
            beside[other].add(one)
        found = {name: _reached(name, beside) for name in trajectories}
    return found


_SHADOWS = """
SELECT DISTINCT s.trajectory_id, l.trajectory_id AS shadow FROM links l
JOIN steps s ON s.tenant_id = l.tenant_id AND s.step_id = l.from_step_id
WHERE l.tenant_id = $tenant AND l.kind = 'shadow' AND (
    l.trajectory_id IN (SELECT unnest($names::VARCHAR[]))
    OR s.trajectory_id IN (SELECT unnest($names::VARCHAR[]))
)
"""


def _reached(start: str, beside: Mapping[str, set[str]]) -> list[str]:
    found, rest = {start: None}, [start]
    while rest:
        for name in sorted(beside.get(rest.pop(), ())):
            if name not in found:
                found[name] = None
                rest.append(name)
    return list(found)


def remove_trajectories(
    lake: "Lake",
    tenant: str,
    trajectories: Sequence[str],
    *,
    reason: str,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Delete every row of the trajectories; return how many per table.

    They are all that belong :func:`together`.

    The order keeps a crash harmless: what depends goes first. ``steps`` and ``governance``, by which the
    trajectories are found, go last, so the same call can be made again.
    """
    removed = dict.fromkeys(REMOVED_FROM, 0)
    whole = together(lake, tenant, trajectories).values()
    trajectories = list(dict.fromkeys(name for names in whole for name in names))
    for start in range(0, len(trajectories), _CHUNK):
        if progress is not None:
            progress(start, len(trajectories))
        some = list(trajectories[start : start + _CHUNK])
        for name, count in _remove_some(lake, tenant, some, reason).items():
            removed[name] += count
    return removed


def purge_history(lake: "Lake", tables: Sequence[str]) -> int:
    """Take deleted rows off the disk: old files, and old commits with their statistics.

    Returns:
        How many files were removed. Time travel to before this moment ends here.
    """
    sweep_spills(lake.location)
    files = 0
    for name in tables:
        handle = lake.table(name)
        files += len(vacuum_table(lake, name, hours=0, everything=True))
        refresh(handle)
        make_checkpoint(lake.location, handle)
        _drop_old_commits(lake, handle)
    if lake.location.is_local:  # nothing that went comes back with a power cut
        for folder in ("_intents", *tables):
            for place, _, _ in (lake.location.folder / folder).walk():
                sync_folder(place)
    return files


def _drop_old_commits(lake: "Lake", handle: Any) -> None:
    """Clean the log up to the checkpoint, whatever the retention of the log is.

    It is put back to what tables are made with: one that was read here could be the zero of a
    removal that was killed.
    """
    _keep_commits(lake, handle, "interval 0 seconds")
    try:
        refresh(handle)
        make_checkpoint(lake.location, handle)
        handle.cleanup_metadata()
    finally:
        _keep_commits(lake, handle, LOG_RETENTION)


def _keep_commits(lake: "Lake", handle: Any, interval: str) -> None:
    with lasting(lake.location, handle):
        handle.alter.set_table_properties({"delta.logRetentionDuration": interval})


def _remove_some(lake: "Lake", tenant: str, names: list[str], reason: str) -> dict[str, int]:
    removed = dict.fromkeys(REMOVED_FROM, 0)
    listed = ", ".join(literal(name) for name in names)
    where = f"tenant_id = {literal(tenant)} AND trajectory_id IN ({listed})"
    orphans = _unshared(lake, tenant, names)
    for table in _BY_TRAJECTORY:
        removed[table] = _delete(lake, table, where)
    for table, count in remove_feedback(lake, tenant, _loose_signals(lake, tenant, names)).items():
        removed[table] = removed.get(table, 0) + count
    for table, column in (("messages", "message_id"), ("harnesses", "harness_id")):
        removed[table] = sum(
            _delete(lake, table, f"tenant_id = {literal(tenant)} AND {column} IN ({some})")
            for some in _lists(orphans[table])
        )
    removed["exchanges"] = _mark_ledger(lake, where, reason)
    removed["steps"] = _delete(lake, "steps", where)
    removed["governance"] += _delete(lake, "governance", where)
    # They hold no content, and tell a repetition of this call what else belongs together.
    removed["corrections"] = _delete(lake, "corrections", where)
    return removed


def _unshared(lake: "Lake", tenant: str, names: list[str]) -> dict[str, list[str]]:
    """Return the messages and harnesses that only these trajectories name.

    A corrected step sees fewer messages than it was stored with, never others.
    """
    messages = lake.query_stored(
        """
        WITH named AS (
            SELECT trajectory_id IN (SELECT unnest($names::VARCHAR[])) AS going,
                   unnest(list_append(context_message_ids, output_message_id)) AS id
            FROM steps WHERE tenant_id = $tenant
        )
        SELECT id FROM named WHERE id IS NOT NULL GROUP BY id HAVING bool_and(going)
        """,
        parameters={"names": names, "tenant": tenant},
    )
    harnesses = lake.query_stored(
        """
        SELECT harness_id AS id FROM steps WHERE tenant_id = $tenant AND harness_id IS NOT NULL
        GROUP BY harness_id
        HAVING bool_and(trajectory_id IN (SELECT unnest($names::VARCHAR[])))
        """,
        parameters={"names": names, "tenant": tenant},
    )
    return {"messages": messages["id"].to_pylist(), "harnesses": harnesses["id"].to_pylist()}


def _loose_signals(lake: "Lake", tenant: str, names: list[str]) -> list[str]:
    """Return signals that came before their step was known and so name no trajectory."""
    found = lake.query(
        "SELECT p.signal_id FROM signals_placed p JOIN signals g USING (tenant_id, signal_id) "
        "WHERE p.tenant_id = ? AND g.trajectory_id IS NULL "
        "AND p.trajectory_id IN (SELECT unnest(?::VARCHAR[]))",
        parameters=[tenant, names],
    )
    return list(found["signal_id"].to_pylist())


def remove_feedback(lake: "Lake", tenant: str, names: Sequence[str]) -> dict[str, int]:
    """Delete signals with the decisions on them, or decisions that stand alone; return how many."""
    removed = {"signals": 0, "governance": 0}
    for some in _lists(names):
        for table, column in (("signals", "signal_id"), ("governance", "step_id")):
            where = f"tenant_id = {literal(tenant)} AND {column} IN ({some})"
            removed[table] += _delete(lake, table, where)
    return removed


_UNNAMED = """
WITH named AS (
    SELECT tenant_id, unnest(list_append(context_message_ids, output_message_id)) AS message_id
    FROM steps
)
SELECT m.tenant_id, m.message_id FROM messages m ANTI JOIN named n
ON m.tenant_id = n.tenant_id AND m.message_id = n.message_id
"""
"""A batch that is being written has some."""


def unnamed_messages(lake: "Lake") -> list[tuple[str, str]]:
    """Return tenant and name of the messages that no step names, as stored or as corrected."""
    found = lake.query_stored(_UNNAMED)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def remove_unnamed(lake: "Lake") -> int:
    """Delete the messages that no step names; return how many. No writer may be at work."""
    tenants: dict[str, list[str]] = defaultdict(list)
    for tenant, name in unnamed_messages(lake):
        tenants[tenant].append(name)
    return sum(
        _delete(lake, "messages", f"tenant_id = {literal(tenant)} AND message_id IN ({some})")
        for tenant, names in tenants.items()
        for some in _lists(names)
    )


def _mark_ledger(lake: "Lake", where: str, reason: str) -> int:
    updates = {
        "disposition": literal("erased"),
        "reasons": f"[{literal(reason)}]",
        "trajectory_id": "NULL",
        "step_id": "NULL",
    }

    def update(handle: Any) -> int:
        return int(handle.update(predicate=where, updates=updates)["num_updated_rows"])

    return again(lake, "exchanges", update)


def _delete(lake: "Lake", table: str, where: str) -> int:
    def delete(handle: Any) -> int:
        return int(handle.delete(where)["num_deleted_rows"] or 0)

    return again(lake, table, delete)


def again(lake: "Lake", table: str, work: Callable[[Any], int]) -> int:
    """Do the work on the latest version, again when another writer's commit stood in the way."""
    for attempt in range(_ATTEMPTS):
        handle = lake.table(table)
        try:
            with lasting(lake.location, handle):
                return work(handle)
        except CommitFailedError:
            back_off(attempt)
    raise exhausted(table)


def _lists(names: Sequence[str]) -> list[str]:
    return [
        ", ".join(literal(name) for name in names[start : start + _CHUNK])
        for start in range(0, len(names), _CHUNK)
    ]
