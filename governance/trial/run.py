"""Running a bundle's own test cases through the real governor."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from governance.consent import EVERY_SUBJECT, ConsentEntry, MemoryConsents
from governance.governor import Governor
from governance.policy.documents import PolicyBundle
from governance.quality import QualityGate, RowGate
from governance.records import GovernedBatch
from governance.redact.pseudonym import subject_ids
from governance.redact.trajectory import CallRedactor
from governance.stored_content import MemoryKnownContent
from governance.trial.build import assembly_of
from governance.trial.cases import (
    CaseCall,
    ExpectedOutcome,
    ExpectedTexts,
    PlacedCase,
    load_cases,
)

TRIAL_KEY = b"headrace policy trial: no secret"
TRIAL_MOMENT = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


class WireTexts(NamedTuple):
    """What goes over the wire, as JSON."""

    sent: str
    """To the provider."""
    told: str
    """To the client."""


class WireTrial(Protocol):
    """Says what goes over the wire where a policy puts surrogates into requests."""

    def texts(self, given: CaseCall) -> WireTexts:
        """Return what the provider gets of a case, and what the client is told."""
        ...


class CallTrial(Protocol):
    """Says what becomes of tool calls where a policy has rules on them."""

    def rulings(self, given: CaseCall) -> Mapping[str, str]:
        """Return the decision about each tool call of a case, by the tool's name."""
        ...


type RedactorFactory = Callable[[PolicyBundle, bytes], CallRedactor]
"""Builds the redactor of a bundle with a pseudonym key."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case went."""

    name: str
    file: str
    line: int
    problems: tuple[str, ...]
    """One line per expectation that was not met; empty when all were."""

    @property
    def passed(self) -> bool:
        """Whether the policy did what the case expects."""
        return not self.problems


def run_policy_tests(
    bundle: PolicyBundle,
    redactor_factory: RedactorFactory,
    *,
    wire: WireTrial | None = None,
    calls: CallTrial | None = None,
    gate: QualityGate | None = None,
) -> list[CaseResult]:
    """Run the cases kept beside a bundle, each through a governor of its own.

    Args:
        bundle: the policy under test.
        redactor_factory: builds its redactor; called once.
        wire: says what its ``Redaction.inline`` makes of a call; cases that expect something of that
            fail without.
        calls: says what its rules of kind Action make of tool calls, likewise.
        gate: the quality gate; without one, the same expectations in plain Python.

    Raises:
        PolicyError: a case file is wrong.
    """
    cases = load_cases(bundle.path)
    if not cases:
        return []
    redactor = redactor_factory(bundle, TRIAL_KEY)
    gate = gate or RowGate(bundle.quality.spec)
    return [_run(bundle, redactor, gate, (wire, calls), placed) for placed in cases]


def judge_given(
    bundle: PolicyBundle, redactor: CallRedactor, gate: QualityGate, given: CaseCall
) -> GovernedBatch:
    """Return what a bundle makes of the calls of a case."""
    governor = Governor(
        bundle,
        redactor,
        message_key=TRIAL_KEY,
        pseudonym_key=TRIAL_KEY,
        known=MemoryKnownContent(),
        consents=consents_of(given),
        clock=lambda: TRIAL_MOMENT,
        gate=gate,
    )
    return governor.judge(assembly_of(given, TRIAL_MOMENT))


def consents_of(given: CaseCall) -> MemoryConsents:
    """Return the registry of a case."""
    registry = MemoryConsents()
    for entry in given.consents:
        subjects: tuple[str, ...] = (EVERY_SUBJECT,)
        if entry.subject != EVERY_SUBJECT:
            subjects = subject_ids(TRIAL_KEY, given.tenant, entry.subject)
        for subject in subjects:
            registry.add(
                ConsentEntry(
                    given.tenant, subject, entry.purpose, entry.granted, recorded_at=TRIAL_MOMENT
                )
            )
    return registry


def _run(
    bundle: PolicyBundle,
    redactor: CallRedactor,
    gate: QualityGate,
    trials: tuple[WireTrial | None, CallTrial | None],
    placed: PlacedCase,
) -> CaseResult:
    wire, calls = trials
    given, expect = placed.case.given, placed.case.expect
    batch = judge_given(bundle, redactor, gate, given)
    problems = [*_problems(expect, batch)]
    if expect.sent is not None or expect.told is not None:
        if wire is None:
            problems.append("sent, told: not tried here; `headrace policy test` does")
        else:
            sent, told = wire.texts(given)
            problems += _misplaced("sent", expect.sent, sent)
            problems += _misplaced("told", expect.told, told)
    if expect.actions is not None:
        problems += _misjudged(expect.actions, given, calls)
    return CaseResult(placed.case.name, placed.file, placed.line, tuple(problems))


def _misjudged(
    expect: Mapping[str, str], given: CaseCall, calls: CallTrial | None
) -> Iterable[str]:
    """Yield which tool calls are judged otherwise than a case expects."""
    if calls is None:
        yield "actions: not tried here; `headrace policy test` does"
        return
    told = calls.rulings(given)
    for name, wanted in expect.items():
        if told.get(name) != wanted:
            yield f"actions.{name}: expected {wanted}, got {told.get(name, 'no such call')}"


def _misplaced(name: str, expect: ExpectedTexts | None, text: str) -> Iterable[str]:
    """Yield which texts are where they must not be, and which are not where they must be."""
    text = text.replace('\\"', '"')
    for number, one in enumerate(() if expect is None else expect.absent):
        if one in text:
            yield f"{name}.absent: text {number + 1} is there"
    for number, one in enumerate(() if expect is None else expect.present):
        if one not in text:
            yield f"{name}.present: text {number + 1} is not there"


_NAMES = re.compile(r"\bb2:[0-9a-f]{40}\b|\bsubject_[0-9a-f]{32}\b|\b[0-9a-f]{32}\b")
"""Names made of digits by chance: no text of a case is looked for in them."""


def _problems(expect: ExpectedOutcome, batch: GovernedBatch) -> Iterable[str]:
    """Yield what is not as expected; says what was decided, never what was written."""
    for name, wanted, got in _compared(expect, batch):
        if wanted is not None and wanted != got:
            yield f"{name}: expected {_shown(wanted)}, got {_shown(got)}"
    reasons = {reason for line in batch.exchanges for reason in line.reasons}
    reasons |= {reason for row in batch.governance for reason in row.reasons}
    for reason in expect.reasons:
        if reason not in reasons:
            yield f"reasons: expected {reason}, got {', '.join(sorted(reasons)) or 'none'}"
    stored = json.dumps(asdict(batch), default=str, ensure_ascii=False)
    stored = _NAMES.sub("", stored.replace('\\"', '"'))
    for number, text in enumerate(expect.absent):
        if text in stored:
            yield f"absent: text {number + 1} is stored"
    for number, text in enumerate(expect.present):
        if text not in stored:
            yield f"present: text {number + 1} is not stored"


def _compared(
    expect: ExpectedOutcome, batch: GovernedBatch
) -> Iterable[tuple[str, object, object]]:
    """Yield name, expected and actual value of all single facts."""
    line = batch.exchanges[-1]
    decided = batch.governance[-1] if batch.governance else None
    days = None
    if decided is not None and decided.expires_at is not None:
        days = (decided.expires_at - decided.started_at).days
    yield "disposition", expect.disposition, line.disposition
    counted = Counter(row.disposition for row in batch.exchanges)
    yield "dispositions", expect.dispositions, dict(counted)
    yield "decision", expect.decision, decided.decision if decided else None
    yield "purposes", expect.purposes, decided.purposes if decided else ()
    yield "quarantine", expect.quarantine, batch.quarantine[-1].reason if batch.quarantine else ""
    yield "legal_basis", expect.legal_basis, decided.legal_basis if decided else None
    yield "retention_class", expect.retention_class, decided.retention_class if decided else None
    yield "expires_in_days", expect.expires_in_days, days
    yield "legal_hold", expect.legal_hold, decided.legal_hold if decided else None
    yield "data_classes", expect.data_classes, decided.data_classes if decided else ()
    yield "entities", expect.entities, decided.redaction_counts if decided else {}
    yield "tokens", expect.tokens, batch.tokens[-1].token_fidelity if batch.tokens else "none"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {count}" for key, count in sorted(value.items())) or "none"
    return str(value)
