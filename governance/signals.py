"""Signals from feedback: rewards and comments, redacted, for steps that may be kept."""

import math
from datetime import datetime
from typing import NamedTuple, Protocol

from governance.naming import Namer
from governance.redact.values import RedactionReport, RedactionScope, Told
from governance.redacting import Redactor, public_id
from governance.vocabulary import SOURCE_KINDS
from trajectory.canonical import JsonValue
from trajectory.placement import PlacedFeedback
from trajectory.step import Signal


class StepNames(Protocol):
    """Follows a step that was left out as a repetition to the step that it repeats."""

    def __call__(self, step_id: str) -> str:
        """Return the step under which the content is stored."""
        ...


class RedactedSignal(NamedTuple):
    """The stored form of one piece of feedback, and what redaction found in it."""

    signal: Signal
    report: RedactionReport


def signal_of(
    placed: PlacedFeedback,
    *,
    redactor: Redactor,
    namer: Namer,
    follow: StepNames,
    told: tuple[Told, ...],
    keep_rationale: bool,
) -> RedactedSignal:
    """Return the stored form of one piece of feedback.

    Numbers, times and fixed words pass; every other string is redacted or hashed. What names
    somebody leaves its type only: a comment concerns the people of its trajectory, and is erased
    with them; anybody else could not be found in it again.
    """
    feedback = placed.feedback
    tenant, body = feedback.client.tenant_id, feedback.body
    scope = RedactionScope(tenant, placed.trajectory_id or "", linked=False, told=told)
    reports: list[RedactionReport] = []
    step_id = follow(placed.step_id) if placed.step_id else None

    def text(field: str) -> str | None:
        value = body.get(field)
        if value is None or value == "":
            return None
        redacted = redactor.redact_text(str(value), scope=scope, path=f"/{field}")
        reports.append(redacted.report)
        return redacted.text

    target_kind, target_id = _target(placed, step_id, redactor, namer)
    source_kind = body.get("source_kind")
    supersedes = body.get("supersedes")
    signal = Signal(
        tenant_id=tenant,
        signal_id=signal_id(namer, tenant, feedback.feedback_id),
        target_kind=target_kind,
        target_id=target_id,
        trajectory_id=placed.trajectory_id,
        step_id=step_id,
        name=text("name") or "feedback",
        value=_number(body.get("value")),
        label=text("label"),
        rationale=text("rationale") if keep_rationale else None,
        source_kind=str(source_kind) if source_kind in SOURCE_KINDS else "rule",
        source=text("source") or "unknown",
        source_version=text("source_version"),
        confidence=_number(body.get("confidence")),
        observed_at=_time(body.get("observed_at")) or feedback.received_at,
        recorded_at=feedback.received_at,
        supersedes=signal_id(namer, tenant, str(supersedes)) if supersedes else None,
        is_gold=body.get("is_gold") is True,
    )
    return RedactedSignal(signal, RedactionReport().joined(*reports))


def signal_id(namer: Namer, tenant_id: str, feedback_id: str) -> str:
    """Return the stored name of a piece of feedback; clients choose theirs, so it is hashed."""
    return namer.name(tenant_id, "signal", feedback_id)


def _target(
    placed: PlacedFeedback, step_id: str | None, redactor: Redactor, namer: Namer
) -> tuple[str, str]:
    kind, target = placed.feedback.target_kind, placed.feedback.target_id
    tenant = placed.feedback.client.tenant_id
    if kind in ("response", "step") and step_id is not None:
        return "step", step_id
    if kind == "trajectory" and placed.trajectory_id is not None:
        return "trajectory", placed.trajectory_id
    if kind in ("response", "step", "trajectory"):
        return kind, public_id(redactor, namer, tenant, target) or ""
    stored = placed.target or namer.name(tenant, kind, target)
    return (kind if kind in ("session", "group") else "session"), stored


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _time(value: JsonValue) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
