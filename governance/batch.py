"""The rows of one batch as they come together, and where each exchange ended up."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from governance.judged import Judged, found_in
from governance.records import (
    Decision,
    Disposition,
    GovernanceRecord,
    GovernedBatch,
    LedgerRecord,
    QuarantineRecord,
    Rewrite,
)
from governance.redact.report import RedactionReport
from governance.rows import Draft
from governance.verdicts import Clerk
from governance.vocabulary import reason_word
from trajectory.call import Call
from trajectory.placement import PlacedCall
from trajectory.step import Correction, Harness, Link, Signal, Step, StoredMessage, Tokens

NEAR_DUPLICATE = "dedup:near-duplicate"


@dataclass(slots=True)
class BatchRows:
    """Collects rows; each of its methods gives one exchange its one line in the ledger."""

    clerk: Clerk
    exchanges: list[LedgerRecord] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)
    governance: list[GovernanceRecord] = field(default_factory=list)
    quarantine: list[QuarantineRecord] = field(default_factory=list)
    messages: list[StoredMessage] = field(default_factory=list)
    harnesses: list[Harness] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    late_decisions: list[GovernanceRecord] = field(default_factory=list)
    not_stored: set[str] = field(default_factory=set)
    """Steps of this batch that are not in the lake: neither may be what hangs on them."""
    left_out_trajectories: set[str] = field(default_factory=set)
    """Trajectories of which policy left out a step of this batch."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Repeated step → the step that it repeats."""

    def follow(self, step_id: str) -> str:
        """Return the step under which the content of ``step_id`` is stored."""
        for _ in range(len(self.replaced)):
            if step_id not in self.replaced:
                break
            step_id = self.replaced[step_id]
        return step_id

    def control(self, call: Call, reason: str, placed: PlacedCall | None = None) -> None:
        """Write down an exchange without content."""
        self._line(call, Disposition.CONTROL, (reason,), placed)
        if placed is not None:
            self.not_stored.add(placed.step_id)

    def hold(self, call: Call, stage: str, reason: str, placed: PlacedCall | None = None) -> None:
        """Hold back a call that cannot be judged; nothing of its content is kept."""
        word = reason_word(reason)
        self._line(call, Disposition.QUARANTINED, (word,), placed)
        self.quarantine.append(self.clerk.quarantine(call, stage, word, placed))
        if placed is not None:
            self.not_stored.add(placed.step_id)

    def hold_judged(self, one: Judged, stage: str, reasons: Iterable[str]) -> None:
        """Hold back an admitted call."""
        why = tuple(reasons)
        call, placed = one.placed.call, one.placed
        self._line(call, Disposition.QUARANTINED, why, placed)
        row = self.clerk.quarantine(call, stage, why[0], placed, reasons=[*why])
        self.quarantine.append(row)
        self._decide(one, Decision.QUARANTINE, (*one.admission.reasons, *why))
        self.not_stored.add(one.step_id)

    def leave_out(self, one: Judged) -> None:
        """Keep nothing of a call but this line and the decision."""
        self._line(one.placed.call, Disposition.LEFT_OUT, one.admission.refusals, one.placed)
        self._decide(one, Decision.DROP, one.admission.reasons)
        self.not_stored.add(one.step_id)
        self.left_out_trajectories.add(one.placed.trajectory_id)

    def leave_out_unread(self, call: Call, reasons: Iterable[str]) -> None:
        """Keep nothing but this line of a call that could not be read."""
        self._line(call, Disposition.LEFT_OUT, reasons, None)

    def repeat(self, one: Judged, reason: str) -> None:
        """Leave out a call that says nothing new."""
        self._line(one.placed.call, Disposition.DUPLICATE, (reason,), one.placed)
        if one.admission.consent.withheld:  # which the conversation has to obey all the same
            self._decide(one, Decision.DROP, (*one.admission.reasons, reason))

    def near(self, one: Judged, better: str) -> None:
        """Leave out a call that says almost the same as a better one; that one's name is kept."""
        self._line(one.placed.call, Disposition.DUPLICATE, (NEAR_DUPLICATE,), one.placed)
        self._decide(one, Decision.DROP, (*one.admission.reasons, *_near(better)))
        self.not_stored.add(one.step_id)

    def beaten(self, row: GovernanceRecord, better: str) -> None:
        """Decide anew on a stored step: a better one stands for it from now on."""
        report = json.dumps(RedactionReport().to_json(), sort_keys=True)
        decided = replace(
            row,
            decided_at=self.clerk.now,
            policy_hash=self.clerk.policy_hash,
            decision=Decision.DROP.value,
            reasons=(
                *(name for name in row.reasons if not name.startswith("pii:")),
                *_near(better),
            ),
            redaction_report=report,
            redaction_counts={},
        )
        self.governance.append(decided)

    def store(self, one: Judged, draft: Draft) -> None:
        """Store a step with its tokens and the decision; messages and harnesses come as a set."""
        keep = draft.step.context_keep
        found = found_in(draft.clean, draft.new, first=keep)
        report = found.report
        counts = [f"pii:{entity}×{count}" for entity, count in sorted(report.counts.items())]
        self._line(one.placed.call, Disposition.STORED, (), one.placed)
        self.steps.append(draft.step)
        self.tokens += [draft.tokens] if draft.tokens else []
        self.governance.append(
            self.clerk.governance(
                one.placed,
                one.admission,
                Decision.REDACT if report.changed else Decision.ALLOW,
                (*one.admission.reasons, *counts),
                report=report,
                subjects=(
                    *([one.end_user] if one.end_user else []),
                    *one.named,
                    *found.subjects,
                ),
            )
        )

    def finish(self) -> GovernedBatch:
        """Return all rows as one value."""
        return GovernedBatch(
            exchanges=tuple(self.exchanges),
            messages=tuple(self.messages),
            steps=tuple(self.steps),
            tokens=tuple(self.tokens),
            signals=tuple(self.signals),
            links=tuple(self.links),
            harnesses=tuple(self.harnesses),
            governance=tuple(self.governance),
            quarantine=tuple(self.quarantine),
            corrections=tuple(self.corrections),
            rewrites=tuple(self.rewrites),
            late_decisions=tuple(self.late_decisions),
        )

    def _line(
        self,
        call: Call,
        disposition: Disposition,
        reasons: Iterable[str],
        placed: PlacedCall | None,
    ) -> None:
        self.exchanges.append(self.clerk.ledger(call, disposition, reasons, placed))

    def _decide(self, one: Judged, decision: Decision, reasons: Iterable[str]) -> None:
        row = self.clerk.governance(one.placed, one.admission, decision, reasons)
        self.governance.append(row)


def _near(better: str) -> tuple[str, str]:
    return (NEAR_DUPLICATE, f"dedup:same-as:{better}")
