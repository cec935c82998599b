"""``headrace consent``: the registry of grants and withdrawals, per person and purpose."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_fields, print_rows
from headrace.cli.common import JsonOption
from proxy.clients.keys import PURPOSES

app = typer.Typer(
    help="The consent registry. A withdrawal acts on stored rows at once.", no_args_is_help=True
)

SubjectArgument = Annotated[
    str,
    typer.Argument(
        help="E-mail, name, phone number or end-user id of the person (kept only as keyed pseudonyms), or * for all."
    ),
]
TenantOption = Annotated[str, typer.Option(help="Tenant of the data.")]
PurposeOption = Annotated[
    list[str] | None, typer.Option(help=f"Repeat; by default all: {', '.join(PURPOSES)}.")
]
ReferenceOption = Annotated[
    str | None,
    typer.Option(help="Reference to the proof (a ticket, a contract); no personal data."),
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
    """Record that a person no longer agrees; stored rows stop being eligible at once."""
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and count the rows; record nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record many grants and withdrawals; all of a file or nothing of it."""
    from headrace.services.consent import import_consents
    from headrace.services.substrates import mark_stale_substrates, note_stale_serving

    running = AppContext.of(context)
    counts = import_consents(running, file, tenant, actor=running.user.name, dry_run=dry_run)
    _warn_of_unknown_tenant(running, tenant)
    withdrawn = counts["withdrawn"] and not dry_run
    stale = mark_stale_substrates(running) if withdrawn else []
    print_fields(
        {**counts, "dry_run": dry_run, "substrates now stale": ", ".join(stale) or "none"},
        as_json=as_json,
    )
    if withdrawn:
        note_stale_serving(running, running.user.name)


@app.command()
def show(
    context: typer.Context,
    subject: SubjectArgument,
    tenant: TenantOption,
    as_json: JsonOption = False,
) -> None:
    """Show the consent that is recorded for a person."""
    from headrace.services.consent import pseudonyms_of

    running = AppContext.of(context)
    pseudonyms = pseudonyms_of(running.secrets, tenant, subject)
    running.note_reading(",".join(pseudonyms), "consent show", "consent.read")
    entries = running.lake.consents().entries(tenant, pseudonyms)
    rows = [jsonable(entry) for entry in sorted(entries, key=lambda entry: entry.recorded_at)]
    print_rows(rows, as_json=as_json, empty="nothing is recorded: only policy and keys decide")


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
    from headrace.services.consent import record_consent
    from headrace.services.substrates import mark_stale_substrates, note_stale_serving

    purposes = purpose or list(PURPOSES)
    recorded = record_consent(
        running,
        tenant,
        subject,
        purposes,
        granted=granted,
        actor=running.user.name,
        reference=reference,
    )
    _warn_of_unknown_tenant(running, tenant)
    fields: dict[str, object] = {
        "subject": recorded,
        "tenant": tenant,
        "purposes": ", ".join(purposes),
        "granted": granted,
    }
    if not granted:
        fields["substrates now stale"] = ", ".join(mark_stale_substrates(running)) or "none"
    print_fields(fields, as_json=as_json)
    if not granted:
        note_stale_serving(running, running.user.name)


def _warn_of_unknown_tenant(running: AppContext, tenant: str) -> None:
    """Say when the lake has never seen the tenant; its calls may still come, so nothing is refused."""
    from headrace.services.consent import is_unknown_tenant

    if is_unknown_tenant(running, tenant):
        note(f"the lake has no call of tenant {tenant!r} so far; check the spelling of --tenant.")
