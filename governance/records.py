"""What governance writes down: decisions, the ledger of exchanges, quarantine; and a governed batch."""

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from governance.consent import AWAITS_USER
from trajectory.assembly.result import PlacedPeople
from trajectory.canonical import JsonObject
from trajectory.exchange import Feedback
from trajectory.step import Correction, Harness, Link, Signal, Step, StoredMessage, Tokens


class Decision(StrEnum):
    """What policy decided for one step."""

    ALLOW = "allow"
    REDACT = "redact"
    QUARANTINE = "quarantine"
    DROP = "drop"


class Disposition(StrEnum):
    """Where an exchange ended up; every exchange of the spool has exactly one."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    LEFT_OUT = "left_out"
    """Policy or consent said that nothing of its content may be kept."""
    QUARANTINED = "quarantined"
    CONTROL = "control"
    """Traffic without content (MCP ``initialize``, model listings)."""


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One row of the table ``exchanges``: metadata of each exchange, never content."""

    tenant_id: str
    exchange_id: str
    app_id: str
    environment: str
    key_id: str
    route: str
    mode: str
    dialect: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    http_status: int | None
    request_bytes: int
    response_bytes: int
    disposition: str
    reasons: tuple[str, ...]
    """e.g. ``consent:no-purpose``, ``dedup:identical-retry``; never content."""
    trajectory_id: str | None
    step_id: str | None
    policy_hash: str
    spool_writer: str
    spool_segment: int
    spool_offset: int


@dataclass(frozen=True, slots=True)
class GovernanceRecord:
    """One row per step per decision: who, under which policy, for which purposes, until when."""

    tenant_id: str
    step_id: str
    trajectory_id: str
    decided_at: datetime
    started_at: datetime
    policy_hash: str
    decision: str
    reasons: tuple[str, ...]
    subjects: tuple[str, ...]
    """Keyed pseudonyms of the people concerned."""
    data_classes: tuple[str, ...]
    legal_basis: str
    purposes: tuple[str, ...]
    """Purposes allowed at the time of the decision; views also ask the consents table."""
    consent_reference: str | None
    retention_class: str
    expires_at: datetime | None
    """When retention ends; None means that policy keeps it forever."""
    legal_hold: bool
    redaction_report: str
    """JSON: per entity type counts and places (key paths and offsets), detector versions, keyed hashes of
    parts of names; no values."""
    redaction_counts: dict[str, int] = field(default_factory=dict)

    @property
    def keeps_content(self) -> bool:
        """Whether the step's content may be kept and used."""
        return self.decision in (Decision.ALLOW, Decision.REDACT)

    @property
    def awaits_answer(self) -> bool:
        """Whether the stored step may not be used until the consent service says what its user allows."""
        return self.decision == Decision.QUARANTINE and self._awaited is not None

    @property
    def _awaited(self) -> str | None:
        return next((one for one in self.reasons if one.startswith(AWAITS_USER)), None)

    def until_answered(self) -> "GovernanceRecord":
        """Return the decision that holds while nobody can say what the step's user allows."""
        if not self.keeps_content:
            return self
        reasons = (*self.reasons, AWAITS_USER + self.decision)
        return replace(self, decision=Decision.QUARANTINE.value, reasons=reasons)

    def answered(self) -> "GovernanceRecord":
        """Return the decision that holds with the answer; the same where it awaits none."""
        awaited = self._awaited
        if awaited is None or not self.awaits_answer:
            return self
        reasons = tuple(one for one in self.reasons if one != awaited)
        return replace(self, decision=awaited.removeprefix(AWAITS_USER), reasons=reasons)

    @property
    def counts_from(self) -> datetime:
        """From when on the step counts in its conversation; see :func:`counted_from`."""
        return counted_from(self.started_at, self.decided_at)

    def decided_again(self, now: datetime) -> datetime:
        """Return the moment of a decision in place of this one; the latest holds, and a clock may have been ahead."""
        return max(now, self.decided_at + _TICK)


_TICK = timedelta(microseconds=1)
_FIRST = datetime.min.replace(tzinfo=UTC)


def counted_from(started_at: datetime, decided_at: datetime) -> datetime:
    """Return from when on a call counts in its conversation: since it was made.

    Nobody knows when that was if a clock dated it ahead of the decision; it is taken for the first.
    """
    return started_at if started_at <= decided_at else _FIRST


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """Something that may not go on, with the reason; its content stays redacted or is not kept."""

    tenant_id: str
    quarantine_id: str
    exchange_id: str
    trajectory_id: str | None
    step_id: str | None
    started_at: datetime
    recorded_at: datetime
    stage: str
    """read | redact | quality | policy"""
    reason: str
    """Fixed words, never content."""
    detail: str
    """JSON with counts and field names, never values."""
    policy_hash: str
    status: str = "held"
    """held | released | dropped"""
    part_of: str | None = None
    """The exchange in the spool that brought the call with others; None where it came alone."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An entry of the hash-chained audit log."""

    sequence: int
    recorded_at: datetime
    actor: str
    action: str
    subject: str
    """What it was done to: a policy hash, a model version, a keyed pseudonym."""
    detail: str
    """JSON, no personal data."""
    previous_hash: str
    entry_hash: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What becomes of a stored row that holds what was told later to be somebody's name.

    The row keeps its place and its name; what it held goes from the table and its history.
    """

    tenant_id: str
    table: str
    """messages, harnesses, steps, signals; or tokens, whose row is removed."""
    name: str
    """The row's id in its table."""
    event_date: date
    values: JsonObject = field(repr=False)
    """New values by column."""


@dataclass(frozen=True, slots=True)
class HeldFeedback:
    """Feedback on what quarantine holds: it waits there, and is judged with the call."""

    feedback: Feedback = field(repr=False)
    calls: tuple[tuple[str, str], ...]
    """The steps of the held calls that it is about, each with the exchange that is kept of it; an empty name
    stands for a call that was released and is not judged yet."""


@dataclass(frozen=True, slots=True)
class GovernedBatch:
    """All rows that one batch adds to the lake; written as one consistent whole."""

    exchanges: tuple[LedgerRecord, ...] = ()
    messages: tuple[StoredMessage, ...] = ()
    steps: tuple[Step, ...] = ()
    tokens: tuple[Tokens, ...] = ()
    signals: tuple[Signal, ...] = ()
    links: tuple[Link, ...] = ()
    harnesses: tuple[Harness, ...] = ()
    governance: tuple[GovernanceRecord, ...] = ()
    quarantine: tuple[QuarantineRecord, ...] = ()
    corrections: tuple[Correction, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    """What changes in stored rows before these are added."""
    late_decisions: tuple[GovernanceRecord, ...] = ()
    """Decisions that say whom those rows name; added before they change."""
    awaited: tuple[PlacedPeople, ...] = ()
    """Whom stored steps turned out to be of, where nobody could be asked about them yet."""
    answered: tuple[tuple[str, str], ...] = ()
    """Tenants and steps that wait for no such answer any more."""
    feedback_held: tuple[HeldFeedback, ...] = ()
    """No row: it waits with the calls that it is about."""
