"""``headrace consent``: the registry of grants and withdrawals, per person and purpose."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, print_fields, print_rows
from headrace.cli.common import JsonOption, user_name
from proxy.keys import PURPOSES
from trajectory.canonical import bytes_hash
from trajectory.errors import ConfigurationError

app = typer.Typer(
    help="Who agreed to what. A withdrawal acts on stored rows at once.", no_args_is_help=True
)

_PSEUDONYM = re.compile(r"subject_[0-9a-f]{32}")

SubjectArgument = Annotated[
    str,
    typer.Argument(
        help="E-mail, name, phone number or end-user id of the person (kept only as keyed pseudonyms), or * for all."
    ),
]
TenantOption = Annotated[str, typer.Option(help="The tenant whose data it is about.")]
PurposeOption = Annotated[
    list[str] | None, typer.Option(help=f"Repeat; by default all: {', '.join(PURPOSES)}.")
]
ReferenceOption = Annotated[
    str | None, typer.Option(help="Where the proof lies (a ticket, a contract); no personal data.")
]


@app.command()
def grant(
    context: typer.Context,
    subject: SubjectArgument,
    tenant: TenantOption,
    purpose: PurposeOption = None,
    reference: ReferenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record that a person agreed."""
    _record(
        AppContext.of(context), subject, tenant, purpose, reference, granted=True, as_json=as_json
    )


@app.command()
def withdraw(
    context: typer.Context,
    subject: SubjectArgument,
    tenant: TenantOption,
    purpose: PurposeOption = None,
    reference: ReferenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record that a person no longer agrees; what is stored stops being eligible at once."""
    _record(
        AppContext.of(context), subject, tenant, purpose, reference, granted=False, as_json=as_json
    )


@app.command("import")
def import_file(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or Parquet: subject, purpose, granted [, recorded_at, reference]."
        ),
    ],
    tenant: TenantOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check and count.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Record many grants and withdrawals; all of a file or nothing of it."""
    from headrace.services.consent_import import read_consents

    running = AppContext.of(context)
    now = datetime.now(UTC)
    said = read_consents(file, now=now)
    whom = {row.subject: pseudonyms_of(running, tenant, row.subject) for row in said}
    rows = [
        {
            "tenant_id": tenant,
            "subject": pseudonym,
            "purpose": row.purpose,
            "granted": row.granted,
            "source": "import",
            "recorded_at": row.recorded_at,
            "reference": row.reference,
        }
        for row in said
        for pseudonym in whom[row.subject]
    ]
    counts = {
        "subjects": len({pseudonyms[0] for pseudonyms in whom.values()}),
        "granted": sum(row.granted for row in said),
        "withdrawn": sum(not row.granted for row in said),
    }
    stale: list[str] = []
    if not dry_run and rows:
        running.audit.append(
            actor=user_name(),
            action="consent.imported",
            subject=bytes_hash(file.read_bytes()),
            detail={"tenant": tenant, **counts},
        )
        running.lake.append_rows("consents", rows)
        stale = mark_stale_substrates(running) if counts["withdrawn"] else []
    print_fields(
        {**counts, "dry_run": dry_run, "substrates now stale": ", ".join(stale) or "none"},
        as_json=as_json,
    )


@app.command()
def show(
    context: typer.Context,
    subject: SubjectArgument,
    tenant: TenantOption,
    as_json: JsonOption = False,
) -> None:
    """Show what is recorded about a person."""
    running = AppContext.of(context)
    entries = running.lake.consents().entries(tenant, pseudonyms_of(running, tenant, subject))
    rows = [jsonable(entry) for entry in sorted(entries, key=lambda entry: entry.recorded_at)]
    print_rows(rows, as_json=as_json, empty="nothing is recorded: only policy and keys decide")


def pseudonyms_of(running: AppContext, tenant: str, subject: str) -> tuple[str, ...]:
    """Return all keyed pseudonyms under which a person may stand in the lake, the usual one first."""
    from governance.consent import EVERY_SUBJECT
    from governance.redact.pseudonym import subject_ids

    if not subject.strip():
        raise ConfigurationError("name the person: an e-mail, a name or an end user's id.")
    if subject == EVERY_SUBJECT or _PSEUDONYM.fullmatch(subject):
        return (subject,)
    return subject_ids(running.secrets.derive(b"pseudonym"), tenant, subject)


def mark_stale_substrates(running: AppContext) -> list[str]:
    """Mark the substrates that hold what may no longer be used; return their names."""
    from headrace.cli.substrate import running_manifests
    from train.substrate.build import mark_stale

    return [
        f"{manifest.name}@{manifest.version}"
        for manifest in running_manifests(running)
        if mark_stale(running.lake, manifest)
    ]


def _record(
    running: AppContext,
    subject: str,
    tenant: str,
    purpose: list[str] | None,
    reference: str | None,
    *,
    granted: bool,
    as_json: bool,
) -> None:
    purposes = purpose or list(PURPOSES)
    unknown = sorted(set(purposes) - set(PURPOSES))
    if unknown:
        raise ConfigurationError(f"unknown purpose {unknown[0]!r}. Valid: {', '.join(PURPOSES)}.")
    pseudonyms = pseudonyms_of(running, tenant, subject)
    now = datetime.now(UTC)
    running.audit.append(
        actor=user_name(),
        action="consent.granted" if granted else "consent.withdrawn",
        subject=",".join(pseudonyms),
        detail={"tenant": tenant, "purposes": list(purposes), "reference": reference},
    )
    running.lake.append_rows(
        "consents",
        [
            {
                "tenant_id": tenant,
                "subject": pseudonym,
                "purpose": name,
                "granted": granted,
                "source": "cli",
                "recorded_at": now,
                "reference": reference,
            }
            for name in purposes
            for pseudonym in pseudonyms
        ],
    )
    fields: dict[str, object] = {
        "subject": pseudonyms[0],
        "tenant": tenant,
        "purposes": ", ".join(purposes),
        "granted": granted,
    }
    if not granted:
        fields["substrates now stale"] = ", ".join(mark_stale_substrates(running)) or "none"
    print_fields(fields, as_json=as_json)
