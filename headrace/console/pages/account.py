"""Account: who is signed in, with which roles, in which sessions; an administrator sees everybody's and ends them."""

from collections.abc import Mapping
from typing import Any

from headrace.app.output import moment
from headrace.console.page import Page, PageRequest
from headrace.console.users import ADMIN, ROLES
from proxy.clients.keys import ALL_TENANTS


def _account(asked: PageRequest) -> Mapping[str, Any]:
    sessions, user = asked.console.sessions, asked.user
    whose = None if user.may({ADMIN}, ALL_TENANTS) else user
    ended = None
    if asked.form is not None:
        name = sessions.revoke(asked.form.get("session", ""), whose)
        ended = name is not None
        if name is not None:
            asked.note("console.session_ended", name)
    return {
        "name": user.name,
        "authority": user.authority,
        "roles": [{"role": role, "tenant": tenant} for role, tenant in sorted(user.roles)],
        "sessions": [
            {
                "session": one.session,
                "name": one.name,
                "door": one.door,
                "begun": moment(one.begun),
                "seen": moment(one.seen),
                "ends": moment(one.ends),
            }
            for one in sessions.list(whose)
        ],
        "ended": ended,
    }


PAGES = (
    Page(
        path="/account",
        title="Account",
        roles=ROLES,
        template="account.html",
        data=_account,
        senders=ROLES,
    ),
)
