"""``headrace reveal``: open a sealed value, for those who may, with an entry in the audit log."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import print_fields
from headrace.cli.common import JsonOption
from headrace.cli.requests import done_or_waits
from trajectory.errors import ConfigurationError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="reveal")(reveal)


def reveal(
    context: typer.Context,
    mark: Annotated[str, typer.Argument(help="The mark as a row shows it: `<PERSON~k.t>`.")],
    reason: Annotated[str, typer.Option(help="Ticket or document; no personal data.")],
    as_json: JsonOption = False,
) -> None:
    """Open a value that policy sealed (`encrypt`). Needs the setting policy.reveal_users."""
    from governance.redact.reversible import parsed
    from headrace.services.acts import REVEAL, mark_hash
    from headrace.services.four_eyes import perform

    running = AppContext.of(context)
    sealed = parsed(mark)
    if sealed is None:
        raise ConfigurationError("that is not a sealed value; they look like <PERSON~0.AbC…>.")
    outcome = perform(
        running,
        running.user,
        REVEAL,
        {"mark": mark.strip(), "reason": reason},
        subject=f"{sealed.entity} {mark_hash(mark)}",
        why=reason,
    )
    print_fields(done_or_waits(outcome, as_json=as_json), as_json=as_json)
