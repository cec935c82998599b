"""Audits the policy in force, and changed policies that were refused."""

import json
from typing import NamedTuple

from governance.audit import AuditLog

POLICY_IN_FORCE = "policy.in_force"
POLICY_REFUSED = "policy.refused"


class PolicyNote(NamedTuple):
    """The last word of the audit log on policy."""

    in_force: str | None
    """Content hash of the policy in force."""
    refused: str | None
    """Why a changed policy is not in force since; None where nothing was refused."""


def last_policy(audit: AuditLog) -> PolicyNote | None:
    """Return what was noted last; None before the first governor of an installation."""
    note: PolicyNote | None = None
    for entry in audit.entries():
        if entry.action == POLICY_IN_FORCE:
            note = PolicyNote(entry.subject, None)
        elif entry.action == POLICY_REFUSED:
            note = PolicyNote(entry.subject, str(json.loads(entry.detail).get("problem", "")))
    return note
