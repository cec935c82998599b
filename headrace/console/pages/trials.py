"""Trials: candidates beside their control, with what both arms did and what is shown by now."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from headrace.console.page import Page, PageRequest
from headrace.console.users import ROLES

if TYPE_CHECKING:
    from evolve.detectors import Counted
    from evolve.trial import ArmComparison
    from evolve.trial_files import TrialFiles, TrialState

_CONFIDENCE = 0.95
_MOST = 700.0
"""Logarithm of the largest e-value that is shown."""
_CALLS = """
SELECT json_extract_string(ext, CASE $kind WHEN 'model' THEN '$.model_arm' ELSE '$.artifact_arm' END) AS arm,
       count(*) AS calls, avg(latency_ms) AS latency_ms
FROM steps
WHERE kind = 'model' AND role_in_graph <> 'shadow' AND started_at >= $begun
  AND event_date >= $begun::TIMESTAMPTZ::DATE
GROUP BY arm HAVING arm IN ($candidate || ' canary', $candidate || ' control')
"""


def _list(asked: PageRequest) -> Mapping[str, Any]:
    found, unread = _files(asked).readable()
    rows = [one.summary for one in reversed(found)]
    return {"rows": rows, "unread": [str(one) for one in unread]}


def _one(asked: PageRequest) -> Mapping[str, Any]:
    from evolve.trial import SUCCESS

    wanted = asked.path["trial_id"]
    found = [one for one in _files(asked).readable()[0] if one.trial_id == wanted]
    if not found:
        raise HTTPException(404)
    (state,) = found
    ordered = sorted(state.comparisons.items(), key=lambda item: (item[0] != SUCCESS, item[0]))
    comparisons = [_comparison(state, name, one) for name, one in ordered]
    return {
        "trial": {
            "trial": state.trial_id,
            "kind": state.kind,
            "name": state.name,
            "version": state.version,
            "candidate": state.label,
            "control": state.control,
            "routes": state.routes,
            "decision": state.decision,
            "begun_at": state.begun_at,
            "rung": state.rung,
            "moved_at": state.moved_at,
            "looked_at": state.looked_at,
            "asks": state.asks,
            "outcome": state.outcome,
            "ended_at": state.ended_at,
            "reasons": state.reasons,
            "exam": state.exam,
            "undrawn": state.undrawn.told if state.undrawn.sessions else None,
            "share_of_sessions": state.ladder.canary,
        },
        "confidence": _CONFIDENCE,
        "arms": _arms(asked, state),
        "comparisons": comparisons,
        "is_live": state.outcome is None,
    }


def _arms(asked: PageRequest, state: "TrialState") -> list[dict[str, Any]]:
    """Return both arms: calls so far, and sessions that are known with their share of success."""
    from evolve.trial import SUCCESS, ArmComparison

    begun = {"kind": state.kind, "candidate": state.label, "begun": state.begun_at}
    calls = {row["arm"]: row for row in asked.rows(_CALLS, **begun)}
    success = state.comparisons.get(SUCCESS, ArmComparison()).arms
    arms = (
        ("candidate", state.label, "canary", success.candidate),
        ("control", state.control, "control", success.control),
    )
    found = []
    for arm, version, drawn, counted in arms:
        told = calls.get(f"{state.label} {drawn}", {"calls": 0, "latency_ms": None})
        row = {"arm": arm, "version": version, "calls": told["calls"], **_counted(counted)}
        found.append({**row, "mean_latency_ms": told["latency_ms"]})
    return found


def _counted(counted: "Counted") -> dict[str, Any]:
    """Return sessions that are known, and the share that went right with its interval."""
    from train.evaluation.intervals import wilson

    known = wilson(counted.sessions - counted.events, counted.sessions, _CONFIDENCE)
    share = known.estimate if counted.sessions else None
    interval = {"right": share, "low": known.low, "high": known.high}
    return {"sessions": counted.sessions, "wrong": counted.events, **interval}


def _comparison(state: "TrialState", name: str, one: "ArmComparison") -> Mapping[str, Any]:
    """Return one comparison, with the e-values and from which on each shows something."""
    from evolve.trial import log_needed, margin_of

    harm, no_worse = log_needed(state.ladder, name, len(state.comparisons))
    return {
        "comparison": name,
        "margin": margin_of(state.ladder, name),
        "candidate": _counted(one.arms.candidate),
        "control": _counted(one.arms.control),
        "wrong_more_often_by": one.difference,
        "e_harm": _e(one.log_harm),
        "e_harm_needed": _e(harm),
        "is_worse": one.log_harm >= harm,
        "e_no_worse": _e(one.log_no_worse),
        "e_no_worse_needed": _e(no_worse),
        "is_no_worse": one.log_no_worse >= no_worse,
    }


def _e(logarithm: float) -> float:
    return math.exp(min(logarithm, _MOST))


def _files(asked: PageRequest) -> "TrialFiles":
    from evolve.trial_files import TrialFiles

    return TrialFiles(asked.console.running.home.trials)


PAGES = (
    Page(
        path="/trials",
        title="Trials",
        roles=ROLES,
        template="trials.html",
        data=_list,
        every_tenant=True,
    ),
    Page(
        path="/trials/{trial_id}",
        title="Trial",
        roles=ROLES,
        template="trial.html",
        data=_one,
        every_tenant=True,
        is_listed=False,
    ),
)
