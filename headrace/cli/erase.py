"""``headrace erase``: one person out of tables, history, statistics and substrates."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_fields, print_json, progress
from headrace.cli.common import JsonOption, YesOption, confirm, user_name
from headrace.cli.consent import pseudonyms_of
from headrace.cli.quarantine import drop_held
from trajectory.canonical import JsonValue
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, lines_of, replace_file

if TYPE_CHECKING:
    from lakehouse.erasure.erase import RemovalReport


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="erase")(erase)


def erase(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="The tenant whose data it is.")],
    subject: Annotated[
        list[str] | None,
        typer.Argument(help="E-mail, name, phone number or end-user id; several of one person."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File with one subject per line.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Ticket of the request; no personal data.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Erase a person: rows, files, history. Names the substrates and models that had them."""
    from headrace.govern.near_duplicates import sweep_near
    from headrace.govern.spool_expiry import sealed_captures
    from headrace.services.holds import holds_of
    from lakehouse.erasure.erase import erase_subject, erasures_of
    from train.runs.folders import sweep as sweep_runs

    running = AppContext.of(context)
    names = [*(subject or [])]
    if file is not None:
        names += [line.strip() for line in lines_of(file) if line.strip()]
    if not names:
        raise ConfigurationError("name the person: headrace erase SUBJECT, or --file FILE.")
    for number, name in enumerate(names, start=1):
        if not name.strip() or "*" in name:
            raise ConfigurationError(
                f"name {number} of {len(names)} is empty or a pattern: give each person as data has "
                "them (or the pseudonym subject_…). Nothing was erased."
            )
    whom = [pseudonyms_of(running, tenant, name) for name in names]
    pseudonyms = list(dict.fromkeys(one for each in whom for one in each))
    dropped = 0
    if not dry_run:
        confirm(f"Erase {len(names)} subject(s) of tenant {tenant} for good?", yes=yes)
        running.audit.append(
            actor=user_name(),
            action="erasure.requested",
            subject=",".join(pseudonyms),
            detail={"tenant": tenant, "reference": reference},
        )
        # First: erasing takes cases away, by which the sealed content behind them is found.
        dropped = drop_held(running, tenant, "erasure")
    earlier = erasures_of(running.lake, tenant, pseudonyms)
    with progress("erasing", quiet=as_json) as advance:
        report = erase_subject(
            running.lake,
            tenant,
            pseudonyms,
            reference=reference,
            dry_run=dry_run,
            progress=advance,
            holds=holds_of(running.settings, running.lake),
        )
    keys, certificate = 0, None
    if not dry_run:
        sweep_near(running.home, running.lake)
        sweep_runs(running.lake, running.home.runs)
        held = {
            one for each in whom if not {*each}.isdisjoint(report.held_subjects) for one in each
        }
        keys = running.subject_keys.destroy([one for one in pseudonyms if one not in held])
        running.audit.append(
            actor=user_name(),
            action="erasure.done",
            subject=report.removal_id,
            detail={
                "tenant": tenant,
                "rows": dict(report.rows),
                "files": report.files,
                "under_legal_hold": report.held,
                "keys_destroyed": keys,
                "held_exchanges_dropped": dropped,
            },
        )
        certificate = _certify(
            running,
            {
                "tenant": tenant,
                "subjects": [*pseudonyms],
                "reference": reference,
                "subject_keys_destroyed": keys,
                "subjects_under_legal_hold": [*sorted(held)],
                "held_exchanges_dropped": dropped,
                "sealed_captures": sealed_captures(running.settings, running.home),
                "erasures_before": [*earlier],
            },
            report,
        )
    if as_json:
        print_json(
            jsonable(report)
            | {"keys_destroyed": keys, "certificate": str(certificate) if certificate else None}
        )
        return
    fields: dict[str, object] = {
        "erasure": report.removal_id,
        "dry_run": report.dry_run,
    }
    if not dry_run:
        fields |= {"files removed": report.files}
    fields |= {"trajectories": len(report.reach.trajectories)}
    if report.ended:
        fields |= {"ends killed erasures": ", ".join(report.ended)}
    fields |= {f"rows in {table}": count for table, count in report.rows.items() if count}
    if not dry_run:
        fields |= {"keys destroyed": keys, "held exchanges dropped": dropped}
        fields |= {"certificate": certificate}
    fields |= {"under legal hold": report.held}
    fields |= {"substrates": ", ".join(report.reach.substrates) or "none"}
    fields |= {"models trained on them": ", ".join(report.reach.models) or "none"}
    print_fields(fields, as_json=False)
    if report.ended and not dry_run:
        note("the counts are of this run; what the killed ones had deleted is off the disk now.")
    elif not report.reach.trajectories and not report.held:
        note(
            f"nobody of that name stands in tenant {tenant!r}; another spelling, or another tenant?"
        )
    if report.reach.models and not dry_run:
        note("next: roll back or retrain the models named above; their substrates are stale now.")


def _certify(running: AppContext, said: dict[str, JsonValue], report: "RemovalReport") -> Path:
    """Write the signed certificate of an erasure and return where it is."""
    head = running.audit.head()
    certificate = running.certifier.certificate(
        {
            **said,
            "erasure": report.removal_id,
            "erased_at": datetime.now(UTC).isoformat(),
            "trajectories": len(report.reach.trajectories),
            "under_legal_hold": report.held,
            "rows": dict(report.rows),
            "files_removed": report.files,
            "killed_erasures_ended": [*report.ended],
            "substrates_marked_stale": [*report.reach.substrates],
            "models_trained_on_them": [*report.reach.models],
            "audit_anchor": f"{head.sequence}:{head.entry_hash}",
        }
    )
    folder = running.home.certificates
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{report.removal_id}.json"
    replace_file(path, json.dumps(certificate, indent=2).encode() + b"\n", READABLE)
    return path
