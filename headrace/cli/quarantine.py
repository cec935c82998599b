"""``headrace quarantine``: what was held back and why; let it be judged again, or let it go."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_fields, print_rows
from headrace.cli.common import JsonOption, YesOption, confirm, user_name
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from headrace.govern.quarantine_store import HeldContent

app = typer.Typer(
    help="Exchanges that were held back: list, show, release, drop.", no_args_is_help=True
)

CasesArgument = Annotated[
    list[str] | None, typer.Argument(help="Ids of cases or exchanges, as `list` shows them.")
]
ReasonOption = Annotated[
    str | None, typer.Option(help="All held cases with this reason, e.g. quality:answer-not-cut.")
]
TenantOption = Annotated[str | None, typer.Option(help="Only this tenant's.")]


@app.command("list")
def list_cases(
    context: typer.Context,
    tenant: TenantOption = None,
    reason: ReasonOption = None,
    status: Annotated[str, typer.Option(help="held, released, dropped or all.")] = "held",
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the latest first.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List cases with their reason, and whether their content can still be released."""
    running = AppContext.of(context)
    kept = _held(running).names()
    rows = [
        {
            "case": row["quarantine_id"],
            "tenant": row["tenant_id"],
            "exchange": row["exchange_id"],
            "at": row["started_at"],
            "stage": row["stage"],
            "reason": row["reason"],
            "status": row["status"],
            "content": "sealed" if row["exchange_id"] in kept else "gone",
        }
        for row in _cases(running, tenant=tenant, reason=reason, status=status)[:limit]
    ]
    print_rows([jsonable(row) for row in rows], as_json=as_json, empty="nothing is held back")


@app.command()
def show(
    context: typer.Context,
    case: Annotated[str, typer.Argument(help="Id of a case or an exchange.")],
    as_json: JsonOption = False,
) -> None:
    """Show one case: where it was held, why, and under which policy; never its content."""
    running = AppContext.of(context)
    (row,) = _named(running, [case])
    fields = {name: value for name, value in row.items() if name != "event_date"}
    fields["content"] = "sealed" if row["exchange_id"] in _held(running).names() else "gone"
    print_fields(jsonable(fields), as_json=as_json)


@app.command()
def release(
    context: typer.Context,
    cases: CasesArgument = None,
    reason: ReasonOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have cases judged again under the policy in force, as if they were captured now.

    What that policy would hold is held again. Their content goes back into the sealed spool.
    """
    from headrace.app.installation import gateway_config
    from headrace.govern.quarantine_store import write_again
    from proxy.spooling import open_spool

    running = AppContext.of(context)
    held = _held(running)
    chosen = _chosen(running, cases, reason, tenant)
    spool = gateway_config(running.settings, running.home.create()).spool
    released: list[dict[str, Any]] = []
    with open_spool(spool, running.secrets.derive(b"spool")) as writer:
        for row in sorted(chosen, key=lambda row: row["started_at"]):
            exchange = held.read(row["exchange_id"])
            if exchange is None:
                note(f"{row['quarantine_id']}: its content is gone; it can only be dropped.")
                continue
            released.append({**row, "released_as": write_again(writer, exchange)})
    _close(running, released, "released")
    held.drop(row["exchange_id"] for row in released)
    print_fields({"released": len(released), "of": len(chosen)}, as_json=as_json)
    if released:
        note("they are judged with the governor's next batch (`headrace govern --once`).")
    if len(released) < len(chosen):
        raise typer.Exit(1)


@app.command()
def drop(
    context: typer.Context,
    cases: CasesArgument = None,
    reason: ReasonOption = None,
    tenant: TenantOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let cases go for good: their sealed content is deleted, the ledger keeps their line."""
    running = AppContext.of(context)
    chosen = _chosen(running, cases, reason, tenant)
    confirm(f"Drop {len(chosen)} held exchange(s) for good?", yes=yes)
    _held(running).drop(row["exchange_id"] for row in chosen)
    _close(running, chosen, "dropped")
    print_fields({"dropped": len(chosen)}, as_json=as_json)


def drop_held(running: AppContext, tenant: str, why: str) -> int:
    """Drop all that is held of a tenant: nobody can search it for a person who is to be erased."""
    kept = _held(running).names()
    rows = [row for row in _cases(running, tenant=tenant) if row["exchange_id"] in kept]
    _held(running).drop(row["exchange_id"] for row in rows)
    _close(running, rows, "dropped", why=why)
    return len(rows)


def _held(running: AppContext) -> "HeldContent":
    from headrace.govern.quarantine_store import held_content

    return held_content(running.home, running.secrets)


def _cases(
    running: AppContext,
    *,
    tenant: str | None = None,
    reason: str | None = None,
    status: str = "held",
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = running.lake.query(
        "SELECT * FROM quarantined WHERE ($tenant IS NULL OR tenant_id = $tenant) "
        "AND ($reason IS NULL OR reason = $reason) AND ($status = 'all' OR status = $status) "
        "ORDER BY started_at DESC, quarantine_id",
        parameters={"tenant": tenant, "reason": reason, "status": status},
    ).to_pylist()
    return rows


def _named(running: AppContext, names: Sequence[str]) -> list[dict[str, Any]]:
    rows = _cases(running, status="all")
    found = []
    for name in names:
        fits = [row for row in rows if name in (row["quarantine_id"], row["exchange_id"])]
        if not fits:
            raise ConfigurationError(f"no case {name!r}; `headrace quarantine list` shows them.")
        found += fits[:1]
    return found


def _chosen(
    running: AppContext, cases: list[str] | None, reason: str | None, tenant: str | None
) -> list[dict[str, Any]]:
    if not cases and reason is None:
        raise ConfigurationError("name cases, or give --reason REASON for all held with it.")
    rows = _named(running, cases) if cases else _cases(running, tenant=tenant, reason=reason)
    for row in rows:
        if row["status"] != "held":
            raise ConfigurationError(f"case {row['quarantine_id']} is {row['status']} already.")
    return rows


def _close(
    running: AppContext, rows: Sequence[dict[str, Any]], status: str, *, why: str | None = None
) -> None:
    """Write the new state of cases, and one audit entry for each."""
    now = datetime.now(UTC)
    fresh = []
    for row in rows:
        detail = {"by": user_name(), "before": row["detail"]}
        detail |= {"released_as": row["released_as"]} if "released_as" in row else {}
        detail |= {"why": why} if why else {}
        fields = {
            name: value for name, value in row.items() if name not in ("released_as", "event_date")
        }
        fresh.append(
            {
                **fields,
                "status": status,
                "recorded_at": now,
                "detail": canonical_json(detail).decode(),
            }
        )
        running.audit.append(
            actor=user_name(),
            action=f"quarantine.{status}",
            subject=row["quarantine_id"],
            detail={"tenant": row["tenant_id"], "reason": row["reason"], "why": why},
        )
    running.lake.append_rows("quarantine", fresh)
