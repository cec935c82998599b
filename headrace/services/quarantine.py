"""Cases of quarantine: found, judged again, or let go; each change is a row and an audit entry."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import batched
from typing import Any, NamedTuple

from headrace.app.context import AppContext
from headrace.app.installation import gateway_config
from headrace.govern.quarantine_store import (
    CALLS_AT_ONCE,
    QuarantineStore,
    kept_as,
    quarantine_of,
    with_released,
    write_again,
)
from headrace.services.holds import holds_exchange, holds_of_lake
from proxy.recording.spool_factory import open_spool, spool_room
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError, IntegrityError
from trajectory.exchange import released_name
from trajectory.files import locked, make_folders

type Case = dict[str, Any]
"""A row of the view ``quarantined``."""


def content_of(app: AppContext) -> QuarantineStore:
    """Return the sealed exchanges behind the cases."""
    return quarantine_of(app.home, app.secrets)


def cases(
    app: AppContext, *, tenant: str | None = None, reason: str | None = None, status: str = "held"
) -> list[Case]:
    """Return the cases that fit, the latest first; ``status`` may be ``all``."""
    rows: list[Case] = app.lake.query(
        "SELECT * FROM quarantined WHERE ($tenant IS NULL OR tenant_id = $tenant) "
        "AND ($reason IS NULL OR reason = $reason) AND ($status = 'all' OR status = $status) "
        "ORDER BY started_at DESC, quarantine_id",
        parameters={"tenant": tenant, "reason": reason, "status": status},
    ).to_pylist()
    return rows


def named(app: AppContext, names: Sequence[str]) -> list[Case]:
    """Return cases by their own id or their exchange's.

    Raises:
        ConfigurationError: there is no case of a name.
    """
    rows = cases(app, status="all")
    found = []
    for name in names:
        fits = [row for row in rows if name in (row["quarantine_id"], row["exchange_id"])]
        if not fits:
            raise ConfigurationError(f"no case {name!r}; `headrace quarantine list` shows them.")
        found += fits[:1]
    return found


def chosen(
    app: AppContext, names: Sequence[str] | None, reason: str | None, tenant: str | None
) -> list[Case]:
    """Return the held cases of these names, or all with a reason.

    Raises:
        ConfigurationError: neither is given, a name is unknown, or a case is not held any more.
    """
    if not names and reason is None:
        raise ConfigurationError("name cases, or give --reason REASON for all held with it.")
    rows = named(app, names) if names else cases(app, tenant=tenant, reason=reason)
    for row in rows:
        if row["status"] != "held":
            raise ConfigurationError(f"case {row['quarantine_id']} is {row['status']} already.")
    return rows


def release(app: AppContext, found: Sequence[Case], actor: str) -> list[Case]:
    """Write the calls of cases into the spool again; return the cases that were released.

    The others are closed by now, their content is gone or damaged, or the spool has no room for them now: what
    live calls need of it is left to them. What an exchange brought beside released calls stays as it was judged,
    and what of it is held stays held.

    Raises:
        ConfigurationError: the spool's folder cannot be used.
        SpoolUnavailableError: the disk refused.
    """
    content = content_of(app)
    spool = gateway_config(app.settings, app.home.create()).spool
    released: list[Case] = []
    with _held_still(app, found) as held:
        fitting = [*_that_fit(content, held.cases, spool_room(spool))]
        if not fitting:
            return []
        with open_spool(spool, app.secrets.derive(b"spool")) as writer:
            for name, rows in fitting:
                exchange = content.opened(name)
                rows = [row for row in rows if not content.notes.damage(row["step_id"])]
                if exchange is None or not rows:
                    continue
                calls = [row["exchange_id"] for row in rows if row["part_of"]]
                some = [with_released(exchange, few) for few in batched(calls, CALLS_AT_ONCE)]
                for part in some or [exchange]:
                    write_again(writer, part)
                released += [
                    {**row, "released_as": released_name(row["exchange_id"])} for row in rows
                ]
            writer.finish()  # before the sealed copies go: a power cut may come
        _close(app, released, "released", actor)
        done = {row["quarantine_id"] for row in released}
        needed = {kept_as(row) for row in held.cases if row["quarantine_id"] not in done}
        content.drop({kept_as(row) for row in released} - held.needed - needed)
    return released


def damage_of(content: QuarantineStore, case: Case) -> str:
    """Return why what is kept of a case does not open, with the remedy; empty where it does, or is gone."""
    try:
        exchange = content.read(kept_as(case))
    except IntegrityError as error:
        return str(error)
    return "" if exchange is None else content.notes.damage(case["step_id"])


def drop(app: AppContext, found: Sequence[Case], actor: str) -> int:
    """Delete the sealed content of cases, of which the ledger keeps the line; return how many were held.

    An exchange of which more calls are held goes with the last of them.

    Raises:
        ConfigurationError: a legal hold keeps one of them; nothing was deleted.
    """
    content, holds = content_of(app), holds_of_lake(app)
    there = content.names()
    for row in found:
        name = kept_as(row)
        if name in there and holds_exchange(holds, content.opened(name), row["tenant_id"]):
            raise ConfigurationError(
                f"case {row['quarantine_id']} is under a legal hold: it can be dropped once the hold is lifted."
            )
    return _drop(app, found, actor)


def _drop(app: AppContext, found: Sequence[Case], actor: str, *, why: str | None = None) -> int:
    with _held_still(app, found) as held:
        content = content_of(app)
        content.drop({kept_as(row) for row in held.cases} - held.needed)
        content.notes.drop(row["step_id"] for row in held.cases)
        _close(app, held.cases, "dropped", actor, why=why)
    return len(held.cases)


class _HeldCases(NamedTuple):
    """Cases that are held while somebody closes them."""

    cases: list[Case]
    needed: set[str]
    """The exchanges of other cases that are held."""


@contextmanager
def _held_still(app: AppContext, found: Sequence[Case]) -> Iterator[_HeldCases]:
    """Give those of the cases that nobody has closed meanwhile; nobody else closes any until the end."""
    make_folders(app.home.held, 0o700)
    with locked(app.home.held, wait=True):
        held = {row["quarantine_id"]: kept_as(row) for row in cases(app)}
        mine = [row for row in found if held.pop(row["quarantine_id"], None)]
        yield _HeldCases(mine, set(held.values()))


def _that_fit(
    content: QuarantineStore, found: Sequence[Case], room: int
) -> Iterator[tuple[str, list[Case]]]:
    """Yield the exchanges of cases with these, the earliest first, as many as there is room for."""
    for name, rows in _by_exchange(found):
        calls = sum(1 for row in rows if row["part_of"])
        size = content.size(name) * max(1, -(-calls // CALLS_AT_ONCE))
        if size <= room:
            room -= size
            yield name, rows


def _by_exchange(found: Sequence[Case]) -> Iterator[tuple[str, list[Case]]]:
    """Yield the exchanges of cases with these, the earliest first."""
    places: dict[str, list[Case]] = {}
    for row in sorted(found, key=lambda row: row["started_at"]):
        places.setdefault(kept_as(row), []).append(row)
    yield from places.items()


class QuarantineErasure(NamedTuple):
    """Effect of an erasure on a tenant's quarantine."""

    dropped: int
    kept: int
    """Exchanges under a legal hold: they stay."""


def drop_held(app: AppContext, tenant: str, actor: str, why: str) -> QuarantineErasure:
    """Drop what is held of a tenant and under no legal hold.

    Nobody can search sealed content for a person who is to be erased. What was sealed and has no case,
    since its batch was killed and then judged by another policy, goes too.
    """
    content, holds = content_of(app), holds_of_lake(app)
    there, held = content.names(), cases(app)
    found = [row for row in held if row["tenant_id"] == tenant and kept_as(row) in there]
    go = [row for row in found if not holds_exchange(holds, content.opened(kept_as(row)), tenant)]
    dropped = _drop(app, go, actor, why=why)
    orphans, kept = [], len(found) - len(go)
    for name in sorted(there.difference(map(kept_as, held))):
        exchange = content.opened(name)
        if exchange is None or exchange.client.tenant_id != tenant:
            continue
        if holds_exchange(holds, exchange, tenant):
            kept += 1
            continue
        app.audit.append(
            actor=actor,
            action="quarantine.dropped",
            subject=name,
            detail={"tenant": tenant, "reason": "no case", "why": why},
        )
        orphans.append(name)
    content.drop(orphans)
    content.notes.drop_of(tenant, kept=content.names())
    return QuarantineErasure(dropped + len(orphans), kept)


def _close(
    app: AppContext, found: Sequence[Case], status: str, actor: str, *, why: str | None = None
) -> None:
    """Write the new state of cases, and one audit entry for each."""
    now = datetime.now(UTC)
    fresh = []
    for row in found:
        detail = {"by": actor, "before": row["detail"]}
        detail |= {"released_as": row["released_as"]} if "released_as" in row else {}
        detail |= {"why": why} if why else {}
        fields = {
            name: value for name, value in row.items() if name not in ("released_as", "event_date")
        }
        written = canonical_json(detail).decode()
        fresh.append({**fields, "status": status, "recorded_at": now, "detail": written})
        app.audit.append(
            actor=actor,
            action=f"quarantine.{status}",
            subject=row["quarantine_id"],
            detail={"tenant": row["tenant_id"], "reason": row["reason"], "why": why},
        )
    app.lake.append_rows("quarantine", fresh)
