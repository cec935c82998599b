"""``headrace reveal``: open a sealed value, for those who may, with an entry in the audit log."""

from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import print_fields
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError, IntegrityError


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

    running = AppContext.of(context)
    sealed = parsed(mark)
    if sealed is None:
        raise ConfigurationError("that is not a sealed value; they look like <PERSON~0.AbC…>.")
    user = running.user.name
    said = ""
    action = "value.reveal_refused"
    failed: IntegrityError | None = None
    if user in running.settings.policy.reveal_users:
        try:
            said, action = _opened(running, mark), "value.revealed"
        except IntegrityError as error:
            failed, action = error, "value.reveal_failed"
    running.audit.append(
        actor=user,
        action=action,
        subject=sealed.subject or "installation",
        detail={
            "entity": sealed.entity,
            "mark": blake2b(mark.strip().encode(), digest_size=16).hexdigest(),
            "reason": reason,
        },
    )
    if failed is not None:
        raise failed
    if action != "value.revealed":
        raise ConfigurationError(
            f"user {user!r} may not open sealed values; the setting policy.reveal_users names who may."
        )
    print_fields({"entity": sealed.entity, "value": said}, as_json=as_json)


def _opened(running: AppContext, mark: str) -> str:
    """Return the value, with its subject's key or the installation's of any epoch."""
    from governance.policy import load_bundle
    from governance.redact.pseudonym import installation_seal, key_of_epoch
    from governance.redact.reversible import parsed, unseal

    sealed = parsed(mark)
    if sealed is None:
        raise ConfigurationError("that is not a sealed value.")
    if sealed.subject is not None:
        key = running.subject_keys.known(sealed.subject)
        if key is None:
            raise IntegrityError("the subject's key is destroyed: nobody can open this any more.")
        return unseal(key, sealed)
    epochs = load_bundle(Path(running.settings.policy.bundle)).redaction.spec.key_epoch
    pseudonym_key = running.secrets.derive(b"pseudonym")
    for epoch in range(epochs, 0, -1):
        try:
            return unseal(installation_seal(key_of_epoch(pseudonym_key, epoch)), sealed)
        except IntegrityError:
            if epoch == 1:
                raise
    raise IntegrityError("no key of this installation opens it.")
