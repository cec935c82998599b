"""The acts that policy may give to four eyes, each done by one function for the command line and the console."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

from headrace.app.context import AppContext
from headrace.console.users import ADMIN, OPERATOR, PRIVACY, TRAINER, User
from trajectory.canonical import JsonValue
from trajectory.errors import ConfigurationError, IntegrityError

type Outcome = dict[str, JsonValue]
type Progress = Callable[[int, int], None]
type Parameters = Mapping[str, JsonValue]

PROMOTE, ERASE, REVEAL, RELEASE, POLICY = "promote", "erase", "reveal", "release", "policy"


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a person does, and that policy may want two people for."""

    name: str
    roles: frozenset[str]
    """Who may ask for it, and approve it."""
    perform: Callable[[AppContext, User, Parameters, Progress], Outcome]
    check: Callable[[AppContext, User, Parameters], None] | None = None
    """Refuses, before anybody is asked to approve, what would be refused then."""
    is_for_asker: bool = False
    """Whether its outcome is for the eyes of who asked: that person does it once it is approved."""


def _promote(app: AppContext, user: User, given: Parameters, _progress: Progress) -> Outcome:
    from headrace.services.changes import artifact_registry, model_registry

    name, version = str(given["name"]), str(given["version"])
    override = None if given["override"] is None else str(given["override"])
    reason = None if given.get("reason") is None else str(given["reason"])
    of_kind = model_registry if given["kind"] == "model" else artifact_registry
    serving = None if given.get("serving") is None else str(given["serving"])
    registry = of_kind(app, user.name)
    done = registry.promote(
        name, version, actor=user.name, override=override, reason=reason, serving=serving
    )
    return {"serves": done.label}


def _erase(app: AppContext, user: User, given: Parameters, progress: Progress) -> Outcome:
    """Erase the people whose pseudonyms are given."""
    from headrace.services.erasure import ErasureRequest, erase_person
    from headrace.services.substrates import note_stale_serving

    people = [tuple(person) for person in cast(Sequence[Sequence[str]], given["people"])]
    reference = None if given["reference"] is None else str(given["reference"])
    request = ErasureRequest(
        str(given["tenant"]), [person[0] for person in people], user.name, reference, people
    )
    done = erase_person(app, request, progress)
    note_stale_serving(app, user.name)
    return {
        "erasure": done.report.removal_id,
        "trajectories": len(done.report.reach.trajectories),
        "rows": {table: count for table, count in done.report.rows.items() if count},
        "keys_destroyed": done.keys_destroyed,
        "under_legal_hold": done.report.held,
        "models_trained_on_them": [*done.report.reach.models],
    }


def _reveal(app: AppContext, user: User, given: Parameters, _progress: Progress) -> Outcome:
    """Open a sealed value for a user whom the settings name; each try is an audit entry."""
    from governance.redact.reversible import parsed

    mark = str(given["mark"])
    sealed = parsed(mark)
    if sealed is None:
        raise ConfigurationError("that is not a sealed value; they look like <PERSON~0.AbC…>.")
    said, action = "", "value.reveal_refused"
    failed: IntegrityError | None = None
    if user.name in app.settings.policy.reveal_users:
        try:
            said, action = _opened(app, mark), "value.revealed"
        except IntegrityError as error:
            failed, action = error, "value.reveal_failed"
    app.audit.append(
        actor=user.name,
        action=action,
        subject=sealed.subject or "installation",
        detail={
            "entity": sealed.entity,
            "mark": mark_hash(mark),
            "reason": str(given["reason"]),
        },
    )
    if failed is not None:
        raise failed
    if action != "value.revealed":
        raise ConfigurationError(
            f"user {user.name!r} may not open sealed values; the setting policy.reveal_users names who may."
        )
    return {"entity": sealed.entity, "value": said}


def _may_reveal(app: AppContext, user: User, given: Parameters) -> None:
    if user.name not in app.settings.policy.reveal_users:
        _reveal(app, user, given, lambda _done, _total: None)


def mark_hash(mark: str) -> str:
    """Return what names a sealed value in the audit log."""
    return blake2b(mark.strip().encode(), digest_size=16).hexdigest()


def _opened(app: AppContext, mark: str) -> str:
    """Return the value, with its subject's key or the installation's of any epoch."""
    from governance.policy import load_bundle
    from governance.redact.pseudonym import installation_seal, key_of_epoch
    from governance.redact.reversible import parsed, unseal

    sealed = parsed(mark)
    if sealed is None:
        raise ConfigurationError("that is not a sealed value.")
    if sealed.subject is not None:
        key = app.subject_keys.known(sealed.subject)
        if key is None:
            raise IntegrityError("the subject's key is destroyed: nobody can open this any more.")
        return unseal(key, sealed)
    epochs = load_bundle(app.settings.policy.folder).redaction.spec.key_epoch
    pseudonym_key = app.secrets.derive(b"pseudonym")
    for epoch in range(epochs, 0, -1):
        try:
            return unseal(installation_seal(key_of_epoch(pseudonym_key, epoch)), sealed)
        except IntegrityError:
            continue
    raise IntegrityError(
        "no key of this installation opens that value: it was sealed elsewhere, or it is damaged."
    )


def _release(app: AppContext, user: User, given: Parameters, _progress: Progress) -> Outcome:
    from headrace.govern.quarantine_store import kept_as
    from headrace.services import quarantine

    names = [str(one) for one in cast(Sequence[JsonValue], given["cases"])]
    held = [row for row in quarantine.named(app, names) if row["status"] == "held"]
    released = {row["quarantine_id"] for row in quarantine.release(app, held, user.name)}
    rest = [row for row in held if row["quarantine_id"] not in released]
    content = quarantine.content_of(app)
    there = content.names()
    gone = [row["quarantine_id"] for row in rest if kept_as(row) not in there]
    damaged: Outcome = {
        row["quarantine_id"]: why for row in rest if (why := quarantine.damage_of(content, row))
    }
    return {
        "released": len(released),
        "of": len(names),
        "gone": gone,
        "damaged": damaged,
        "without_room": len(rest) - len(gone) - len(damaged),
    }


def _policy(app: AppContext, user: User, given: Parameters, _progress: Progress) -> Outcome:
    from headrace.services.policy_copies import adopt

    adopted = adopt(app.home, str(given["copy"]))
    app.audit.append(
        actor=user.name,
        action="policy.adopted",
        subject=str(given["content_hash"]),
        detail={"copy": str(given["copy"])},
    )
    return {"policy": adopted.content_hash}


_PRIVACY = frozenset({PRIVACY, ADMIN})
ACTS = {
    act.name: act
    for act in (
        Act(PROMOTE, frozenset({OPERATOR, TRAINER, ADMIN}), _promote),
        Act(ERASE, _PRIVACY, _erase),
        Act(REVEAL, _PRIVACY, _reveal, _may_reveal, is_for_asker=True),
        Act(RELEASE, _PRIVACY, _release),
        Act(POLICY, _PRIVACY, _policy),
    )
}
