"""Progress: erasures, substrates and trainings that are under way, and how those ended that were."""

from collections.abc import Mapping
from typing import Any

from headrace.app.output import moment
from headrace.console.page import Page, PageRequest
from headrace.console.users import ADMIN, OPERATOR, PRIVACY, TRAINER
from headrace.services.progress_store import ERASURE, RUNNING, WorkProgress, progress_of

_SHOWN = 50


def _progress(asked: PageRequest) -> Mapping[str, Any]:
    found = progress_of(asked.console.running).list()
    rows = [_row(one) for one in found if _may_see(asked, one)][:_SHOWN]
    return {"rows": rows, "is_live": any(one["status"] == RUNNING for one in rows)}


def _may_see(asked: PageRequest, one: WorkProgress) -> bool:
    """Tell whether somebody may see it: an erasure is for privacy, all else belongs to no tenant."""
    if one.kind == ERASURE:
        is_shown = asked.reads_every_tenant or one.tenant == asked.tenant
        return is_shown and asked.user.may(frozenset({PRIVACY, ADMIN}), one.tenant)
    return asked.reads_every_tenant


def _row(one: WorkProgress) -> Mapping[str, Any]:
    return {
        "kind": one.kind,
        "subject": one.subject,
        "tenant": one.tenant,
        "status": one.status,
        "stage": one.stage,
        "done": one.done,
        "total": one.total,
        "share": min(one.done / one.total, 1.0) if one.total else None,
        "started_by": one.started_by,
        "started_at": moment(one.started_at),
        "told_at": moment(one.seen_at),
        "last_sign_of_life_at": moment(one.alive_at),
        "is_silent": one.is_silent,
        "problem": one.problem,
    }


PAGES = (
    Page(
        path="/progress",
        title="Progress",
        roles=frozenset({OPERATOR, PRIVACY, TRAINER, ADMIN}),
        template="progress.html",
        data=_progress,
    ),
)
