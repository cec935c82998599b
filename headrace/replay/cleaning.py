"""Making what comes comparable with the lake: the same redaction, with the same pseudonyms."""

from collections.abc import Callable, Sequence
from pathlib import Path

from governance.policy import load_bundle
from governance.redact import redactor_of
from governance.redact.report import RedactionScope
from headrace.app.home import Home
from headrace.app.master_key import Secrets
from headrace.app.settings import Settings
from headrace.app.subject_keys import subject_keys_of
from trajectory.message import Message

type Clean = Callable[[Sequence[Message]], tuple[Message, ...]]


def cleaner(
    settings: Settings, home: Home, secrets: Secrets, *, tenant_id: str, trajectory_id: str
) -> Clean:
    """Return what redacts messages as governance did when it stored the trajectory.

    A name that governance found only in a later message may still stand in an earlier one here;
    the comparison lets a mark in the recording stand for it.
    """
    bundle = load_bundle(Path(settings.policy.bundle))
    redactor = redactor_of(
        bundle,
        pseudonym_key=secrets.derive(b"pseudonym"),
        subjects=subject_keys_of(home, secrets),
    )
    scope = RedactionScope(tenant_id, trajectory_id)

    def clean(messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(one.message for one in redactor.redact_messages(messages, scope=scope))

    return clean
