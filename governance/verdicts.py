"""What governance writes about calls: ledger, decisions and quarantine, never content."""

import json
from collections.abc import Iterable
from datetime import datetime

from governance.admission import Admission
from governance.data_classes import data_classes
from governance.identifiers import Namer
from governance.records import (
    Decision,
    Disposition,
    GovernanceRecord,
    LedgerRecord,
    QuarantineRecord,
)
from governance.redact.report import RedactionReport
from governance.vocabulary import reason_word
from trajectory.call import Call
from trajectory.placement import PlacedCall


class Clerk:
    """Writes records of one batch under one policy at one moment."""

    def __init__(self, policy_hash: str, now: datetime, namer: Namer) -> None:
        """Write for the policy with this content hash."""
        self.policy_hash = policy_hash
        self.now = now
        self._namer = namer

    def ledger(
        self,
        call: Call,
        disposition: Disposition,
        reasons: Iterable[str],
        placed: PlacedCall | None = None,
    ) -> LedgerRecord:
        """Return the ledger's line for one exchange."""
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

    def governance(
        self,
        placed: PlacedCall,
        admission: Admission,
        decision: Decision,
        reasons: Iterable[str],
        *,
        report: RedactionReport | None = None,
        subjects: Iterable[str] = (),
    ) -> GovernanceRecord:
        """Return the decision on one step."""
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
            subjects=tuple(dict.fromkeys(subjects)) if kept else (),
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

    def quarantine(
        self,
        call: Call,
        stage: str,
        reason: str,
        placed: PlacedCall | None = None,
        **detail: object,
    ) -> QuarantineRecord:
        """Return the quarantine's row for one call; ``detail`` takes counts and field names only."""
        exchange = call.exchange
        tenant = exchange.client.tenant_id
        return QuarantineRecord(
            tenant_id=tenant,
            quarantine_id=self._namer.name(tenant, "quarantine", exchange.exchange_id),
            exchange_id=exchange.exchange_id,
            trajectory_id=placed.trajectory_id if placed else None,
            step_id=placed.step_id if placed else None,
            started_at=exchange.started_at,
            recorded_at=self.now,
            stage=stage,
            reason=reason_word(reason),
            detail=json.dumps(detail, sort_keys=True),
            policy_hash=self.policy_hash,
        )
