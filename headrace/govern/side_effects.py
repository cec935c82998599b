"""What happens beside each batch: held content is sealed away before, the audit log told after."""

from collections import Counter
from collections.abc import Iterable

from governance.audit import AuditLog
from governance.records import GovernedBatch
from headrace.govern.quarantine_store import HeldContent
from trajectory.exchange import Exchange, SpoolRecord


class Witness:
    """Keeps what quarantine holds back, and writes one audit entry for the decisions of a batch."""

    def __init__(self, held: HeldContent, audit: AuditLog, *, keep_days: float) -> None:
        """Seal into ``held`` for so many days, tell ``audit``."""
        self._held = held
        self._keep_days = keep_days
        self._audit = audit

    def behind(self, batch: int, missing: int) -> None:
        """Write down that batches were done, up to this number, and are not in the lake."""
        self._audit.append(
            actor="governor", action="lake.behind", subject=str(batch), detail={"missing": missing}
        )

    def before(self, records: Iterable[SpoolRecord], governed: GovernedBatch) -> None:
        """Keep the exchanges that are held back, before the spool lets them go."""
        held = {row.exchange_id for row in governed.quarantine}
        if held:
            exchanges = (one for one in records if isinstance(one, Exchange))
            self._held.keep(one for one in exchanges if one.exchange_id in held)

    def tidy(self) -> None:
        """Let go of content that was held long enough."""
        self._held.expire(self._keep_days)

    def after(self, number: int, governed: GovernedBatch) -> None:
        """Write down the decisions of a batch in one entry: counts and the policy's hash."""
        if not (governed.exchanges or governed.governance or governed.signals):
            return
        policies = sorted({row.policy_hash for row in governed.exchanges})
        self._audit.append(
            actor="governor",
            action="decisions.made",
            subject=",".join(policies),
            detail={
                "batch": number,
                "exchanges": dict(Counter(row.disposition for row in governed.exchanges)),
                "decisions": dict(Counter(row.decision for row in governed.governance)),
                "quarantine": dict(Counter(row.reason for row in governed.quarantine)),
                "signals": len(governed.signals),
            },
        )
