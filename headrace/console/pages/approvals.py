"""Approvals: what waits for a person, with its evidence: held tool calls, promotions, decisions."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException

from headrace.app.output import moment
from headrace.console.page import Page, PageRequest
from headrace.console.users import ADMIN, OPERATOR, PRIVACY, REVIEWER, ROLES
from headrace.services.approvals import approvals, decide, shown
from proxy.guard.approvals import Approval
from trajectory.errors import ConfigurationError

_DECIDED = 50
"""Answered calls that a page shows, the latest asked first."""
_PROPOSED = """
SELECT decision_id, recorded_at, surface, subject, metric, at_least FROM decisions_latest
WHERE status = 'proposed' ORDER BY recorded_at DESC, decision_id LIMIT 50
"""
_CANDIDATES = """
SELECT name, version, base, run_id, recorded_at FROM models_latest WHERE status = 'candidate'
ORDER BY recorded_at DESC, name, version LIMIT 50
"""


def _list(asked: PageRequest) -> Mapping[str, Any]:
    everything = asked.reads_every_tenant
    found = approvals(
        asked.console.running, status="all", tenant=None if everything else asked.tenant
    )
    return {
        "waiting": [_row(one) for one in found if one.status == "pending"],
        "decided": [_row(one) for one in found if one.status != "pending"][:_DECIDED],
        "decisions": asked.rows(_PROPOSED) if everything else [],
        "candidates": asked.rows(_CANDIDATES) if everything else [],
    }


def _one(asked: PageRequest) -> Mapping[str, Any]:
    running, name = asked.console.running, asked.path["approval_id"]
    tenant = None if asked.reads_every_tenant else asked.tenant
    found = approvals(running, status="all", tenant=tenant)
    if name not in {one.approval_id for one in found}:
        raise HTTPException(404)
    if asked.sent:
        reason, verdict = asked.sent.get("reason", "").strip(), asked.sent.get("verdict")
        if verdict not in ("approve", "deny"):
            raise ConfigurationError("a call is approved or denied")
        if not reason:
            raise ConfigurationError("give a reason: whoever looks later learns from it")
        decide(running, name, approve=verdict == "approve", who=asked.user.name, reason=reason)
    fields = shown(running, name, asked.user.name)
    listed = {one.approval_id: one for one in found}
    state = _row(listed[name]) if not asked.sent else _times(fields)
    evidence = {key: fields[key] for key in ("tool", "arguments") if key in fields}
    steps = asked.rows(
        "SELECT trajectory_id FROM steps WHERE step_id = $id LIMIT 1", id=fields["step_id"]
    )
    return {
        "state": {key: value for key, value in state.items() if key not in evidence},
        "asked": evidence or None,
        "trajectory_id": steps[0]["trajectory_id"] if steps else None,
    }


def _row(one: Approval) -> dict[str, Any]:
    return _times(asdict(one))


def _times(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with moments for seconds."""
    moments = ("created", "expires", "decided_at")
    return {name: moment(value) if name in moments else value for name, value in fields.items()}


PAGES = (
    Page(
        path="/approvals",
        title="Approvals",
        roles=ROLES,
        template="approvals.html",
        data=_list,
        looks_again=10,
    ),
    Page(
        path="/approvals/{approval_id}",
        title="Held call",
        roles=frozenset({REVIEWER, OPERATOR, PRIVACY, ADMIN}),
        senders=frozenset({OPERATOR, ADMIN}),
        template="approval.html",
        data=_one,
        is_listed=False,
        shows_content=True,
    ),
)
