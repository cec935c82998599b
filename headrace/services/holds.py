"""Legal holds as the policy in force has them: over rows that were stored before a hold, too.

A hold is declared after the fact and lifted again. What a row was stamped with at its capture says
which hold counted then; whether it may be deleted now, the policies in force say: this home's, and those of the other
homes of its lake.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from governance.passes.admit import agents_of, regions_of
from governance.policy import Facts, Match, load_bundle
from governance.policy.retention import LegalHold
from headrace.app.settings import Settings
from headrace.services.homes import Homes
from lakehouse.read.conversations import RunSql
from trajectory.errors import RetryableError
from trajectory.exchange import Exchange

if TYPE_CHECKING:
    from headrace.app.context import AppContext

_SETTLED_SECONDS = 0.5
"""An editor, `cp` and a mounted ConfigMap have written a file long before."""
_LOOKS = 100
_NOT_STORED = frozenset({"agent", "provider", "region"})
"""What rows do not tell; a hold that asks for it holds whatever else fits."""
_NOT_READ = frozenset({"dialect", "model", "tool", "data_class"})
"""What an exchange does not tell before it is read; a hold that asks for it holds whatever else fits."""
_FACTS = """
SELECT s.trajectory_id, s.app_id, s.environment, s.route, s.dialect, s.kind,
       coalesce(s.model_served, s.model_requested, '') AS model,
       list_transform(s.tool_calls, lambda c: c.name) AS tools,
       coalesce(g.data_classes, []) AS data_classes
FROM steps s
LEFT JOIN governance g ON g.tenant_id = s.tenant_id AND g.step_id = s.step_id
WHERE s.tenant_id = ? AND s.trajectory_id IN (SELECT unnest(?::VARCHAR[]))
GROUP BY ALL
"""
_FACTS_OF_CASES = """
SELECT DISTINCT q.trajectory_id, e.app_id, e.environment, e.route, e.dialect, '' AS kind,
       '' AS model, [] AS tools
FROM quarantined q JOIN exchanges e ON q.tenant_id = e.tenant_id AND q.exchange_id = e.exchange_id
WHERE q.status = 'held' AND q.tenant_id = ? AND q.trajectory_id IN (SELECT unnest(?::VARCHAR[]))
"""


def holds_of(app: "AppContext") -> Callable[[str, Sequence[str]], set[str]]:
    """Return what tells which of a tenant's trajectories a legal hold keeps; see :func:`holds_of_lake`."""
    holds = holds_of_lake(app)

    def held(tenant: str, trajectories: Sequence[str]) -> set[str]:
        return held_now(app.lake.query, holds, tenant, trajectories)

    return held


def holds_of_lake(app: "AppContext") -> tuple[LegalHold, ...]:
    """Return the legal holds of this home's policy, and those that the other homes of its lake told.

    Raises:
        PolicyError: the policy is wrong.
        RetryableError: its files change again and again, or another home said nothing that can be read.
    """
    return (*holds_in(app.settings), *Homes.of(app).legal_holds_of_others())


def holds_in(
    settings: Settings, wait: Callable[[float], None] = time.sleep
) -> tuple[LegalHold, ...]:
    """Return the legal holds of the policy that the settings name.

    Half a file may be valid and have half its holds, and what a hold keeps cannot be brought back. So
    files that were written a moment ago are left alone until nobody writes them.

    Raises:
        PolicyError: the policy is wrong.
        RetryableError: its files change again and again.
    """
    path = settings.policy.folder
    for _ in range(_LOOKS):
        before = _written(path)
        age = time.time() - before[0]
        if 0 <= age < _SETTLED_SECONDS:
            wait(_SETTLED_SECONDS - age)
            continue
        bundle = load_bundle(path)
        if _written(path) == before:
            return bundle.retention.spec.legal_holds
    raise RetryableError(f"{path}: the files change while they are read; run the same again")


def _written(path: Path) -> tuple[float, tuple[tuple[str, int, int], ...]]:
    """Return when a file of a policy last changed, and what tells one state of them all from another."""
    found = []
    for file in sorted(path.rglob("*")):
        with suppress(FileNotFoundError):
            status = file.stat()
            found.append((str(file), status.st_ctime_ns, status.st_size))
    return max((changed for _, changed, _ in found), default=0) / 1e9, tuple(found)


def holds_exchange(
    holds: Sequence[LegalHold], exchange: Exchange | None, tenant: str | None = None
) -> bool:
    """Whether a legal hold keeps a raw exchange.

    None stands for one that cannot be opened: any hold that may fit its tenant keeps it, or any at all
    where nobody knows the tenant.
    """
    if exchange is not None:
        facts, unknown = _facts_of_exchange(exchange), _NOT_READ
    else:
        known = set() if tenant is None else {"tenant"}
        facts, unknown = Facts(tenant=tenant or ""), frozenset(Match.model_fields) - known
    return any(hold.match.fits(facts, unknown=unknown) for hold in holds)


def _facts_of_exchange(exchange: Exchange) -> Facts:
    client, headers = exchange.client, exchange.request.headers
    return Facts(
        tenant=client.tenant_id,
        app=client.app_id,
        environment=client.environment,
        route=exchange.route,
        upstream=exchange.upstream,
        agents=agents_of(headers),
        regions=regions_of(headers, exchange.upstream),
    )


def held_now(
    query: RunSql, holds: Sequence[LegalHold], tenant: str, trajectories: Sequence[str]
) -> set[str]:
    """Return the trajectories with a step, or a call in quarantine, that matches a legal hold.

    The empty name stands for what has no stored trajectory, as feedback on a session: any hold that
    may fit the tenant keeps it.
    """
    matches = [
        hold.match
        for hold in holds
        if _asks_more(hold.match) or hold.match.fits(Facts(tenant=tenant), unknown=_NOT_STORED)
    ]
    if not matches or not trajectories:
        return set()
    rows = query(_FACTS, [tenant, list(trajectories)]).to_pylist()
    held = {
        row["trajectory_id"]
        for row in rows
        if _held(matches, facts_of(row, tenant, tuple(row["data_classes"])))
    }
    unknown = _NOT_STORED | _NOT_READ - {"dialect"}
    held |= {
        row["trajectory_id"]
        for row in query(_FACTS_OF_CASES, [tenant, list(trajectories)]).to_pylist()
        if any(match.fits(facts_of(row, tenant, ()), unknown=unknown) for match in matches)
    }
    facts = Facts(tenant=tenant)
    anything = frozenset(Match.model_fields) - {"tenant"}
    if "" in trajectories and any(one.fits(facts, unknown=anything) for one in matches):
        held.add("")
    return held


def _held(matches: Sequence[Match], facts: Facts) -> bool:
    return any(match.fits(facts, unknown=_NOT_STORED) for match in matches)


def _asks_more(match: Match) -> bool:
    """Whether a match asks for anything beside the tenant that rows tell."""
    return bool(match.model_fields_set - {"tenant"} - _NOT_STORED)


def facts_of(row: dict[str, Any], tenant: str, data_classes: tuple[str, ...]) -> Facts:
    """Return what selectors see of a stored step; agent, provider and region are not stored."""
    return Facts(
        tenant=tenant,
        app=row["app_id"],
        environment=row["environment"],
        route=row["route"],
        dialect=row["dialect"],
        kind=row["kind"],
        model=row["model"],
        tools=tuple(name for name in row["tools"] or () if name),
        data_classes=data_classes,
    )
