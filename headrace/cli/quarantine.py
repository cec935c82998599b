"""``headrace quarantine``: what was held back and why; let it be judged again, or let it go."""

from typing import Annotated, cast

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_fields, print_rows
from headrace.cli.common import JsonOption, YesOption, confirm
from headrace.cli.requests import done_or_waits
from proxy.clients.keys import ALL_TENANTS
from trajectory.canonical import JsonValue

app = typer.Typer(help="Quarantined exchanges: list, show, release, drop.", no_args_is_help=True)

CasesArgument = Annotated[
    list[str] | None, typer.Argument(help="Ids of cases or exchanges, as `list` shows them.")
]
ReasonOption = Annotated[
    str | None, typer.Option(help="All open cases with this reason, e.g. quality:answer-not-cut.")
]
TenantOption = Annotated[str | None, typer.Option(help="Only cases of this tenant.")]


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
    from headrace.govern.quarantine_store import kept_as
    from headrace.services.quarantine import cases, content_of

    running = AppContext.of(context)
    kept = content_of(running).names()
    rows = [
        {
            "case": row["quarantine_id"],
            "tenant": row["tenant_id"],
            "exchange": row["exchange_id"],
            "at": row["started_at"],
            "stage": row["stage"],
            "reason": row["reason"],
            "status": row["status"],
            "content": "sealed" if kept_as(row) in kept else "gone",
        }
        for row in cases(running, tenant=tenant, reason=reason, status=status)[:limit]
    ]
    print_rows([jsonable(row) for row in rows], as_json=as_json, empty="nothing is held back")


@app.command()
def show(
    context: typer.Context,
    case: Annotated[str, typer.Argument(help="Id of a case or an exchange.")],
    as_json: JsonOption = False,
) -> None:
    """Show one case: where it was held, why, and under which policy; never its content."""
    from headrace.govern.quarantine_store import kept_as
    from headrace.services.quarantine import content_of, named

    running = AppContext.of(context)
    (row,) = named(running, [case])
    fields = {name: value for name, value in row.items() if name != "event_date"}
    fields["content"] = "sealed" if kept_as(row) in content_of(running).names() else "gone"
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

    That policy may quarantine them again. Their content goes back into the sealed spool.
    """
    from headrace.services import quarantine
    from headrace.services.acts import RELEASE
    from headrace.services.four_eyes import perform

    running = AppContext.of(context)
    chosen = quarantine.chosen(running, cases, reason, tenant)
    tenants = {row["tenant_id"] for row in chosen}
    names: list[JsonValue] = [row["quarantine_id"] for row in chosen]
    found = perform(
        running,
        running.user,
        RELEASE,
        {"cases": names},
        subject=f"{len(names)} held exchange(s)",
        why=reason or "",
        tenant=tenants.pop() if len(tenants) == 1 else ALL_TENANTS,
    )
    outcome = done_or_waits(found, as_json=as_json)
    gone = cast("list[str]", outcome["gone"])
    for one in gone:
        note(f"{one}: its content is gone; it can only be dropped.")
    damaged = cast("dict[str, str]", outcome["damaged"])
    for one, why in damaged.items():
        note(f"{one} stays held: {why}")
    without_room = cast("int", outcome["without_room"])
    print_fields({"released": outcome["released"], "of": outcome["of"]}, as_json=as_json)
    if outcome["released"]:
        note("they are judged with the governor's next batch (`headrace govern --once`).")
    if without_room:
        note(
            f"{without_room} stay held: the spool has no room for them beside live calls now; "
            "release them once the governor has caught up."
        )
    if gone or damaged or without_room:
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
    """Delete the sealed content of cases for good; the ledger keeps their lines."""
    from headrace.services import quarantine

    running = AppContext.of(context)
    chosen = quarantine.chosen(running, cases, reason, tenant)
    confirm(f"Drop {len(chosen)} held exchange(s) for good?", yes=yes)
    dropped = quarantine.drop(running, chosen, running.user.name)
    print_fields({"dropped": dropped}, as_json=as_json)
