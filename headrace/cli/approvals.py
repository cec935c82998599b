"""``headrace approvals``: tool calls that wait for a person; let them go on, or deny them."""

from typing import Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, moment, print_fields, print_rows
from headrace.cli.common import JsonOption

app = typer.Typer(
    help="Tool calls that wait for a person: list, show, approve, deny.", no_args_is_help=True
)

IdArgument = Annotated[str, typer.Argument(help="Id of an approval, as `list` shows it.")]


@app.command("list")
def list_approvals(
    context: typer.Context,
    status: Annotated[
        str, typer.Option(help="pending, approved, used, denied, expired or all.")
    ] = "pending",
    tenant: Annotated[str | None, typer.Option(help="Only calls of this tenant.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List calls that wait, with the rule that holds them; never what they say."""
    from headrace.services.approvals import approvals

    rows = [
        {
            "approval": one.approval_id,
            "status": one.status,
            "tenant": one.tenant,
            "route": one.route,
            "rule": one.rule,
            "severity": one.severity,
            "asked": moment(one.created),
            "until": moment(one.expires),
        }
        for one in approvals(AppContext.of(context), status=status, tenant=tenant)
    ]
    print_rows([jsonable(row) for row in rows], as_json=as_json, empty="no call waits")


@app.command()
def show(context: typer.Context, approval: IdArgument, as_json: JsonOption = False) -> None:
    """Show one call with its tool and arguments, as long as it waits; reading it is audited."""
    from headrace.services.approvals import shown

    fields = shown(AppContext.of(context), approval, AppContext.of(context).user.name)
    print_fields(jsonable(_with_times(fields)), as_json=as_json)


@app.command()
def approve(
    context: typer.Context,
    approval: IdArgument,
    reason: Annotated[str, typer.Option(help="Why, for whoever learns from it.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Let a call go on, once; a client that has left meanwhile may come back for ten minutes."""
    _decide(context, approval, reason, approve=True, as_json=as_json)


@app.command()
def deny(
    context: typer.Context,
    approval: IdArgument,
    reason: Annotated[str, typer.Option(help="Why; the agent is told.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Deny a call: its agent hears so, and goes on."""
    _decide(context, approval, reason, approve=False, as_json=as_json)


@app.command()
def credential(context: typer.Context) -> None:
    """Print what opens /approvals on the gateway's admin port; for operators, not for agents."""
    from headrace.app.guard import credential_of

    running = AppContext.of(context)
    running.audit.append(
        actor=running.user.name, action="approval.credential", subject="operators", detail={}
    )
    typer.echo(credential_of(running.secrets))


def _decide(
    context: typer.Context, approval: str, reason: str, *, approve: bool, as_json: bool
) -> None:
    from headrace.services.approvals import decide

    running = AppContext.of(context)
    found = decide(running, approval, approve=approve, who=running.user.name, reason=reason)
    print_fields({"approval": found.approval_id, "status": found.status}, as_json=as_json)


def _with_times(fields: dict[str, Any]) -> dict[str, Any]:
    times = ("created", "expires", "decided_at")
    return {name: moment(value) if name in times else value for name, value in fields.items()}
