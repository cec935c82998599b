"""``headrace erase``: one person out of tables, history, statistics and substrates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_fields, print_json, progress
from headrace.cli.common import JsonOption, YesOption, confirm
from headrace.cli.requests import done_or_waits
from trajectory.files import lines_of

if TYPE_CHECKING:
    from headrace.services.erasure import Erasure
    from lakehouse.erasure.erase import RemovalReport


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="erase")(erase)


def erase(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="Tenant of the data.")],
    subject: Annotated[
        list[str] | None,
        typer.Argument(help="E-mail, name, phone number or end-user id; several of one person."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File with one subject per line.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Ticket of the request; no personal data.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Erase a person: rows, files, history. Names the affected substrates and models."""
    from headrace.services.acts import ERASE
    from headrace.services.erasure import (
        ErasureRequest,
        check_names,
        erase_person,
        erasure_of,
        preview,
    )
    from headrace.services.four_eyes import ask, wants_two
    from headrace.services.substrates import note_stale_serving

    running = AppContext.of(context)
    names = [*(subject or [])]
    if file is not None:
        names += [line.strip() for line in lines_of(file) if line.strip()]
    check_names(names)
    request = ErasureRequest(tenant, names, running.user.name, reference)
    done: Erasure | None = None
    if dry_run:
        report = preview(running, request)
    elif wants_two(running, ERASE):
        given, who = erasure_of(running, request)
        waiting = ask(
            running, running.user, ERASE, given, subject=who, why=reference or "", tenant=tenant
        )
        done_or_waits(waiting, as_json=as_json)
        return
    else:
        confirm(f"Erase {len(names)} subject(s) of tenant {tenant} for good?", yes=yes)
        with progress("erasing", quiet=as_json) as advance:
            done = erase_person(running, request, advance)
        report = done.report
    if as_json:
        keys = done.keys_destroyed if done else 0
        certificate = str(done.certificate) if done else None
        print_json(jsonable(report) | {"keys_destroyed": keys, "certificate": certificate})
    else:
        print_fields(_fields(report, done), as_json=False)
    _say_what_next(report, tenant, dry_run=dry_run)
    if not dry_run:
        note_stale_serving(running, running.user.name)


def _fields(report: "RemovalReport", done: "Erasure | None") -> dict[str, object]:
    fields: dict[str, object] = {"erasure": report.removal_id, "dry_run": report.dry_run}
    if done is not None:
        fields |= {"files removed": report.files}
    fields |= {"trajectories": len(report.reach.trajectories)}
    if report.ended:
        fields |= {"ends killed erasures": ", ".join(report.ended)}
    fields |= {f"rows in {table}": count for table, count in report.rows.items() if count}
    if done is not None:
        fields |= {
            "keys destroyed": done.keys_destroyed,
            "held exchanges dropped": done.quarantine.dropped,
            "held exchanges under legal hold": done.quarantine.kept,
            "certificate": done.certificate,
        }
    fields |= {"under legal hold": report.held}
    fields |= {"substrates": ", ".join(report.reach.substrates) or "none"}
    return fields | {"models trained on them": ", ".join(report.reach.models) or "none"}


def _say_what_next(report: "RemovalReport", tenant: str, *, dry_run: bool) -> None:
    if report.ended and not dry_run:
        note("the counts are of this run; what the killed ones had deleted is off the disk now.")
    elif not report.reach.trajectories and not report.held:
        note(
            f"no data found for this person in tenant {tenant!r}; check the spelling and the tenant."
        )
    if report.reach.models and not dry_run:
        note("next: roll back or retrain the models named above; their substrates are stale now.")
