"""``headrace trajectory schema|export``: trajectories as documents."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Running
from headrace.render import note


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(schema)
    app.command()(export)


def schema() -> None:
    """Print the JSON Schema of the trajectory protocol."""
    typer.echo(resources.files("trajectory").joinpath("schema.json").read_text("utf-8"), nl=False)


def export(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON-lines file to write.")],
    where: Annotated[
        str, typer.Option(help="SQL condition over the view `trajectories`.")
    ] = "true",
    purpose: Annotated[
        str, typer.Option(help="Only trajectories whose every step is allowed for this purpose.")
    ] = "share",
    document_format: Annotated[
        str, typer.Option("--format", "-f", help="openai-messages or atif.")
    ] = "openai-messages",
) -> None:
    """Export trajectories as JSON lines; only what policy allows for the purpose."""
    from headrace.exporting import export_trajectories

    count = export_trajectories(
        Running.of(context).lake,
        output,
        where=where,
        purpose=purpose,
        document_format=document_format,
    )
    typer.echo(f"{count} trajectories written to {output}")
    if count == 0:
        note(
            f"none that fits {where!r} allows the purpose {purpose}: give another --purpose, or grant it."
        )
