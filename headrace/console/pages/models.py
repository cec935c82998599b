"""Models: versions with what their gates said; a person promotes one, or goes back."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headrace.console.page import PAGE_ROWS, Page, PageRequest, paged, place_of
from headrace.console.pages.evolution import DECIDERS
from headrace.console.pages.runs import curves_of
from headrace.console.users import ROLES
from headrace.services.acts import PROMOTE
from headrace.services.changes import model_registry
from headrace.services.four_eyes import perform
from headrace.services.request_store import ActRequest
from trajectory.errors import ConfigurationError

_LISTED = f"""
SELECT name, version, status, base, run_id, recorded_at, actor, reason FROM models_latest
WHERE $at IS NULL OR (recorded_at, name, version) < ($at, $name, $version)
ORDER BY recorded_at DESC, name DESC, version DESC LIMIT {PAGE_ROWS + 1}
"""  # noqa: S608 - a number of our own


def _list(asked: PageRequest) -> Mapping[str, Any]:
    done = _changed(asked) if asked.sent else None
    at, name, version = place_of(asked.query.get("after"), datetime, str, str)
    found = asked.rows(_LISTED, at=at, name=name, version=version)
    rows, after = paged(found, ("recorded_at", "name", "version"))
    return {"rows": rows, "after": after, "done": done}


def _one(asked: PageRequest) -> Mapping[str, Any]:
    from evolve.trial_files import TrialFiles

    registry = model_registry(asked.console.running, asked.user.name)
    found = registry.get(asked.path["name"], asked.path["version"])
    history = [
        one for one in registry.history(found.name) if found.version in (one.version, one.previous)
    ]
    trial = TrialFiles(asked.console.running.home.trials)
    trial_id = f"model.{found.name}.{found.version}"
    return {
        "trial": trial_id if any(one.trial_id == trial_id for one in trial.readable()[0]) else None,
        "curves": curves_of(asked, str(found.manifest.get("run_id")))["curves"],
        "name": found.name,
        "version": found.version,
        "status": found.status,
        "manifest": found.manifest,
        "history": history,
    }


def _changed(asked: PageRequest) -> str:
    """Promote or roll back as the form says; return what came of it."""
    sent, registry = asked.sent, model_registry(asked.console.running, asked.user.name)
    reason, name = sent.get("reason", "").strip(), sent.get("name", "")
    if not reason:
        raise ConfigurationError("give a reason: it is kept with the change")
    match sent.get("change"):
        case "promote":
            # A reason does not let a version pass that its gate refused; that is for the command line.
            version = sent.get("version", "")
            given = {
                "kind": "model",
                "name": name,
                "version": version,
                "override": None,
                "reason": reason,
            }
            label = f"{name}@{version}"
            found = perform(
                asked.console.running, asked.user, PROMOTE, given, subject=label, why=reason
            )
            if isinstance(found, ActRequest):
                return f"{label} waits for a second person (request {found.request_id})"
            return f"{found['serves']} serves"
        case "rollback":
            # Of two people who saw the same version serve, one takes it back.
            shown = sent.get("version", "")
            back = registry.rollback(name, actor=asked.user.name, reason=reason, serving=shown)
            return f"{back.label} serves"
    raise ConfigurationError("a model is promoted or rolled back")


PAGES = (
    Page(
        path="/models",
        title="Models",
        roles=ROLES,
        senders=DECIDERS,
        template="models.html",
        data=_list,
        every_tenant=True,
    ),
    Page(
        path="/models/{name}/{version}",
        title="Model",
        roles=ROLES,
        template="model.html",
        data=_one,
        every_tenant=True,
        is_listed=False,
    ),
)
