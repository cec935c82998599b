"""Feedback judged: signals of those whose steps may be kept; the rest is counted as left out."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from governance.batch import BatchRows
from governance.consent import ConsentLookup, ConsentQuestion, ConsentVerdict, judge_consent
from governance.data_classes import data_classes
from governance.known import KnownContent, told_by
from governance.naming import Namer
from governance.policy.capture import CaptureField, CaptureLevel
from governance.policy.documents import PolicyBundle
from governance.policy.selector import Facts
from governance.records import Decision, GovernanceRecord
from governance.redact.values import RedactionReport, Told
from governance.redacting import Redactor
from governance.retention import judge_retention
from governance.signals import RedactedSignal, signal_id, signal_of
from trajectory.placement import PlacedFeedback


class FeedbackJudge:
    """Turns feedback into signals; what is left out leaves a decision without content."""

    def __init__(
        self,
        bundle: PolicyBundle,
        redactor: Redactor,
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

    def judge(self, feedback: Sequence[PlacedFeedback], rows: BatchRows, now: datetime) -> None:
        """Add the signals of a batch, or the reasons why they are left out."""
        stored = self._stored_targets(feedback, rows)
        trajectories = self._stored_trajectories(feedback, rows)
        told = self._told(feedback, rows)
        for placed in feedback:
            try:
                reason, consent = self._refusal(placed, rows, stored, trajectories)
                if reason is None:
                    signal, report = self._signal(placed, rows, told)
                    rows.signals.append(signal)
                    # Without a trajectory that takes it along, its end is decided here.
                    if report.changed or signal.trajectory_id is None:
                        rows.governance.append(self._kept(placed, rows, report, consent, now))
                    continue
            except Exception as error:  # noqa: BLE001 (fail closed: leave the feedback out)
                reason, consent = f"error:{type(error).__name__}", None
            rows.governance.append(self._left_out(placed, rows, reason, consent, now))

    def _stored_targets(self, feedback: Sequence[PlacedFeedback], rows: BatchRows) -> set[str]:
        here = {step.step_id for step in rows.steps}
        asked: dict[str, set[str]] = defaultdict(set)
        for placed in feedback:
            if placed.step_id is not None and rows.follow(placed.step_id) not in here:
                asked[placed.feedback.client.tenant_id].add(rows.follow(placed.step_id))
        for tenant, steps in asked.items():
            here |= self._known.known_steps(tenant, steps - rows.not_stored)
        return here

    def _stored_trajectories(
        self, feedback: Sequence[PlacedFeedback], rows: BatchRows
    ) -> set[tuple[str, str]]:
        """Return those trajectories, with their tenants, of which a step is stored."""
        here = {(one.tenant_id, one.trajectory_id) for one in rows.steps}
        here |= {(one.tenant_id, one.trajectory_id) for one in rows.corrections}
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
        question = ConsentQuestion(facts, client.purposes, headers=(), end_user=None)
        consent = judge_consent(self._bundle.consent.spec, self._consents, question)
        capture = self._bundle.capture.spec
        levels = {capture.level, *(rule.level for rule in capture.matching(facts))}
        if not consent.purposes:
            return "consent:no-purpose", consent
        if CaptureLevel.METADATA in levels:
            return "capture:metadata-only", consent
        if placed.step_id is not None and rows.follow(placed.step_id) not in stored:
            return "signal:step-not-stored", consent
        kept_here = any(step.trajectory_id == placed.trajectory_id for step in rows.steps)
        if placed.trajectory_id in rows.left_out_trajectories and not kept_here:
            return "signal:trajectory-left-out", consent
        place = placed.trajectory_id
        if placed.step_id is None and place and (client.tenant_id, place) not in trajectories:
            return "signal:trajectory-not-stored", consent
        return None, consent

    def _told(
        self, feedback: Sequence[PlacedFeedback], rows: BatchRows
    ) -> dict[tuple[str, str], tuple[Told, ...]]:
        """Return parts of names that were found in the trajectories, before or in this batch."""
        asked: dict[str, set[str]] = defaultdict(set)
        for placed in feedback:
            if placed.trajectory_id is not None:
                asked[placed.feedback.client.tenant_id].add(placed.trajectory_id)
        found: dict[tuple[str, str], tuple[Told, ...]] = {}
        for tenant, names in asked.items():
            here = told_by(
                (row.trajectory_id, row.redaction_report)
                for row in rows.governance
                if row.tenant_id == tenant and row.trajectory_id in names
            )
            before = self._known.told(tenant, names)
            for name in names:
                found[tenant, name] = (*before.get(name, ()), *here.get(name, ()))
        return found

    def _signal(
        self,
        placed: PlacedFeedback,
        rows: BatchRows,
        told: Mapping[tuple[str, str], tuple[Told, ...]],
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
            told=told.get((placed.feedback.client.tenant_id, placed.trajectory_id or ""), ()),
            keep_rationale=CaptureField.RATIONALE not in without,
        )

    def _kept(
        self,
        placed: PlacedFeedback,
        rows: BatchRows,
        report: RedactionReport,
        consent: ConsentVerdict | None,
        now: datetime,
    ) -> GovernanceRecord:
        """Return what was redacted in a signal that is stored, and how long it stays."""
        counts = [f"pii:{entity}×{count}" for entity, count in sorted(report.counts.items())]
        decision = Decision.REDACT if report.changed else Decision.ALLOW
        return replace(
            self._row(placed, rows, decision, ("signal:kept", *counts), consent, now),
            purposes=consent.purposes if consent else (),
            data_classes=data_classes(report.counts),
            redaction_report=json.dumps(report.to_json(), sort_keys=True),
            redaction_counts=dict(sorted(report.counts.items())),
        )

    def _left_out(
        self,
        placed: PlacedFeedback,
        rows: BatchRows,
        reason: str,
        consent: ConsentVerdict | None,
        now: datetime,
    ) -> GovernanceRecord:
        """Return why a signal is not stored."""
        return self._row(placed, rows, Decision.DROP, ("signal:left-out", reason), consent, now)

    def _row(
        self,
        placed: PlacedFeedback,
        rows: BatchRows,
        decision: Decision,
        reasons: tuple[str, ...],
        consent: ConsentVerdict | None,
        now: datetime,
    ) -> GovernanceRecord:
        """Return a decision on a signal, under its own name: the step has a decision of its own."""
        feedback = placed.feedback
        tenant = feedback.client.tenant_id
        retention = judge_retention(
            self._bundle.retention.spec, _facts(placed), feedback.received_at
        )
        return GovernanceRecord(
            tenant_id=tenant,
            step_id=signal_id(self._namer, tenant, feedback.feedback_id),
            trajectory_id=placed.trajectory_id or "",
            decided_at=now,
            started_at=feedback.received_at,
            policy_hash=rows.clerk.policy_hash,
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


def _facts(placed: PlacedFeedback) -> Facts:
    client = placed.feedback.client
    return Facts(tenant=client.tenant_id, app=client.app_id, environment=client.environment)
