"""What a person says of a trajectory in the console: feedback through the gateway, as any other.

So it rests in the sealed spool until governance has run. A person's name would be redacted there; a
keyed hash of it stands for the rater, so that two raters can be told apart.
"""

import json
import threading
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from headrace.app.clients import OWN_PURPOSES
from headrace.app.context import AppContext
from headrace.app.gateway_client import knows_key, post_feedback
from headrace.app.installation import gateway_config
from proxy.clients.keys import KeyRegistry
from train.substrate.content import CORRECTION
from trajectory.errors import ConfigurationError, WorkError
from trajectory.files import read_object, replace_file

_KEYS = threading.Lock()


def rater_of(app: AppContext, name: str) -> str:
    """Return what stands for a person who judges."""
    key = app.secrets.derive(b"rater")[:64]
    return f"rater-{blake2b(name.encode(), key=key, digest_size=8).hexdigest()}"


def give_feedback(app: AppContext, tenant: str, items: list[dict[str, Any]]) -> None:
    """Hand feedback to the running gateway; it is on the disk when this returns, all of it or nothing.

    Raises:
        ConfigurationError: an item is wrong, or the gateway takes none.
        WorkError: no gateway answers.
    """
    import httpx

    config = gateway_config(app.settings, app.home)
    key = _key(app, KeyRegistry.load(config.keys), tenant)
    if not knows_key(config, key):
        raise WorkError("the gateway does not take the console's key; is it one of this home?")
    try:
        answer = post_feedback(config, key, items)
    except httpx.TransportError as error:
        raise WorkError(
            f"no gateway answers ({type(error).__name__}): start `headrace up`"
        ) from None
    if answer.status_code != 202:
        raise ConfigurationError(f"the gateway refused the feedback (HTTP {answer.status_code})")


def correct_answer(app: AppContext, who: str, step_id: str, text: str) -> str:
    """Say what a step should have answered; return the tenant whose step it is.

    The step stays as it is: this is the signal ``corrected_answer`` about it, whose text is redacted before it is
    stored. It goes with its trajectory, and recipes of preferences learn from it where they may learn from
    the step.

    Raises:
        ConfigurationError: there is no such step, or nothing was said.
        WorkError: no gateway answers.
    """
    said = text.replace("\r\n", "\n").strip()
    if not said:
        raise ConfigurationError("a correction says what the answer should have been")
    found = app.lake.query(
        "SELECT tenant_id FROM steps WHERE step_id = $id AND output_message_id IS NOT NULL LIMIT 1",
        {"id": step_id},
    ).column(0)
    if not len(found):
        raise ConfigurationError(f"no step {step_id} that answered; see `headrace trajectory show`")
    tenant = str(found[0].as_py())
    item = {
        "step_id": step_id,
        "name": CORRECTION,
        "rationale": said,
        "source_kind": "human_explicit",
        "source": rater_of(app, who),
    }
    give_feedback(app, tenant, [item])
    app.audit.append(
        actor=who, action="review.corrected", subject=step_id, detail={"tenant": tenant}
    )
    return tenant


def _key(app: AppContext, registry: KeyRegistry, tenant: str) -> str:
    """Return the console's client key of a tenant, made on first use.

    It grants every purpose but sharing: what a reviewer says is the owner's own word. What may be learned
    from it is decided by the consents of the step that it is about.
    """
    path = app.home.secrets / "console-keys.json"
    with _KEYS:
        kept: dict[str, str] = {}
        with suppress(FileNotFoundError, ConfigurationError):  # damaged: keys are made anew
            kept = read_object(path, "remove it")
        mine = str(kept.get(tenant))
        known = registry.authenticate(mine)
        if known is not None and known.purposes == OWN_PURPOSES:
            return mine
        made = registry.create(tenant_id=tenant, app_id="console", purposes=OWN_PURPOSES).secret
        replace_file(path, json.dumps({**kept, tenant: made}).encode())
    return made
