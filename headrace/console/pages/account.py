"""Account: who is signed in, with which roles, in which sessions; each session can be ended."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headrace.console.page import Page, PageRequest
from headrace.console.users import ROLES


def _account(asked: PageRequest) -> Mapping[str, Any]:
    sessions, user = asked.console.sessions, asked.user
    ended = None
    if asked.form is not None:
        ended = sessions.revoke(user, asked.form.get("session", ""))
        if ended:
            asked.note("console.session_ended", "console")
    return {
        "name": user.name,
        "roles": [{"role": role, "tenant": tenant} for role, tenant in sorted(user.roles)],
        "sessions": [
            {
                "session": one.session,
                "begun": _time(one.begun),
                "seen": _time(one.seen),
                "ends": _time(one.ends),
            }
            for one in sessions.list(user)
        ],
        "ended": ended,
    }


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)


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
