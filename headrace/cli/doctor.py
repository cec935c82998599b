"""``headrace doctor``: is this installation well, and how to mend what is not."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import console, jsonable, print_json, styled
from headrace.cli.common import JsonOption

_STYLES = {"ok": "green", "warning": "yellow", "failure": "red"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="doctor")(doctor)


def doctor(
    context: typer.Context,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option(help="Warnings count as failures.")] = False,
) -> None:
    """Check environment, ports, authority, disk, permissions and versions; say how to mend each."""
    from headrace.app.doctor import examine

    running = AppContext.of(context)
    findings = examine(running.settings, running.home)
    if as_json:
        print_json([jsonable(finding) for finding in findings])
    else:
        out = console()
        for finding in findings:
            mark = (f"{finding.status:>7}", _STYLES[finding.status])
            out.print(styled(mark, "  ", (finding.check, "bold"), f": {finding.detail}"))
            if finding.remedy:
                out.print(styled(f"         → {finding.remedy}"))
    bad = {"failure", "warning"} if strict else {"failure"}
    if any(finding.status in bad for finding in findings):
        raise typer.Exit(1)
