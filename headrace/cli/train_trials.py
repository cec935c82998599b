"""``headrace train try`` and ``end-trial``: versions beside the one that serves."""

from enum import StrEnum
from typing import Annotated

import typer

from headrace.app.context import AppContext


class TrialName(StrEnum):
    """How a version is tried."""

    CANARY = "canary"
    SHADOW = "shadow"


ModelArgument = Annotated[str, typer.Argument(help="Name in the registry.")]
AsOption = Annotated[
    TrialName,
    typer.Option(
        "--as", help="canary: answers the routes' share of sessions; shadow: gets copies of calls."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``headrace train``."""
    app.command(name="try")(try_out)
    app.command(name="end-trial")(end_trial)


def try_out(
    context: typer.Context,
    model: ModelArgument,
    version: Annotated[str, typer.Argument(help="Version, as `headrace train list` shows it.")],
    trial: AsOption,
    override: Annotated[
        str | None, typer.Option(help="Reason to try a canary that did not pass its gate; audited.")
    ] = None,
) -> None:
    """Put a version on trial beside the live one; a canary must have passed its gate."""
    from headrace.cli.train import registry

    tried = registry(AppContext.of(context)).try_out(
        model, version, trial.value, actor=AppContext.of(context).user.name, override=override
    )
    typer.echo(f"{tried.label} is on trial as {trial}")


def end_trial(
    context: typer.Context,
    model: ModelArgument,
    trial: AsOption,
    reason: Annotated[str, typer.Option(help="Reason; audited.")] = "trial ended",
) -> None:
    """End the trial of a version; the live version serves on."""
    from headrace.cli.train import registry

    tried = registry(AppContext.of(context)).end_trial(
        model, trial.value, actor=AppContext.of(context).user.name, reason=reason
    )
    typer.echo(f"{tried} is no longer on trial as {trial}")
