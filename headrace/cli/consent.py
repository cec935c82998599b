"""``headrace consent``: the registry of grants and withdrawals, per person and purpose."""

import getpass
from datetime import UTC, datetime
from typing import Annotated

import typer

from governance.consent import EVERY_SUBJECT
from headrace.cli.common import JsonOption, Running
from headrace.render import jsonable, print_fields, print_rows
from proxy.identity import PURPOSES
from trajectory.errors import ConfigurationError

app = typer.Typer(
    help="Who agreed to what. A withdrawal acts on stored rows at once.", no_args_is_help=True
)

SubjectArgument = Annotated[
    str,
    typer.Argument(
        help="E-mail, name or end-user id of the person (kept only as a keyed pseudonym), or * for all."
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
    _record(Running.of(context), subject, tenant, purpose, reference, granted=True, as_json=as_json)


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
        Running.of(context), subject, tenant, purpose, reference, granted=False, as_json=as_json
    )


@app.command()
def show(
    context: typer.Context,
    subject: SubjectArgument,
    tenant: TenantOption,
    as_json: JsonOption = False,
) -> None:
    """Show what is recorded about a person."""
    running = Running.of(context)
    entries = running.lake.consents().entries(tenant, [pseudonym_of(running, tenant, subject)])
    rows = [jsonable(entry) for entry in sorted(entries, key=lambda entry: entry.recorded_at)]
    print_rows(rows, as_json=as_json, empty="nothing is recorded: only policy and keys decide")


def pseudonym_of(running: Running, tenant: str, subject: str) -> str:
    """Return the keyed pseudonym under which a person stands in the lake."""
    from governance.redact.pseudonym import subject_id

    if subject in (EVERY_SUBJECT, "") or subject.startswith("subject_"):
        return subject
    return subject_id(running.secrets.derive(b"pseudonym"), tenant, subject)


def _record(
    running: Running,
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
    pseudonym = pseudonym_of(running, tenant, subject)
    now = datetime.now(UTC)
    running.audit.append(
        actor=getpass.getuser(),
        action="consent.granted" if granted else "consent.withdrawn",
        subject=pseudonym,
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
        ],
    )
    print_fields(
        {
            "subject": pseudonym,
            "tenant": tenant,
            "purposes": ", ".join(purposes),
            "granted": granted,
        },
        as_json=as_json,
    )
