"""Four eyes: an act that policy names is asked for by one person, approved by another one, and done once.

The command line and the console come here for each such act. A request outlives whatever dies; one that
was approved and not ended is done when somebody asks for it again (``headrace requests run``).
"""

import time
from collections.abc import Mapping
from pathlib import Path

from headrace.app.context import AppContext
from headrace.console.users import SYSTEM, User
from headrace.services.acts import ACTS, Act, Outcome, Progress
from headrace.services.request_store import (
    APPROVED,
    DONE,
    FAILED,
    WAITING,
    ActRequest,
    RequestStore,
)
from proxy.clients.keys import ALL_TENANTS
from trajectory.canonical import JsonValue
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError

_TOLD_SECONDS = 0.5


def requests_of(app: AppContext) -> RequestStore:
    """Return what waits for a second person in this installation."""
    return RequestStore(app.home.create().requests)


def wants_two(app: AppContext, act: str) -> bool:
    """Tell whether policy wants two people for an act."""
    return act in app.settings.policy.four_eyes


def may_see(user: User, request: ActRequest) -> bool:
    """Tell whether a person may see a request: who may approve such a one, and who asked."""
    return user.may(ACTS[request.act].roles, request.tenant) or user.is_same(request.asked_by)


def perform(
    app: AppContext,
    user: User,
    act: str,
    parameters: Mapping[str, JsonValue],
    *,
    subject: str,
    why: str = "",
    tenant: str = ALL_TENANTS,
    progress: Progress = lambda _done, _total: None,
) -> Outcome | ActRequest:
    """Do an act, or return the request that waits where policy wants a second person.

    Args:
        app: the installation.
        user: who does it.
        act: its name.
        parameters: what it does, without personal data.
        subject: what it is done to, for the eye and the audit log.
        why: a reason or a reference.
        tenant: in whose data.
        progress: is told how far it is.

    Raises:
        ConfigurationError: the user may not.
    """
    if not wants_two(app, act):
        return ACTS[act].perform(app, user, parameters, progress)
    request = ask(app, user, act, parameters, subject=subject, why=why, tenant=tenant)
    if request.status == APPROVED and ACTS[act].is_for_asker:
        return run(app, user, request.request_id, progress)
    return request


def ask(
    app: AppContext,
    user: User,
    act: str,
    parameters: Mapping[str, JsonValue],
    *,
    subject: str,
    why: str,
    tenant: str,
) -> ActRequest:
    """Write a request down; it is approved already where policy wants nobody else."""
    _require(app, user, ACTS[act], tenant)
    if (check := ACTS[act].check) is not None:
        check(app, user, parameters)
    alone = not wants_two(app, act)
    request, is_new = requests_of(app).ask(
        user, act, tenant=tenant, subject=subject, parameters=parameters, why=why, is_approved=alone
    )
    if is_new:
        _note(app, user, "request.made", request, why=why)
    return request


def approve(
    app: AppContext, user: User, request_id: str, *, reason: str, progress: Progress
) -> ActRequest:
    """Approve somebody else's request, and do it; return it as it is then.

    Raises:
        ConfigurationError: there is none, it does not wait, or this person may not approve it.
        HeadraceError: it was approved and failed.
    """
    accept(app, user, request_id, reason=reason)
    request = requests_of(app).get(request_id)
    if not ACTS[request.act].is_for_asker:
        run(app, user, request_id, progress)
    return requests_of(app).get(request_id)


def accept(app: AppContext, user: User, request_id: str, *, reason: str) -> ActRequest:
    """Approve somebody else's request without doing it yet.

    Raises:
        ConfigurationError: there is none, it does not wait, or this person may not approve it.
    """
    request = _decided(app, user, request_id, reason)
    if not user.is_known_to_differ(request.asked_by):
        raise ConfigurationError(_not_another(user, request))
    return _settle(app, user, request, approve=True, reason=reason)


def reject(app: AppContext, user: User, request_id: str, *, reason: str) -> ActRequest:
    """Reject a request, or take one's own back.

    Raises:
        ConfigurationError: there is none, it does not wait, or this person may not reject it.
    """
    request = _decided(app, user, request_id, reason)
    return _settle(app, user, request, approve=False, reason=reason)


def run(app: AppContext, user: User, request_id: str, progress: Progress) -> Outcome:
    """Do an approved request, once; also the rest of one whose process was killed.

    Raises:
        ConfigurationError: it is not approved, somebody does it now, or it is for another one's eyes.
        HeadraceError: it failed.
    """
    store = requests_of(app)
    with store.alone(request_id) as alone:
        if not alone:
            raise ConfigurationError(f"request {request_id} is under way")
        request = store.get(request_id)
        act = ACTS[request.act]
        if request.status != APPROVED:
            raise ConfigurationError(f"request {request_id} is {request.status}")
        _require(app, user, act, request.tenant)
        if act.is_for_asker and not user.is_same(request.asked_by):
            raise ConfigurationError(
                f"request {request_id} is approved; only {request.asked_by.name} may see what comes of it"
            )
        return _do(app, store, request, progress)


def _do(app: AppContext, store: RequestStore, request: ActRequest, progress: Progress) -> Outcome:
    act, told = ACTS[request.act], 0.0

    def advance(done: int, total: int) -> None:
        nonlocal told
        progress(done, total)
        if (now := time.monotonic()) - told > _TOLD_SECONDS:
            told = now
            store.progress(request.request_id, done, total)

    if act.is_for_asker:
        # What was seen cannot be taken back: it counts as done before it is.
        store.end(request.request_id, DONE, {})
        _note(app, request.asked_by, "request.done", request)
        return act.perform(app, request.asked_by, request.parameters, advance)
    try:
        outcome = act.perform(app, request.asked_by, request.parameters, advance)
    except RetryableError:
        raise  # it stays approved: the same may go well when it is done again
    except HeadraceError as error:
        store.end(request.request_id, FAILED, {"problem": str(error)})
        _note(app, request.asked_by, "request.failed", request)
        raise
    store.end(request.request_id, DONE, outcome)
    _note(app, request.asked_by, "request.done", request)
    return outcome


def _decided(app: AppContext, user: User, request_id: str, reason: str) -> ActRequest:
    request = requests_of(app).get(request_id)
    if not reason.strip():
        raise ConfigurationError("give a reason: it is kept with the decision")
    if request.status != WAITING:
        raise ConfigurationError(f"request {request_id} is {request.status}; it waits no more")
    _require(app, user, ACTS[request.act], request.tenant)
    return request


def _settle(
    app: AppContext, user: User, request: ActRequest, *, approve: bool, reason: str
) -> ActRequest:
    store = requests_of(app)
    # First: nothing is done by two people of whom the log knows one.
    _note(app, user, "request.approved" if approve else "request.rejected", request, reason=reason)
    if not store.decide(request.request_id, user, approve=approve, reason=reason):
        raise ConfigurationError(f"request {request.request_id} was decided a moment ago")
    return store.get(request.request_id)


def _require(app: AppContext, user: User, act: Act, tenant: str) -> None:
    """Refuse who has no role for an act, and who is no person in particular where a provider tells people apart.

    Raises:
        ConfigurationError: it is so.
    """
    if user.authority == SYSTEM and wants_two(app, act.name) and app.settings.console.oidc.issuer:
        raise ConfigurationError(
            f"{act.name} wants two people whom the identity provider tells apart: sign in there "
            "(`headrace login`, or the console)"
        )
    if not user.may(act.roles, tenant):
        where = "every tenant's data" if tenant == ALL_TENANTS else f"the data of {tenant}"
        raise ConfigurationError(
            f"{act.name} is for {', '.join(sorted(act.roles))} in {where}, and {user.name} is none of them"
        )


def _not_another(user: User, request: ActRequest) -> str:
    asked = request.asked_by
    if user.authority == asked.authority:
        return f"{asked.name} asked for request {request.request_id}: somebody else must approve it"
    return (
        f"{asked.name} asked by {asked.authority}, and {user.name} is known by {user.authority}: nobody "
        "can tell that they are two people. Approve it in the same way as it was asked for."
    )


def _note(app: AppContext, user: User, action: str, request: ActRequest, **more: str) -> None:
    detail: dict[str, JsonValue] = {
        "act": request.act,
        "subject": request.subject,
        "tenant": request.tenant,
        "by": user.authority,
        **more,
    }
    app.audit.append(actor=user.name, action=action, subject=request.request_id, detail=detail)


def adoption(app: AppContext, folder: Path) -> tuple[dict[str, JsonValue], str]:
    """Copy a policy bundle that shall be adopted; return what asks for it, and its hash."""
    from headrace.services.policy_copies import copy_bundle

    copy, bundle = copy_bundle(app.home.create(), folder)
    return {"copy": copy, "content_hash": bundle.content_hash}, bundle.content_hash
