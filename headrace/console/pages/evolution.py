"""Evolve: what should change and why, what was expected and what came; a person approves or rejects."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headrace.console.page import PAGE_ROWS, Page, PageRequest, paged, place_of
from headrace.console.users import ADMIN, OPERATOR, ROLES, TRAINER
from headrace.services.changes import decision_book
from trajectory.errors import ConfigurationError

DECIDERS = frozenset({OPERATOR, TRAINER, ADMIN})
"""Who may say what becomes of a decision, or of a model."""
_LISTED = f"""
SELECT decision_id, as_of, policy, surface, subject, status, metric, at_least, measured, met, due_at,
       recorded_at, actor, reason
FROM decisions_latest
WHERE $at IS NULL OR (recorded_at, decision_id) < ($at, $last)
ORDER BY recorded_at DESC, decision_id DESC LIMIT {PAGE_ROWS + 1}
"""  # noqa: S608 - a number of our own


_NEWEST = "SELECT document FROM decisions_latest ORDER BY as_of DESC, decision_id DESC LIMIT 1"
_REALISED = """
SELECT count(*) FILTER (met) AS as_expected, count(*) FILTER (NOT met) AS otherwise FROM decisions_latest
"""


def _list(asked: PageRequest) -> Mapping[str, Any]:
    at, last = place_of(asked.query.get("after"), datetime, str)
    rows, after = paged(asked.rows(_LISTED, at=at, last=last), ("recorded_at", "decision_id"))
    newest = [json.loads(one["document"]) for one in asked.rows(_NEWEST)]
    (realised,) = asked.rows(_REALISED)
    return {
        "rows": rows,
        "after": after,
        "cases": [
            {
                "signal": f"{one['signal']} {one['subject']}".strip(),
                "state": "confirmed" if one["confirmed"] else "case",
                "usual": one["reference"]["rate"],
                "now": one["case"]["rate"],
                "since": one["since"],
                "sessions": one["case"]["sessions"],
            }
            for document in newest
            for one in document["saw"]["signals"]
            if one["confirmed"] or one["opened"]
        ],
        "clusters": [one for document in newest for one in document["considered"]["clusters"]],
        "realised": realised,
    }


def _one(asked: PageRequest) -> Mapping[str, Any]:
    book = decision_book(asked.console.running, asked.user.name)
    decision_id = asked.path["decision_id"]
    if asked.sent:
        reason, verdict = asked.sent.get("reason", "").strip(), asked.sent.get("verdict")
        if not reason:
            raise ConfigurationError("give a reason: it is kept with the decision")
        settle = {"approve": book.approve, "reject": book.reject}.get(verdict or "")
        if settle is None:
            raise ConfigurationError("a decision is approved or rejected")
        recorded = settle(decision_id, reason=reason)
    else:
        recorded = book.get(decision_id)
    left = book.evidence_left(recorded)
    return {
        "state": {name: value for name, value in recorded.row.items() if name != "document"},
        "decision": recorded.decision.document,
        "examples": {"present": left.present, "gone": left.gone},
    }


PAGES = (
    Page(
        path="/evolve",
        title="Evolve",
        roles=ROLES,
        template="evolve.html",
        data=_list,
        every_tenant=True,
    ),
    Page(
        path="/evolve/{decision_id}",
        title="Decision",
        roles=ROLES,
        senders=DECIDERS,
        template="decision.html",
        data=_one,
        every_tenant=True,
        is_listed=False,
    ),
)
