"""Retention: the class of a call, when it ends, and the holds that stop its end."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from governance.policy.retention import RetentionSpec
from governance.policy.selector import Facts
from governance.records import GovernanceRecord


@dataclass(frozen=True, slots=True)
class RetentionVerdict:
    """How long a call is kept."""

    retention_class: str
    expires_at: datetime | None
    """None: policy keeps it forever."""
    legal_hold: bool
    reasons: tuple[str, ...]

    def expired(self, now: datetime) -> bool:
        """Return whether the call may no longer be kept."""
        return not self.legal_hold and self.expires_at is not None and self.expires_at <= now


def judge_retention(spec: RetentionSpec, facts: Facts, captured_at: datetime) -> RetentionVerdict:
    """Return the class that the first fitting rule names, counted from the moment of capture."""
    rule = spec.rule_for(facts)
    name = rule.class_ if rule else spec.default
    days = spec.classes[name]
    holds = [hold for hold in spec.legal_holds if hold.match.fits(facts)]
    return RetentionVerdict(
        retention_class=name,
        expires_at=None if days == "forever" else captured_at + timedelta(days=days),
        legal_hold=bool(holds),
        reasons=(
            f"retention:{rule.name if rule else 'default'}",
            *(f"legal-hold:{hold.name}" for hold in holds),
        ),
    )


def retention_of(decision: GovernanceRecord) -> RetentionVerdict:
    """Return the verdict that a decision rests on."""
    said = ("retention:", "legal-hold:")
    return RetentionVerdict(
        retention_class=decision.retention_class,
        expires_at=decision.expires_at,
        legal_hold=decision.legal_hold,
        reasons=tuple(reason for reason in decision.reasons if reason.startswith(said)),
    )
