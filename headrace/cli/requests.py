"""``headrace requests``: acts that wait for a second person; approve, reject, or do what was approved."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, moment, note, print_fields, print_rows, progress
from headrace.cli.common import JsonOption
from trajectory.canonical import JsonValue
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from headrace.services.acts import Outcome
    from headrace.services.request_store import ActRequest

app = typer.Typer(
    help="Acts that wait for a second person (policy.four_eyes): list, show, approve, reject, run.",
    no_args_is_help=True,
)

IdArgument = Annotated[str, typer.Argument(help="Id of a request, as `list` shows it.")]
WhyOption = Annotated[str, typer.Option("--reason", help="Why; kept with the decision.")]


@app.command("list")
def list_requests(
    context: typer.Context,
    status: Annotated[
        str, typer.Option(help="waiting, approved, done, failed, rejected, expired or all.")
    ] = "waiting",
    as_json: JsonOption = False,
) -> None:
    """List requests that you may approve, or made; the latest first."""
    from headrace.services.four_eyes import may_see, requests_of

    running = AppContext.of(context)
    rows = [
        {
            "request": one.request_id,
            "act": one.act,
            "subject": one.subject,
            "tenant": one.tenant,
            "status": one.status,
            "asked_by": one.asked_by.name,
            "asked": moment(one.asked_at),
            "why": one.why,
        }
        for one in requests_of(running).list(status)
        if may_see(running.user, one)
    ]
    print_rows([jsonable(row) for row in rows], as_json=as_json, empty="nothing waits")


@app.command()
def show(context: typer.Context, request: IdArgument, as_json: JsonOption = False) -> None:
    """Show one request: what it does to what, who asked, who decided, how far it is."""
    from headrace.services.four_eyes import may_see, requests_of

    running = AppContext.of(context)
    found = requests_of(running).get(request)
    if not may_see(running.user, found):
        raise ConfigurationError(
            f"request {request} is shown to who made it and to roles that may approve it; ask one of them"
        )
    print_fields(jsonable(fields_of(found)), as_json=as_json)


@app.command()
def approve(
    context: typer.Context, request: IdArgument, reason: WhyOption, as_json: JsonOption = False
) -> None:
    """Approve somebody else's request, which is then done, once."""
    from headrace.services import four_eyes
    from headrace.services.request_store import APPROVED

    running = AppContext.of(context)
    with progress("doing it", quiet=as_json) as advance:
        done = four_eyes.approve(running, running.user, request, reason=reason, progress=advance)
    print_fields(jsonable(fields_of(done)), as_json=as_json)
    if done.status == APPROVED:
        note(f"{done.asked_by.name} may do it now, once: headrace requests run {request}")


@app.command()
def reject(
    context: typer.Context, request: IdArgument, reason: WhyOption, as_json: JsonOption = False
) -> None:
    """Reject a request, or take your own back; nothing is done."""
    from headrace.services import four_eyes

    running = AppContext.of(context)
    done = four_eyes.reject(running, running.user, request, reason=reason)
    print_fields(jsonable(fields_of(done)), as_json=as_json)


@app.command()
def run(context: typer.Context, request: IdArgument, as_json: JsonOption = False) -> None:
    """Do what was approved and is not done: a value for your eyes, or the rest of what was killed."""
    from headrace.services import four_eyes

    running = AppContext.of(context)
    with progress("doing it", quiet=as_json) as advance:
        outcome = four_eyes.run(running, running.user, request, advance)
    print_fields({"request": request, "status": "done", **jsonable(outcome)}, as_json=as_json)


def done_or_waits(found: "Outcome | ActRequest", *, as_json: bool) -> "Outcome":
    """Return what came of an act; say that it waits for a second person, and end, where it is not done."""
    from headrace.services.request_store import ActRequest

    if isinstance(found, ActRequest):
        _waits(found, as_json=as_json)
        raise typer.Exit(1)
    return found


def _waits(request: "ActRequest", *, as_json: bool) -> None:
    print_fields(
        {"request": request.request_id, "act": request.act, "status": request.status},
        as_json=as_json,
    )
    note(
        "it waits for a second person, who types: "
        f"headrace requests approve {request.request_id} --reason WHY"
    )


def promote_version(
    running: AppContext,
    kind: str,
    name: str,
    version: str,
    override: str | None,
    serving: str | None = None,
) -> None:
    """Let a version of a model or an artefact serve, or ask for it; with ``serving`` in place of that one alone."""
    from headrace.services.acts import PROMOTE
    from headrace.services.four_eyes import perform

    given: dict[str, JsonValue] = {
        "kind": kind,
        "name": name,
        "version": version,
        "override": override,
    }
    if serving is not None:
        given["serving"] = serving
    found = perform(
        running, running.user, PROMOTE, given, subject=f"{name}@{version}", why=override or ""
    )
    outcome = done_or_waits(found, as_json=False)
    typer.echo(f"{outcome['serves']} {'serves' if kind == 'model' else 'is live'}")


def fields_of(request: "ActRequest") -> dict[str, Any]:
    """Return a request for the eye."""
    decided = request.decided_by
    return {
        "request": request.request_id,
        "act": request.act,
        "subject": request.subject,
        "tenant": request.tenant,
        "status": request.status,
        "asked_by": request.asked_by.name,
        "asked_at": moment(request.asked_at),
        "why": request.why,
        "expires": moment(request.expires),
        "decided_by": None if decided is None else decided.name,
        "decided_at": moment(request.decided_at),
        "reason": request.reason,
        "done": request.done,
        "total": request.total,
        "outcome": request.outcome,
        **{f"parameter {name}": value for name, value in request.parameters.items()},
    }
