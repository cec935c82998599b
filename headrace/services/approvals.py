"""Tool calls that wait for a person: shown, approved, denied; each of it is an audit entry."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headrace.app.context import AppContext
from headrace.app.guard import approvals_of, audit_of
from proxy.guard.approvals import STATUSES, Approval
from trajectory.errors import ConfigurationError


def approvals(
    app: AppContext, *, status: str = "pending", tenant: str | None = None
) -> Sequence[Approval]:
    """Return calls of a status, or ``all``, the latest first.

    Raises:
        ConfigurationError: there is no such status.
    """
    if status not in (*STATUSES, "all"):
        raise ConfigurationError(f"no status {status!r}. Valid: {', '.join(STATUSES)}, all.")
    return approvals_of(app.home, app.secrets).list(status, tenant)


def shown(app: AppContext, approval_id: str, who: str) -> dict[str, Any]:
    """Return a call with what it says, as long as it waits.

    Raises:
        ConfigurationError: there is none of this id.
    """
    store = approvals_of(app.home, app.secrets)
    found = store.get(approval_id)
    said = store.asked(approval_id)
    if said is not None:
        app.audit.append(actor=who, action="approval.read", subject=approval_id)
    return {**asdict(found), **(said or {})}


def decide(
    app: AppContext, approval_id: str, *, approve: bool, who: str, reason: str = ""
) -> Approval:
    """Approve or deny a call that waits.

    Raises:
        ConfigurationError: there is none of this id, or it does not wait any more.
    """
    return approvals_of(app.home, app.secrets).decide(
        approval_id, approve=approve, who=who, reason=reason, audit=audit_of(app.audit)
    )
