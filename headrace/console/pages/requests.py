"""Requests: acts that wait for a second person, and how far those are that were approved."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from headrace.app.output import moment
from headrace.console.page import Page, PageRequest
from headrace.console.users import ADMIN, OPERATOR, PRIVACY, TRAINER
from headrace.services import four_eyes
from headrace.services.acts import ACTS
from headrace.services.request_store import APPROVED, WAITING, ActRequest
from trajectory.errors import ConfigurationError, HeadraceError

_DECIDERS = frozenset({OPERATOR, PRIVACY, TRAINER, ADMIN})
_SHOWN = 50


def begin(asked: PageRequest, request: ActRequest) -> None:
    """Do an approved request in the background: it may take long, and the page shows how far it is."""
    running, user = asked.console.running, asked.user

    def work() -> None:
        # What went wrong stands with the request; one whose process ended can be run again.
        with suppress(HeadraceError, OSError), running.of_this_thread() as app:
            four_eyes.run(app, user, request.request_id, lambda _done, _total: None)

    threading.Thread(target=work, name=f"request {request.request_id}", daemon=True).start()


def _requests(asked: PageRequest) -> Mapping[str, Any]:
    value = _settle(asked) if asked.sent else None
    store, user = four_eyes.requests_of(asked.console.running), asked.user
    seen = [one for one in store.list("all") if four_eyes.may_see(user, one)]
    seen.sort(key=lambda one: (one.status != WAITING, one.status != APPROVED, -one.asked_at))
    return {"rows": [_row(asked, one) for one in seen[:_SHOWN]], "value": value}


def _settle(asked: PageRequest) -> Mapping[str, Any] | None:
    """Do what the form says; return what only the person who asked may see."""
    sent, running, user = asked.sent, asked.console.running, asked.user
    request_id, reason = sent.get("request", ""), sent.get("reason", "").strip()
    match sent.get("do"):
        case "approve":
            found = four_eyes.accept(running, user, request_id, reason=reason)
            if not ACTS[found.act].is_for_asker:
                begin(asked, found)
        case "reject":
            four_eyes.reject(running, user, request_id, reason=reason)
        case "run":
            found = four_eyes.requests_of(running).get(request_id)
            if ACTS[found.act].is_for_asker:
                with running.of_this_thread() as app:
                    return four_eyes.run(app, user, request_id, lambda _done, _total: None)
            if not four_eyes.may_see(user, found):
                raise ConfigurationError(f"request {request_id} is for others")
            begin(asked, found)
        case _:
            raise ConfigurationError("a request is approved, rejected or run")
    return None


def _row(asked: PageRequest, one: ActRequest) -> Mapping[str, Any]:
    act, user = ACTS[one.act], asked.user
    has_role = user.may(act.roles, one.tenant)
    return {
        "request": one.request_id,
        "act": one.act,
        "subject": one.subject,
        "tenant": one.tenant,
        "status": one.status,
        "asked_by": one.asked_by.name,
        "asked_at": moment(one.asked_at),
        "why": one.why,
        "decided_by": None if one.decided_by is None else one.decided_by.name,
        "reason": one.reason,
        "done": one.done,
        "total": one.total,
        "outcome": one.outcome,
        "parameters": one.parameters,
        "may_approve": one.status == WAITING and has_role and user.is_known_to_differ(one.asked_by),
        "may_reject": one.status == WAITING and has_role,
        "may_run": one.status == APPROVED
        and has_role
        and (user.is_same(one.asked_by) or not act.is_for_asker),
    }


PAGES = (
    Page(
        path="/requests",
        title="Requests",
        roles=_DECIDERS,
        senders=_DECIDERS,
        template="requests.html",
        data=_requests,
    ),
)
