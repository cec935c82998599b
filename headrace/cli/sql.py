"""``headrace sql``: ask the trajectory lake."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.cli.query import QueryRunner, moment_or_versions, show
from headrace.cli.row_formats import FORMATS, chosen_format


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="sql")(sql)


def sql(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(help="SQL; without it, an interactive prompt.")
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help=f"One of: {', '.join(FORMATS)}. Without it, what the output's suffix says.",
            show_default="table",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the result; else standard output."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="An earlier state: 2026-11-20T12:00, or versions of tables, steps=12,messages=9."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds after which the query is ended.")
    ] = 60,
    memory_mib: Annotated[
        int, typer.Option("--memory", min=64, help="MiB of memory that the query may use.")
    ] = 2048,
) -> None:
    """Run SQL over the lake's views and tables.

    Try: headrace sql "select * from success_by_model" · headrace sql "show tables"
    """
    suffix = None if output is None else output.suffix
    chosen = chosen_format("json" if as_json else output_format, suffix)
    runner = QueryRunner(AppContext.of(context), seconds, memory_mib, moment_or_versions(as_of))
    if query is None and sys.stdin.isatty():
        from headrace.cli.repl import SqlPrompt

        SqlPrompt(runner, chosen).run()
        return
    text = sys.stdin.read() if query is None else query
    if text.strip():
        show(runner, text, chosen, output)
