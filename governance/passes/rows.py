"""Last pass: the rows of a batch. Each exchange has exactly one row in the ledger."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from governance.data_classes import data_classes
from governance.identifiers import Namer
from governance.passes.calls import Admission, EndedCall, follow, found_in
from governance.passes.select import NEAR_DUPLICATE, SelectedBatch, SelectedCall
from governance.records import (
    Decision,
    Disposition,
    GovernanceRecord,
    LedgerRecord,
    QuarantineRecord,
)
from governance.redact.report import RedactionReport
from governance.stored_content import KnownContent
from governance.vocabulary import reason_word
from trajectory.assembly.approvals import APPROVAL
from trajectory.assembly.effects import SideEffect, replay_class
from trajectory.assembly.result import PlacedCall, PlacedCorrection, PlacedLink
from trajectory.call import Call
from trajectory.step import Correction, Link, LinkTo, Step, Tokens


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a batch's calls, and what became of its steps."""

    exchanges: tuple[LedgerRecord, ...]
    steps: tuple[Step, ...]
    tokens: tuple[Tokens, ...]
    governance: tuple[GovernanceRecord, ...]
    quarantine: tuple[QuarantineRecord, ...]
    not_stored: frozenset[str]
    """Steps of this batch that are not stored; what hangs on one of them is not stored either."""
    left_out_trajectories: frozenset[str]
    """Trajectories that lost a step of this batch to the policy."""
    repeats: Mapping[str, str]
    """Repeated step → the step that it repeats."""
    step_ids: frozenset[str] = field(init=False)
    """The stored steps."""

    def __post_init__(self) -> None:
        """Collect the ids of the steps."""
        object.__setattr__(self, "step_ids", frozenset(step.step_id for step in self.steps))

    def follow(self, step_id: str) -> str:
        """Return the step under which the content of ``step_id`` is stored."""
        return follow(self.repeats, step_id)


class RowWriter:
    """Writes the rows of one batch under one policy at one moment."""

    def __init__(self, policy_hash: str, now: datetime, namer: Namer, known: KnownContent) -> None:
        """Write for the policy with this content hash."""
        self.policy_hash = policy_hash
        self.now = now
        self._namer = namer
        self._known = known

    def rows(self, ended: Sequence[EndedCall], selected: SelectedBatch) -> BatchRows:
        """Return ledger, decisions, quarantine, steps and tokens."""
        placed = [(one, one.placed) for one in ended if one.placed is not None]
        lines = [self._line(one.call, one.placed, one.disposition, one.reasons) for one in ended]
        lines += [
            self._line(one.call.placed.call, one.call.placed, Disposition.STORED, ())
            for one in selected.calls
        ]
        return BatchRows(
            exchanges=tuple(lines),
            steps=tuple(one.draft.step for one in selected.calls),
            tokens=tuple(one.draft.tokens for one in selected.calls if one.draft.tokens),
            governance=(
                *(row for one in ended if (row := self._decision_on_ended(one)) is not None),
                *(self._decision_on_step(one) for one in selected.calls),
                *(self._decision_on_beaten(row, better) for row, better in selected.beaten),
            ),
            quarantine=tuple(
                self._quarantine(one) for one in ended if one.disposition is Disposition.QUARANTINED
            ),
            not_stored=frozenset(place.step_id for one, place in placed if one.repeats is None),
            left_out_trajectories=frozenset(
                place.trajectory_id
                for one, place in placed
                if one.disposition is Disposition.LEFT_OUT
            ),
            repeats={
                place.step_id: one.repeats for one, place in placed if one.repeats is not None
            },
        )

    def links(self, links: Sequence[PlacedLink], rows: BatchRows) -> tuple[Link, ...]:
        """Return the links between two steps that are both stored: different ones, but for approvals."""
        ends = [(rows.follow(one.from_step_id), rows.follow(one.to_step_id)) for one in links]
        stored = self._stored(
            rows, [(one.tenant_id, both) for one, both in zip(links, ends, strict=True)]
        )
        return tuple(
            Link(
                tenant_id=one.tenant_id,
                kind=one.kind,
                from_step_id=start,
                to_step_id=end,
                trajectory_id=one.trajectory_id,
                recorded_at=one.recorded_at,
                key_source=one.key_source,
            )
            for one, (start, end) in zip(links, ends, strict=True)
            if start in stored and end in stored and (start != end or one.kind == APPROVAL)
        )

    def corrections(
        self, corrections: Sequence[PlacedCorrection], rows: BatchRows
    ) -> tuple[Correction, ...]:
        """Return the corrections of stored steps, which point at nothing but stored steps."""
        named = [(one.tenant_id, [*_named_by(one, rows)]) for one in corrections]
        stored = self._stored(rows, named)
        return tuple(
            _correction(one, rows, stored, self.now) for one in corrections if one.step_id in stored
        )

    def _stored(
        self, rows: BatchRows, named: Iterable[tuple[str, Iterable[str]]]
    ) -> frozenset[str]:
        """Return which of these steps are stored, in this batch or before."""
        asked: dict[str, set[str]] = defaultdict(set)
        for tenant, steps in named:
            asked[tenant].update(steps)
        before = (
            self._known.known_steps(tenant, steps - rows.step_ids - rows.not_stored)
            for tenant, steps in asked.items()
        )
        return rows.step_ids.union(*before)

    def _line(
        self,
        call: Call,
        placed: PlacedCall | None,
        disposition: Disposition,
        reasons: Iterable[str],
    ) -> LedgerRecord:
        exchange, client = call.exchange, call.exchange.client
        return LedgerRecord(
            tenant_id=client.tenant_id,
            exchange_id=exchange.exchange_id,
            app_id=client.app_id,
            environment=client.environment,
            key_id=client.key_id,
            route=exchange.route,
            mode=exchange.mode,
            dialect=call.dialect,
            started_at=exchange.started_at,
            ended_at=exchange.ended_at,
            outcome=exchange.outcome.value,
            http_status=exchange.response.status if exchange.response else None,
            request_bytes=len(exchange.request.body),
            response_bytes=len(exchange.response.body) if exchange.response else 0,
            disposition=disposition.value,
            reasons=tuple(dict.fromkeys(reasons)),
            trajectory_id=placed.trajectory_id if placed else None,
            step_id=placed.step_id if placed else None,
            policy_hash=self.policy_hash,
            spool_writer=exchange.position.writer,
            spool_segment=exchange.position.segment,
            spool_offset=exchange.position.offset,
        )

    def _quarantine(self, one: EndedCall) -> QuarantineRecord:
        """Return the quarantine's row for a call; it takes fixed words and field names only."""
        exchange, placed = one.call.exchange, one.placed
        tenant = exchange.client.tenant_id
        detail = {} if one.admission is None else {"reasons": [*one.reasons]}
        if one.awaits:
            detail["awaits"] = [*one.awaits]
        return QuarantineRecord(
            tenant_id=tenant,
            quarantine_id=self._namer.name(tenant, "quarantine", exchange.exchange_id),
            exchange_id=exchange.exchange_id,
            trajectory_id=placed.trajectory_id if placed else None,
            step_id=placed.step_id if placed else None,
            started_at=exchange.started_at,
            recorded_at=self.now,
            stage=one.stage,
            reason=reason_word(one.reasons[0]),
            detail=json.dumps(detail, sort_keys=True),
            policy_hash=self.policy_hash,
            part_of=exchange.part_of or None,
        )

    def _decision_on_ended(self, one: EndedCall) -> GovernanceRecord | None:
        """Return the decision on a call that adds no step; None where none was taken."""
        if one.placed is None or one.admission is None:
            return None
        reasons = one.admission.reasons
        match one.disposition:
            case Disposition.QUARANTINED:
                reasons = (*reasons, *one.reasons)
                return self._decision(
                    one.placed, one.admission, Decision.QUARANTINE, reasons, subjects=one.subjects
                )
            case Disposition.LEFT_OUT:
                return self._decision(one.placed, one.admission, Decision.DROP, reasons)
        reasons = (*reasons, *one.reasons)
        if one.near_to is not None:
            reasons = (*reasons, _same_as(one.near_to))
        elif not one.admission.consent.withheld:
            return None  # a refused purpose is noted even so: the whole conversation has to obey it
        return self._decision(one.placed, one.admission, Decision.DROP, reasons)

    def _decision_on_step(self, one: SelectedCall) -> GovernanceRecord:
        call, draft = one.call, one.draft
        found = found_in(draft.clean, draft.new, first=draft.step.context_keep)
        report = found.report
        counts = [f"pii:{entity}×{count}" for entity, count in sorted(report.counts.items())]
        return self._decision(
            call.placed,
            call.admission,
            Decision.REDACT if report.changed else Decision.ALLOW,
            (*call.admission.reasons, *counts),
            report=report,
            subjects=(
                *([call.end_user] if call.end_user else []),
                *call.named,
                *found.subjects,
                *one.known_people,
            ),
        )

    def _decision_on_beaten(self, row: GovernanceRecord, better: str) -> GovernanceRecord:
        """Decide anew on a stored step: a better one stands for it from now on."""
        reasons = (name for name in row.reasons if not name.startswith("pii:"))
        return replace(
            row,
            decided_at=row.decided_again(self.now),
            policy_hash=self.policy_hash,
            decision=Decision.DROP.value,
            reasons=(*reasons, NEAR_DUPLICATE, _same_as(better)),
            redaction_report=json.dumps(RedactionReport().to_json(), sort_keys=True),
            redaction_counts={},
        )

    def _decision(
        self,
        placed: PlacedCall,
        admission: Admission,
        decision: Decision,
        reasons: Iterable[str],
        *,
        report: RedactionReport | None = None,
        subjects: Iterable[str] = (),
    ) -> GovernanceRecord:
        report = report or RedactionReport()
        kept = decision in (Decision.ALLOW, Decision.REDACT)
        exchange = placed.call.exchange
        return GovernanceRecord(
            tenant_id=exchange.client.tenant_id,
            step_id=placed.step_id,
            trajectory_id=placed.trajectory_id,
            decided_at=self.now,
            started_at=exchange.started_at,
            policy_hash=self.policy_hash,
            decision=decision.value,
            reasons=tuple(dict.fromkeys(reasons)),
            subjects=tuple(dict.fromkeys(subjects)),
            data_classes=data_classes(report.counts),
            legal_basis=admission.consent.legal_basis,
            purposes=admission.consent.purposes if kept else (),
            consent_reference=admission.consent.reference,
            retention_class=admission.retention.retention_class,
            expires_at=admission.retention.expires_at,
            legal_hold=admission.retention.legal_hold,
            redaction_report=json.dumps(report.to_json(), sort_keys=True),
            redaction_counts=dict(sorted(report.counts.items())),
        )


def _same_as(step_id: str) -> str:
    return f"dedup:same-as:{step_id}"


def _named_by(one: PlacedCorrection, rows: BatchRows) -> Iterable[str]:
    """Yield the steps that a correction names."""
    yield one.step_id
    for step in (one.parent_step_id, one.retry_of, *(link.from_step_id for link in one.links)):
        if step is not None:
            yield rows.follow(step)


def _correction(
    one: PlacedCorrection, rows: BatchRows, stored: Collection[str], now: datetime
) -> Correction:
    parent = None if one.parent_step_id is None else rows.follow(one.parent_step_id)
    is_held = parent is None or parent in stored
    links = [(rows.follow(link.from_step_id), link) for link in one.links]
    return Correction(
        tenant_id=one.tenant_id,
        step_id=one.step_id,
        trajectory_id=one.trajectory_id,
        stored_trajectory_id=one.stored_trajectory_id,
        began=one.began,
        started_at=one.started_at,
        recorded_at=now,
        parent_step_id=parent if is_held else None,
        step_index=one.step_index,
        branch=one.branch,
        role_in_graph=reason_word(one.role_in_graph),
        key_source=reason_word(one.key_source),
        # What the parent's conversation would hold is not there when policy left the parent out.
        context_keep=one.context_keep if is_held and one.context_skip is not None else None,
        context_skip=one.context_skip or 0,
        results_skip=max(one.results_skip, 0),
        retry_of=one.retry_of,
        duplicate_of=one.duplicate_of,
        session_hint=one.session_hint,
        group_id=one.group_id,
        side_effect=one.side_effect,
        replay_class=None if one.side_effect is None else replay_class(SideEffect(one.side_effect)),
        links=tuple(
            LinkTo(link.kind, start, link.trajectory_id, link.recorded_at, link.key_source)
            for start, link in links
            if start in stored and (start != one.step_id or link.kind == APPROVAL)
        ),
    )
