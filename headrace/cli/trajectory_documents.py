"""``headrace trajectory schema|export|import``: trajectories as documents."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import note, print_fields
from headrace.cli.common import JsonOption
from trajectory.canonical import bytes_hash

if TYPE_CHECKING:
    from headrace.services.exports import ExportReport

_FORMAT_NAMES = (
    "headrace, openai-messages, atif, otel-genai, openinference, openenv, trl-conversational, "
    "trl-preference, trl-unpaired, trl-prompt-only, adp, rlds"
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(schema)
    app.command()(export)
    app.command(name="import")(import_files)


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
        str, typer.Option("--format", "-f", help=f"One of: {_FORMAT_NAMES}.")
    ] = "openai-messages",
    as_json: JsonOption = False,
) -> None:
    """Export trajectories as JSON lines; only what policy allows for the purpose."""
    from headrace.services.exports import export_trajectories

    running = AppContext.of(context)
    report = export_trajectories(
        running.lake,
        output,
        where=where,
        purpose=purpose,
        document_format=document_format,
    )
    running.audit.append(
        actor=running.user.name,
        action="trajectories.exported",
        subject=bytes_hash(output.read_bytes()) if output.is_file() else "nothing",
        detail={
            "purpose": purpose,
            "format": document_format,
            "trajectories": report.trajectories,
            "where": bytes_hash(where.encode()),
        },
    )
    _print_export(report, output, document_format, as_json=as_json)
    if report.trajectories == 0:
        note(
            f"none that fits {where!r} allows the purpose {purpose}: give another --purpose, or grant it."
        )


def _print_export(
    report: "ExportReport", output: Path, document_format: str, *, as_json: bool
) -> None:
    lost = dict(sorted(report.lost.items()))
    if as_json:
        counts = {"documents": report.documents, "trajectories": report.trajectories}
        print_fields({**counts, "lost": lost}, as_json=True)
    else:
        same = report.documents == report.trajectories
        made = "" if same else f" as {report.documents} documents"
        typer.echo(f"{report.trajectories} trajectories written to {output}{made}")
    if lost:
        fields = ", ".join(f"{name} ({count})" for name, count in lost.items())
        note(f"{document_format} has no place for: {fields}.")


def import_files(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="JSON documents, or JSON lines.")],
    document_format: Annotated[
        str, typer.Option("--format", "-f", help=f"One of: {_FORMAT_NAMES}.")
    ] = "openai-messages",
    key: Annotated[
        str | None, typer.Option(help="Client key of the tenant; by default this machine's own.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Check the documents; import nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Import documents: sealed into the spool, then governed and stored like captured traffic."""
    from headrace.app.clients import local_client_key
    from headrace.app.installation import gateway_config
    from headrace.services.imports import find_format, import_documents
    from proxy.clients.keys import KeyRegistry
    from proxy.recording.spool_factory import open_spool
    from trajectory.errors import ConfigurationError

    running, form = AppContext.of(context), find_format(document_format)
    home = running.home.create()
    config = gateway_config(running.settings, home)
    registry = KeyRegistry.load(config.keys)
    client = registry.authenticate(key or local_client_key(home, registry))
    if client is None:
        raise ConfigurationError("the client key is not valid. See `headrace keys list`.")
    if check:
        report = import_documents(files, form=form, client=client, spool=None)
    else:
        with open_spool(config.spool, running.secrets.derive(b"spool")) as spool:
            report = import_documents(files, form=form, client=client, spool=spool)
            spool.finish()
    counts = {
        "documents": report.documents,
        "trajectories": report.trajectories,
        "steps": report.steps,
    }
    print_fields(counts, as_json=as_json)
    if not check:
        note(
            "in the lake with the next batch: `headrace up` carries it, or `headrace govern --once`"
        )
