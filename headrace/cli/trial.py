"""``headrace trial``: candidates on the ladder from their gate to every session."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.output import print_fields, print_rows
from headrace.cli import artifact, train
from headrace.cli.common import JsonOption, interruptible
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from evolve.ladder import TrialRoute, TrialRunner
    from evolve.trial import ArmComparison
    from evolve.trial_files import Surface, TrialFiles, TrialState

app = typer.Typer(
    help="Trials: candidates climb from their gate over shadow and canary to every session, and what "
    "does harm is rolled back.",
    no_args_is_help=True,
)

TrialArgument = Annotated[
    str,
    typer.Argument(help="Id, NAME@VERSION or NAME, as `headrace trial list` shows it."),
]
ReasonOption = Annotated[str | None, typer.Option(help="Why; audited.")]


@app.command()
def begin(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a model or an artefact.")],
    version: Annotated[str, typer.Argument(help="Version that is the candidate.")],
    policy: Annotated[
        Path | None,
        typer.Option(
            help="Document of kind Evolution whose promotion.ladder holds; by default the shipped one.",
            dir_okay=False,
        ),
    ] = None,
    decision: Annotated[
        str | None,
        typer.Option(
            help="Decision that the candidate follows; it is approved when that goes live."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put a candidate on the first rung of the ladder.

    Where the ladder has an exam (held-out tasks, a suite of safety), the candidate takes it now, and is
    refused if it fails. `headrace govern` then carries it on; on a route one change is tried at a time.
    """
    from evolve.policy import SHIPPED, load_evolution

    running = AppContext.of(context)
    ladder = load_evolution(policy or SHIPPED).spec.promotion.ladder
    steps = _runner(running)
    kind = _kind(running, name)
    with interruptible():  # an exam may come first
        begun = steps.begin(kind, name, version, ladder, decision=decision)
    _show(begun, as_json=as_json)


@app.command("list")
def list_trials(context: typer.Context, as_json: JsonOption = False) -> None:
    """List all trials, oldest first."""
    rows = [
        {**one.summary, "reasons": "; ".join(one.reasons)}
        for one in _files(AppContext.of(context)).all()
    ]
    print_rows(rows, as_json=as_json, empty="no trials yet: `headrace trial begin NAME VERSION`")


@app.command()
def show(context: typer.Context, trial: TrialArgument, as_json: JsonOption = False) -> None:
    """Show a trial: its rung, and what each comparison says of both arms."""
    _show(_files(AppContext.of(context)).get(trial), as_json=as_json)


@app.command()
def step(context: typer.Context, as_json: JsonOption = False) -> None:
    """Carry every trial on as far as it goes now; `headrace govern` does so again and again."""
    moved = _runner(AppContext.of(context)).step()
    rows = [
        {"trial": one.trial_id, "rung": one.rung, "asks": one.asks, "outcome": one.outcome,
         "reasons": "; ".join(one.reasons)}
        for one in moved
    ]  # fmt: skip
    print_rows(rows, as_json=as_json, empty="no trial moved")


@app.command()
def approve(
    context: typer.Context,
    trial: TrialArgument,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a trial climb to the rung that it asks for; audited."""
    from headrace.services.acts import PROMOTE
    from headrace.services.four_eyes import wants_two

    running = AppContext.of(context)
    found = _files(running).get(trial)
    if found.asks == "live" and wants_two(running, PROMOTE):
        command = "train" if found.kind == "model" else "artifact"
        raise ConfigurationError(
            "two people let a version serve (policy.four_eyes): "
            f"headrace {command} promote {found.name} {found.version}"
        )
    _show(_runner(AppContext.of(context)).approve(trial, reason=reason), as_json=as_json)


@app.command()
def reject(
    context: typer.Context,
    trial: TrialArgument,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a trial that asks for a rung; the live version goes on; audited."""
    running = AppContext.of(context)
    if _files(running).get(trial).asks is None:
        raise ConfigurationError(f"{trial} asks for nothing; `headrace trial end` ends a trial")
    ended = _runner(running).end(trial, reason=reason, outcome="rejected")
    _show(ended, as_json=as_json)


@app.command()
def end(
    context: typer.Context,
    trial: TrialArgument,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a trial; what serves goes on, and a canary or shadow is taken off; audited."""
    _show(_runner(AppContext.of(context)).end(trial, reason=reason), as_json=as_json)


def _files(running: AppContext) -> "TrialFiles":
    from evolve.trial_files import TrialFiles

    return TrialFiles(running.home.trials)


def _runner(running: AppContext) -> "TrialRunner":
    """Return what carries trials on; every move goes to the audit log first."""
    from evolve.decisions import DecisionBook
    from evolve.ladder import TrialRoute, TrialRunner
    from headrace.services.exams import examiner

    home, audit, lake, actor = running.home.create(), running.audit, running.lake, running.user.name
    configured = running.settings.gateway.routes

    def write_down(action: str, subject: str, detail: Any) -> None:
        audit.append(actor=actor, action=action, subject=subject, detail=detail)

    def routes(kind: "Surface", name: str) -> list["TrialRoute"]:
        if kind == "model":
            return [TrialRoute(one.name, one.shadow) for one in configured if one.model == name]
        given = [(one, one.evolve.artifacts if one.evolve else ()) for one in configured]
        return [TrialRoute(one.name, 0.0) for one, names in given if name in names]

    return TrialRunner(
        _files(running),
        {
            "model": (home.models, train.registry(running)),
            "artifact": (home.artifacts, artifact.registry(running)),
        },
        lake, write_down, actor=actor, routes=routes,
        decisions=DecisionBook(lake, write_down, actor=actor), examine=examiner(running),
    )  # fmt: skip


def _kind(running: AppContext, name: str) -> "Surface":
    """Return whether a name is a model's or an artefact's.

    Raises:
        ConfigurationError: it is neither's, or both's.
    """
    there = (running.home.models / name).is_dir(), (running.home.artifacts / name).is_dir()
    if there[0] == there[1]:
        said = "is both a model's and an artefact's; rename one" if there[0] else "is neither's"
        raise ConfigurationError(
            f"{name!r} must be the name of a model or of an artefact, and {said} "
            "(`headrace train list`, `headrace artifact list`)"
        )
    return "model" if there[0] else "artifact"


def _show(state: "TrialState", *, as_json: bool) -> None:
    names = (
        "trial_id", "kind", "label", "control", "routes", "decision", "begun_at", "rung", "moved_at",
        "asks", "outcome", "ended_at", "reasons", "exam",
    )  # fmt: skip
    fields = {name: getattr(state, name) for name in names}
    fields |= {"undrawn_sessions": state.undrawn.sessions, "undrawn_steps": state.undrawn.steps}
    rows = [_row(name, one) for name, one in state.comparisons.items()]
    if as_json:
        print_fields({**fields, "comparisons": rows}, as_json=True)
        return
    print_fields(
        {**fields, **{name: "; ".join(fields[name]) for name in ("routes", "reasons", "exam")}},
        as_json=False,
    )
    print_rows(rows, as_json=False, title="Comparisons", empty="")


def _row(name: str, one: "ArmComparison") -> dict[str, Any]:
    candidate, control = one.arms
    return {
        "comparison": name,
        "sessions": candidate.sessions,
        "wrong": candidate.events,
        "control_sessions": control.sessions,
        "control_wrong": control.events,
        "difference": one.difference,
        "log_harm": one.log_harm,
        "log_no_worse": one.log_no_worse,
    }
