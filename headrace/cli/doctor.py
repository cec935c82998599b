"""``headrace doctor``: is this installation well, and how to mend what is not."""

from typing import Annotated

import typer

from headrace.cli.common import JsonOption, Running
from headrace.render import console, jsonable, print_json

_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failure": "[red]failure[/]"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="doctor")(doctor)


def doctor(
    context: typer.Context,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option(help="Warnings count as failures.")] = False,
) -> None:
    """Check environment, ports, authority, disk, permissions and versions; say how to mend each."""
    from headrace.doctor import examine

    running = Running.of(context)
    findings = examine(running.settings, running.home)
    if as_json:
        print_json([jsonable(finding) for finding in findings])
    else:
        out = console()
        for finding in findings:
            out.print(f"{_MARKS[finding.status]:>8}  [bold]{finding.check}[/]: {finding.detail}")
            if finding.remedy:
                out.print(f"          → {finding.remedy}")
    bad = {"failure", "warning"} if strict else {"failure"}
    if any(finding.status in bad for finding in findings):
        raise typer.Exit(1)
