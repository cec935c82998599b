"""Feedback judged: signals of those whose steps may be kept; the rest is counted as left out."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from governance.consent import ConsentLookup, ConsentRequest, ConsentVerdict, judge_consent
from governance.data_classes import data_classes
from governance.identifiers import Namer
from governance.passes.calls import failed
from governance.passes.comments import CommentConsent, Place
from governance.passes.rows import BatchRows
from governance.policy.capture import CaptureField, CaptureLevel
from governance.policy.documents import PolicyBundle
from governance.policy.selector import Facts
from governance.records import Decision, GovernanceRecord, HeldFeedback
from governance.redact.report import NamePart, RedactionReport, RedactionScope
from governance.redact.trajectory import CallRedactor, public_id
from governance.retention import judge_retention
from governance.stored_content import KnownContent, name_parts_of_reports, names_of
from trajectory.assembly.result import PlacedFeedback
from trajectory.canonical import JsonValue
from trajectory.portable import SOURCE_KINDS, SPAN_UNITS
from trajectory.step import Correction, Signal


class RedactedSignal(NamedTuple):
    """The stored form of one piece of feedback, and what redaction found in it."""

    signal: Signal
    report: RedactionReport


class JudgedFeedback(NamedTuple):
    """What a batch's feedback adds to the lake."""

    signals: tuple[Signal, ...]
    decisions: tuple[GovernanceRecord, ...]
    held: tuple[HeldFeedback, ...]
    """What waits with the calls that it is about."""


_NO_STEP, _NO_TRAJECTORY = "signal:step-not-stored", "signal:trajectory-not-stored"
_COMMENT_LEFT_OUT = "signal:comment-left-out"
_PATHS = {"label": "/label/text"}
"""A label in a tool's answer names a thing; in feedback it is what a person says."""


def signal_of(
    placed: PlacedFeedback,
    *,
    redactor: CallRedactor,
    namer: Namer,
    follow: Callable[[str], str],
    name_parts: Mapping[str, tuple[NamePart, ...]],
    keep_rationale: bool,
) -> RedactedSignal:
    """Return the stored form of one piece of feedback.

    Numbers, times and fixed words pass; every other string is redacted or hashed. What names
    somebody leaves its type only: a comment concerns the people of its trajectory, and is erased
    with them; anybody else could not be found in it again. A comment on a session or group goes
    through the names of each of its trajectories.

    Args:
        placed: the feedback.
        redactor: redacts its texts.
        namer: names it.
        follow: leads to the stored step.
        name_parts: parts of names that were found in the trajectories that it is about.
        keep_rationale: whether its comment may be kept.
    """
    feedback = placed.feedback
    tenant, body = feedback.client.tenant_id, feedback.body
    scopes = [
        RedactionScope(tenant, name, linked=False, name_parts=parts)
        for name, parts in sorted(name_parts.items())
    ] or [RedactionScope(tenant, placed.trajectory_id or "", linked=False)]
    reports: list[RedactionReport] = []
    step_id = follow(placed.step_id) if placed.step_id else None

    def text(field: str) -> str | None:
        value = body.get(field)
        if value is None or value == "":
            return None
        said = str(value)
        for scope in scopes:
            redacted = redactor.redact_text(said, scope=scope, path=_PATHS.get(field, f"/{field}"))
            reports.append(redacted.report)
            said = redacted.text
        return said

    target_kind, target_id = _target(placed, step_id, redactor, namer)
    unit, start, end = _span(body.get("span"))
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
        span_unit=unit,
        span_start=start,
        span_end=end,
        app_id=feedback.client.app_id,
        environment=feedback.client.environment,
    )
    return RedactedSignal(signal, RedactionReport().joined(*reports))


def signal_id(namer: Namer, tenant_id: str, feedback_id: str) -> str:
    """Return the stored name of a piece of feedback; clients choose theirs, so it is hashed."""
    return namer.name(tenant_id, "signal", feedback_id)


def _target(
    placed: PlacedFeedback, step_id: str | None, redactor: CallRedactor, namer: Namer
) -> tuple[str, str]:
    kind, target = placed.feedback.target_kind, placed.feedback.target_id
    tenant = placed.feedback.client.tenant_id
    if kind in ("response", "step") and step_id is not None:
        return ("step" if placed.feedback.body.get("span") is None else "token_span"), step_id
    if kind == "trajectory" and placed.trajectory_id is not None:
        return "trajectory", placed.trajectory_id
    if kind in ("response", "step", "trajectory"):
        return kind, public_id(redactor, namer, tenant, target) or ""
    stored = placed.target or namer.name(tenant, kind, target)
    return (kind if kind in ("session", "group") else "session"), stored


def _span(value: JsonValue) -> tuple[str | None, int | None, int | None]:
    """Return unit, start and end of a span, as the feedback API checked them; numbers and a fixed word."""
    if not isinstance(value, dict):
        return None, None, None
    unit, start, end = value.get("unit"), value.get("start"), value.get("end")
    if unit not in SPAN_UNITS or not isinstance(start, int) or not isinstance(end, int):
        return None, None, None
    return str(unit), start, end


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
        # What UTC's calendar lacks, no reader of the lake could show.
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


class FeedbackJudge:
    """Turns feedback into signals; what is left out leaves a decision without content."""

    def __init__(
        self,
        bundle: PolicyBundle,
        redactor: CallRedactor,
        namer: Namer,
        consents: ConsentLookup,
        known: KnownContent,
    ) -> None:
        """Judge under ``bundle``."""
        self._bundle = bundle
        self._redactor = redactor
        self._namer = namer
        self._consents = consents
        self._known = known

    def judge(
        self,
        feedback: Sequence[PlacedFeedback],
        rows: BatchRows,
        corrections: Sequence[Correction],
        now: datetime,
    ) -> JudgedFeedback:
        """Return the signals of a batch, with the decisions on what is kept and what is left out.

        Args:
            feedback: of the batch.
            rows: of its calls.
            corrections: what it changes about calls of earlier batches.
            now: the moment of decisions.
        """
        feedback = self._unsaid(feedback)
        stored = self._stored_targets(feedback, rows)
        trajectories = self._stored_trajectories(feedback, rows, corrections)
        about = [self._about(one) for one in feedback]
        places = self._places(about, feedback, rows)
        name_parts = self._name_parts(places, rows)
        comments = self._comments(about, feedback, places, rows)
        calls = self._held_calls(feedback, rows, stored, trajectories)
        signals: list[Signal] = []
        decisions: list[GovernanceRecord] = []
        held: list[HeldFeedback] = []
        for placed, place in zip(feedback, about, strict=True):
            try:
                reason, consent = self._refusal(placed, rows, stored, trajectories)
                if reason is None:
                    is_silent = _has_comment(placed) and not comments.may_be_kept(
                        placed.feedback, place, _facts(placed)
                    )
                    parts = name_parts.get(place, {})
                    signal, report = self._signal(placed, rows, parts, is_silent=is_silent)
                    signals.append(signal)
                    # Without a trajectory that takes it along, its end is decided here.
                    alone = signal.trajectory_id is None or placed.was_held
                    if report.changed or is_silent or alone:
                        reasons = (_COMMENT_LEFT_OUT,) if is_silent else ()
                        decisions.append(self._kept(placed, reasons, report, consent, now))
                    continue
                if reason in (_NO_STEP, _NO_TRAJECTORY) and (
                    waits := calls.get(_held_by(placed, rows))
                ):
                    held.append(HeldFeedback(placed.feedback, tuple(waits.items())))
                    decisions.append(
                        self._row(placed, Decision.QUARANTINE, ("signal:held",), consent, now)
                    )
                    continue
            except Exception as error:  # noqa: BLE001 (fail closed: leave the feedback out)
                reason, consent = failed(error), None
            decisions.append(self._left_out(placed, reason, consent, now))
        return JudgedFeedback(tuple(signals), tuple(decisions), tuple(held))

    def _unsaid(self, feedback: Sequence[PlacedFeedback]) -> Sequence[PlacedFeedback]:
        """Leave out what was said before under the same name: delivered again, it says nothing new.

        It must not hold against what was said since. What waited in quarantine counts once, with whichever of its
        calls comes first.
        """
        asked: dict[str, set[str]] = defaultdict(set)
        for placed in feedback:
            if placed.was_held or not placed.feedback.is_said_anew:
                tenant, name = self._named(placed)
                asked[tenant].add(name)
        stored = {
            (tenant, name)
            for tenant, names in asked.items()
            for name in self._known.known_signals(tenant, names)
        }
        said = {self._named(one) for one in feedback if not one.was_held}
        unsaid = []
        for one in feedback:
            key = self._named(one)
            if key in stored or (one.was_held and key in said):
                continue
            said.add(key)
            unsaid.append(one)
        return unsaid

    def _named(self, placed: PlacedFeedback) -> tuple[str, str]:
        """Return the tenant of a piece of feedback, and its stored name."""
        tenant = placed.feedback.client.tenant_id
        return tenant, signal_id(self._namer, tenant, placed.feedback.feedback_id)

    def _stored_targets(self, feedback: Sequence[PlacedFeedback], rows: BatchRows) -> set[str]:
        here = set(rows.step_ids)
        asked: dict[str, set[str]] = defaultdict(set)
        for placed in feedback:
            if placed.step_id is not None and rows.follow(placed.step_id) not in here:
                asked[placed.feedback.client.tenant_id].add(rows.follow(placed.step_id))
        for tenant, steps in asked.items():
            here |= self._known.known_steps(tenant, steps - rows.not_stored)
        return here

    def _held_calls(
        self,
        feedback: Sequence[PlacedFeedback],
        rows: BatchRows,
        stored: set[str],
        trajectories: set[tuple[str, str]],
    ) -> dict[tuple[str, str], dict[str, str]]:
        """Return the held calls that feedback is about, with what is kept of them, by tenant and step or trajectory."""
        asked: dict[str, set[str]] = defaultdict(set)
        for placed in feedback:
            tenant, name = _held_by(placed, rows)
            if name and name not in stored and (tenant, name) not in trajectories:
                asked[tenant].add(name)
        found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for tenant, names in asked.items():
            for name, calls in self._known.held(tenant, names).items():
                # Those of this batch are judged anew.
                found[tenant, name] |= {one: calls[one] for one in calls.keys() - rows.not_stored}
        for row in rows.quarantine:
            if row.step_id is not None and row.trajectory_id is not None:
                for name in (row.step_id, row.trajectory_id):
                    found[row.tenant_id, name][row.step_id] = row.part_of or row.exchange_id
        return found

    def _stored_trajectories(
        self,
        feedback: Sequence[PlacedFeedback],
        rows: BatchRows,
        corrections: Sequence[Correction],
    ) -> set[tuple[str, str]]:
        """Return the trajectories, with their tenants, that have a stored step."""
        here = {(one.tenant_id, one.trajectory_id) for one in rows.steps}
        here |= {(one.tenant_id, one.trajectory_id) for one in corrections}
        asked: dict[str, set[str]] = defaultdict(set)
        for placed in feedback:
            name = placed.trajectory_id
            tenant = placed.feedback.client.tenant_id
            if name is not None and placed.step_id is None and (tenant, name) not in here:
                asked[tenant].add(name)
        for tenant, names in asked.items():
            here |= {(tenant, name) for name in self._known.known_trajectories(tenant, names)}
        return here

    def _refusal(
        self,
        placed: PlacedFeedback,
        rows: BatchRows,
        stored: set[str],
        trajectories: set[tuple[str, str]],
    ) -> tuple[str | None, ConsentVerdict | None]:
        """Return why a signal may not be kept, None when it may."""
        client = placed.feedback.client
        facts = _facts(placed)
        request = ConsentRequest(facts, client.purposes, headers=(), end_user=None)
        consent = judge_consent(self._bundle.consent.spec, self._consents, request)
        capture = self._bundle.capture.spec
        levels = {capture.level, *(rule.level for rule in capture.matching(facts))}
        if not consent.purposes:
            return "consent:no-purpose", consent
        if CaptureLevel.METADATA in levels:
            return "capture:metadata-only", consent
        if placed.step_id is not None and rows.follow(placed.step_id) not in stored:
            return _NO_STEP, consent
        kept_here = any(step.trajectory_id == placed.trajectory_id for step in rows.steps)
        if placed.trajectory_id in rows.left_out_trajectories and not kept_here:
            return "signal:trajectory-left-out", consent
        place = placed.trajectory_id
        if placed.step_id is None and place and (client.tenant_id, place) not in trajectories:
            return _NO_TRAJECTORY, consent
        return None, consent

    def _name_parts(
        self, places: Mapping[Place, set[str]], rows: BatchRows
    ) -> dict[Place, dict[str, tuple[NamePart, ...]]]:
        """Return parts of names that were found, before or in this batch: by what feedback is about, then by
        trajectory that has some.
        """
        asked: dict[str, set[str]] = defaultdict(set)
        for (tenant, _), names in places.items():
            asked[tenant] |= names
        found: dict[tuple[str, str], tuple[NamePart, ...]] = {}
        for tenant, names in asked.items():
            here = name_parts_of_reports(
                (row.trajectory_id, row.redaction_report)
                for row in rows.governance
                if row.tenant_id == tenant and row.trajectory_id in names
            )
            before = self._known.name_parts(tenant, names)
            for name in names:
                found[tenant, name] = (*before.get(name, ()), *here.get(name, ()))
        return {
            (tenant, about): {name: parts for name in names if (parts := found[tenant, name])}
            for (tenant, about), names in places.items()
        }

    def _about(self, placed: PlacedFeedback) -> Place:
        """Return the tenant of feedback, and the stored name of what it is about; no name where it has none."""
        tenant, name = placed.feedback.client.tenant_id, placed.trajectory_id
        if name is None:
            with suppress(Exception):  # the same error leaves the feedback out
                _, name = _target(placed, None, self._redactor, self._namer)
        return tenant, name or ""

    def _places(
        self, about: Sequence[Place], feedback: Sequence[PlacedFeedback], rows: BatchRows
    ) -> dict[Place, set[str]]:
        """Return the trajectories that feedback is about."""
        places: dict[Place, set[str]] = {place: set() for place in about}
        wide: dict[str, set[str]] = defaultdict(set)
        for placed, (tenant, name) in zip(feedback, about, strict=True):
            if placed.trajectory_id is not None:
                places[tenant, name].add(placed.trajectory_id)
            elif name:
                wide[tenant].add(name)
        for tenant, names in wide.items():
            for name, trajectories in self._known.trajectories_of(tenant, names).items():
                places[tenant, name] |= trajectories
        for step in rows.steps:
            for name in wide[step.tenant_id].intersection(names_of(step)):
                places[step.tenant_id, name].add(step.trajectory_id)
        return places

    def _comments(
        self,
        about: Sequence[Place],
        feedback: Sequence[PlacedFeedback],
        places: Mapping[Place, set[str]],
        rows: BatchRows,
    ) -> CommentConsent:
        said = {
            place: places[place]
            for placed, place in zip(feedback, about, strict=True)
            if _has_comment(placed)
        }
        return CommentConsent(self._bundle.consent.spec, self._consents, self._known, said, rows)

    def _signal(
        self,
        placed: PlacedFeedback,
        rows: BatchRows,
        name_parts: Mapping[str, tuple[NamePart, ...]],
        *,
        is_silent: bool,
    ) -> RedactedSignal:
        capture = self._bundle.capture.spec
        without = {*capture.without}
        for rule in capture.matching(_facts(placed)):
            without |= {*rule.without}
        return signal_of(
            placed,
            redactor=self._redactor,
            namer=self._namer,
            follow=rows.follow,
            name_parts=name_parts,
            keep_rationale=not is_silent and CaptureField.RATIONALE not in without,
        )

    def _kept(
        self,
        placed: PlacedFeedback,
        reasons: tuple[str, ...],
        report: RedactionReport,
        consent: ConsentVerdict | None,
        now: datetime,
    ) -> GovernanceRecord:
        """Return what was redacted in a signal that is stored, and how long it stays."""
        counts = [f"pii:{entity}×{count}" for entity, count in sorted(report.counts.items())]
        decision = Decision.REDACT if report.changed else Decision.ALLOW
        return replace(
            self._row(placed, decision, ("signal:kept", *reasons, *counts), consent, now),
            purposes=consent.purposes if consent else (),
            data_classes=data_classes(report.counts),
            redaction_report=json.dumps(report.to_json(), sort_keys=True),
            redaction_counts=dict(sorted(report.counts.items())),
        )

    def _left_out(
        self,
        placed: PlacedFeedback,
        reason: str,
        consent: ConsentVerdict | None,
        now: datetime,
    ) -> GovernanceRecord:
        """Return why a signal is not stored."""
        return self._row(placed, Decision.DROP, ("signal:left-out", reason), consent, now)

    def _row(
        self,
        placed: PlacedFeedback,
        decision: Decision,
        reasons: tuple[str, ...],
        consent: ConsentVerdict | None,
        now: datetime,
    ) -> GovernanceRecord:
        """Return a decision on a signal, under its own name: the step has a decision of its own."""
        feedback = placed.feedback
        tenant = feedback.client.tenant_id
        received_at = min(feedback.received_at, now)  # a clock that was ahead dates it later
        retention = judge_retention(self._bundle.retention.spec, _facts(placed), received_at)
        return GovernanceRecord(
            tenant_id=tenant,
            step_id=signal_id(self._namer, tenant, feedback.feedback_id),
            trajectory_id=placed.trajectory_id or "",
            decided_at=now,
            started_at=feedback.received_at,
            policy_hash=self._bundle.content_hash,
            decision=decision.value,
            reasons=reasons,
            subjects=(),
            data_classes=(),
            legal_basis=consent.legal_basis if consent else "none",
            purposes=(),
            consent_reference=None,
            retention_class=retention.retention_class,
            expires_at=retention.expires_at,
            legal_hold=retention.legal_hold,
            redaction_report=json.dumps(RedactionReport().to_json(), sort_keys=True),
        )


def _has_comment(placed: PlacedFeedback) -> bool:
    return bool(placed.feedback.body.get("rationale"))


def _held_by(placed: PlacedFeedback, rows: BatchRows) -> tuple[str, str]:
    """Return the tenant of feedback, and the step or trajectory that it is about; no name for anything else."""
    step = None if placed.step_id is None else rows.follow(placed.step_id)
    return placed.feedback.client.tenant_id, step or placed.trajectory_id or ""


def _facts(placed: PlacedFeedback) -> Facts:
    client = placed.feedback.client
    return Facts(tenant=client.tenant_id, app=client.app_id, environment=client.environment)
