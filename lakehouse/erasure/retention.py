"""What retention lets go: trajectories, feedback and decisions that are due and no legal hold keeps."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehouse.erasure.removal import together

if TYPE_CHECKING:
    from lakehouse.lake import Lake


type Holds = Callable[[str, Sequence[str]], set[str]]
"""Returns those of a tenant's trajectories that a legal hold keeps now."""


_WAITS = timedelta(days=30)
"""How long feedback without a decision may wait for what it is about."""


def due_trajectories(
    lake: "Lake", moment: datetime, holds: Holds | None
) -> tuple[dict[str, list[str]], int]:
    """Return tenant → trajectories past their retention, and how many a legal hold keeps.

    A trajectory's life is that of its stored steps; calls that were left out do not shorten it.
    """
    found = lake.query(
        """
        WITH due AS (
            SELECT DISTINCT tenant_id, trajectory_id FROM governance
            WHERE expires_at <= $now AND trajectory_id <> ''
        ), latest AS (
            SELECT * FROM governance SEMI JOIN due USING (tenant_id, trajectory_id)
            WHERE NOT starts_with(coalesce(reasons[1], ''), 'signal:')
            QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1
        ), kept AS (
            SELECT tenant_id, step_id, trajectory_id FROM steps
            SEMI JOIN due USING (tenant_id, trajectory_id)
        ), judged AS (
            SELECT l.*, (l.tenant_id, l.step_id) IN (SELECT (tenant_id, step_id) FROM kept)
                OR (l.tenant_id, l.trajectory_id)
                    NOT IN (SELECT (tenant_id, trajectory_id) FROM kept) AS counts
            FROM latest l
        )
        SELECT tenant_id, trajectory_id FROM judged
        GROUP BY ALL HAVING min(expires_at) FILTER (counts) <= $now
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
        names, held = without_held(lake, tenant, rows, holds)
        kept += len(held)
        if names:
            going[tenant] = names
    return going, kept


def due_alone(lake: "Lake", moment: datetime, holds: Holds | None) -> dict[str, list[str]]:
    """Return tenant → feedback and decisions that no stored trajectory takes with it, and are due.

    Each ends by itself. Feedback that has no decision (older lakes) ends when nothing that it could
    be about has come for a while. Where rows tell no more, a legal hold of the tenant keeps them.
    """
    found = lake.query(
        """
        WITH stored AS (SELECT DISTINCT tenant_id, trajectory_id FROM steps),
        latest AS (
            SELECT tenant_id, step_id AS name, trajectory_id, legal_hold, expires_at,
                   starts_with(coalesce(reasons[1], ''), 'signal:') AS is_feedback
            FROM governance
            WHERE (tenant_id, step_id) IN
                (SELECT (tenant_id, step_id) FROM governance WHERE expires_at <= $now)
            QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1
        ), decided AS (
            SELECT l.*, s.trajectory_id AS place, p.signal_id IS NOT NULL AS is_there
            FROM latest l
            LEFT JOIN signals_placed p ON p.tenant_id = l.tenant_id AND p.signal_id = l.name
            LEFT JOIN stored s ON s.tenant_id = l.tenant_id
                AND s.trajectory_id = coalesce(p.trajectory_id, l.trajectory_id)
            WHERE l.expires_at <= $now
        )
        SELECT d.tenant_id, d.name, coalesce(d.place, '') AS trajectory_id, d.legal_hold AS held
        FROM decided d ANTI JOIN steps s ON s.tenant_id = d.tenant_id AND s.step_id = d.name
        WHERE CASE WHEN d.is_feedback THEN NOT (d.is_there AND d.place IS NOT NULL)
                   ELSE d.trajectory_id = '' OR d.place IS NOT NULL END
        UNION ALL
        SELECT p.tenant_id, p.signal_id, '', false FROM signals_placed p
        ANTI JOIN governance g ON g.tenant_id = p.tenant_id AND g.step_id = p.signal_id
        ANTI JOIN stored s ON s.tenant_id = p.tenant_id AND s.trajectory_id = p.trajectory_id
        ANTI JOIN steps t ON t.tenant_id = p.tenant_id
            AND (p.target_kind, p.target_id) IN (('session', t.session_hint), ('group', t.group_id))
        WHERE p.recorded_at <= $waited
        ORDER BY ALL
        """,
        parameters={"now": moment, "waited": moment - _WAITS},
    ).to_pylist()
    tenants: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        tenants.setdefault(row["tenant_id"], []).append(row)
    going: dict[str, list[str]] = {}
    for tenant, rows in tenants.items():
        places = sorted({row["trajectory_id"] for row in rows})
        held = set() if holds is None else holds(tenant, places)
        for row in rows:
            if not (row["trajectory_id"] in held if holds is not None else row["held"]):
                going.setdefault(tenant, []).append(row["name"])
    return going


def without_held(
    lake: "Lake", tenant: str, rows: Sequence[dict[str, Any]], holds: Holds | None
) -> tuple[list[str], list[str]]:
    """Return the trajectories that no legal hold keeps, and those that one does.

    What corrections took apart or joined goes together, or stays together.
    """
    whole = together(lake, tenant, [row["trajectory_id"] for row in rows])
    everything = sorted({name for names in whole.values() for name in names})
    if holds is not None:
        held = holds(tenant, everything)
    else:
        stamped = lake.query(
            "SELECT DISTINCT trajectory_id FROM governance WHERE tenant_id = ? AND legal_hold "
            "AND trajectory_id IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[tenant, everything],
        )
        held = {*stamped["trajectory_id"].to_pylist()}
    going = [names for names in whole.values() if held.isdisjoint(names)]
    kept = [name for name, names in whole.items() if not held.isdisjoint(names)]
    return list(dict.fromkeys(name for names in going for name in names)), kept
