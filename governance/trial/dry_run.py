"""What another bundle would have decided about rows that are stored, by rule and count, writing nothing.

It judges what stored rows tell enough about: consent, capture, retention, and quality rules over stored columns.
It also tells what the new redaction would find in stored texts. What cannot be judged is said
(:data:`NOT_JUDGED`): rows hold neither the request's headers nor what redaction took away.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from governance.consent import ConsentLookup, ConsentRequest, judge_consent, withheld_in
from governance.policy.capture import CaptureLevel
from governance.policy.documents import PolicyBundle
from governance.policy.quality import Expectation, PairEqual
from governance.policy.redaction import Operator
from governance.policy.selector import Facts
from governance.quality.facts import StepFacts
from governance.quality.suite import failing_rows
from governance.redact import RedactionScope, Redactor
from governance.retention import judge_retention

NOT_JUDGED = (
    "what headers of a request took away (assumed to be as it was when the row was written)",
    "selectors by agent, provider and region (their facts are not stored; such rules are left out)",
    "end users' grants (only their absence or withdrawal as the registry has it now)",
    "what redaction took away: a bundle that keeps more cannot bring it back",
    "repetitions that were left out, and steps held before redaction",
)
"""What stored rows cannot tell."""

STORED = frozenset(
    {
        "step_id", "tenant_id", "kind", "role_in_graph", "dialect", "key_source", "outcome",
        "http_status", "step_index", "finished", "tool_calls", "invalid_tool_arguments",
        "completion_tokens", "logprobs", "highest_logprob", "token_code", "latency_ms",
        "time_reversed",
    }
)  # fmt: skip
"""Columns of the gate's projection that stored rows can fill."""


@dataclass(frozen=True, slots=True)
class StoredStep:
    """What the lake knows of one stored step."""

    facts: Facts
    quality: StepFacts
    purposes: tuple[str, ...]
    reasons: tuple[str, ...]
    subjects: tuple[str, ...]
    key_purposes: tuple[str, ...]
    """What the client key grants now."""
    captured_at: datetime
    retention_class: str
    found: Mapping[str, int] = field(default_factory=dict)
    """Entity types and how often redaction found them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that another bundle would have decided otherwise."""

    kind: str
    rule: str
    change: str
    rows: int


class DryRun:
    """Judges stored rows by a bundle; gather with :meth:`step`, :meth:`held` and :meth:`text`."""

    def __init__(
        self,
        bundle: PolicyBundle,
        redactor: Redactor,
        consents: ConsentLookup,
        *,
        now: datetime,
    ) -> None:
        """Judge by ``bundle`` at ``now``."""
        self._bundle = bundle
        self._redactor = redactor
        self._consents = consents
        self._now = now
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._quality: list[StepFacts] = []
        self.steps = 0
        self.texts = 0

    def step(self, step: StoredStep) -> None:
        """Judge one stored step."""
        self.steps += 1
        self._quality.append(step.quality)
        self._judge_consent(step)
        self._judge_capture(step)
        verdict = judge_retention(self._bundle.retention.spec, step.facts, step.captured_at)
        rule = verdict.reasons[0].removeprefix("retention:")
        if verdict.expired(self._now):
            self._count("Retention", rule, "would have ended by now: not stored")
        elif verdict.retention_class != step.retention_class:
            self._count("Retention", rule, f"{step.retention_class} → {verdict.retention_class}")
        for hold in verdict.reasons[1:]:
            self._count("Retention", hold, "under legal hold")
        operators = self._bundle.redaction.spec.operators()
        for entity in step.found:
            how = operators.get(entity)
            if how is None or how is Operator.KEEP:
                self._count("Redaction", entity, "would be stored in clear")

    def held(self, reason: str) -> None:
        """Judge one case that quarantine holds."""
        kind, _, name = reason.partition(":")
        known = {expectation.name for expectation in self._bundle.quality.spec.expectations}
        if kind == "quality" and name not in known:
            self._count("Quality", name, "would no longer be asked: held → judged by the rest")

    def text(
        self, tenant_id: str, trajectory_id: str, stored: str, name: str | None = None
    ) -> None:
        """Look for what the bundle's redaction finds in a stored message's parts and name."""
        self.texts += 1
        scope = RedactionScope(tenant_id, trajectory_id)
        try:
            value = json.loads(stored)
        except ValueError:
            value = stored
        if name is not None:
            value = {"parts": value, "participant": {"name": name}}
        report = self._redactor.redact_json(value, scope=scope).report
        for entity, count in report.counts.items():
            self._counts["Redaction", entity, "found in what is stored (values)"] += count

    def changes(self) -> list[Change]:
        """Return what would change, the most frequent first within each kind."""
        for expectation in self._bundle.quality.spec.expectations:
            if _columns(expectation) <= STORED:
                failing = len(failing_rows(expectation, self._quality))
                self._counts["Quality", expectation.name, "stored → held"] += failing
        found = [Change(*key, rows) for key, rows in self._counts.items() if rows]
        return sorted(found, key=lambda change: (change.kind, -change.rows, change.rule))

    def not_judged(self) -> tuple[str, ...]:
        """Return what stored rows cannot tell, the expectations that were left out included."""
        skipped = [
            expectation.name
            for expectation in self._bundle.quality.spec.expectations
            if not _columns(expectation) <= STORED
        ]
        return (*NOT_JUDGED, *([f"expectations {', '.join(skipped)}"] if skipped else []))

    def _judge_consent(self, step: StoredStep) -> None:
        verdict = judge_consent(
            self._bundle.consent.spec,
            self._consents,
            ConsentRequest(
                step.facts,
                step.key_purposes,
                headers=(),
                end_user=None,
                subjects=step.subjects,
                withheld=withheld_in(step.reasons),
            ),
        )
        said = set(verdict.purposes)
        if any("header" in reason or "privacy-control" in reason for reason in step.reasons):
            said &= set(step.purposes)
        before = set(step.purposes)
        why = next(iter(verdict.refusals), None) or next(iter(verdict.reasons), "consent")
        rule = why.removeprefix("consent:")
        for purpose in sorted(before - said):
            self._count("Consent", rule, f"loses {purpose}")
        for purpose in sorted(said - before):
            self._count("Consent", rule, f"gains {purpose}")
        if before and not said:
            self._count("Consent", rule, "stored → left out")

    def _judge_capture(self, step: StoredStep) -> None:
        spec = self._bundle.capture.spec
        rules = spec.matching(step.facts)
        if spec.level is CaptureLevel.METADATA:
            self._count("Capture", "level", "stored → ledger line only")
        for rule in rules:
            if rule.level is CaptureLevel.METADATA:
                self._count("Capture", rule.name, "stored → ledger line only")
        without = [(name, "without") for name in spec.without]
        without += [(name, rule.name) for rule in rules for name in rule.without]
        for name, rule_name in without:
            self._count("Capture", rule_name, f"without {name.value}")

    def _count(self, kind: str, rule: str, change: str) -> None:
        self._counts[kind, rule, change] += 1


def step_facts_of(row: Mapping[str, Any]) -> StepFacts:
    """Return the gate's projection of a stored row; what is not stored is null."""
    known = {name: row.get(name) for name in STORED if name in row}
    blank: dict[str, Any] = {one.name: None for one in fields(StepFacts)}
    return StepFacts(**(blank | known))


def _columns(expectation: Expectation) -> set[str]:
    named: Iterable[str] = (
        (expectation.column_A, expectation.column_B)
        if isinstance(expectation, PairEqual)
        else (expectation.column,)
    )
    return {str(name) for name in (*named, *expectation.where)}


__all__: Sequence[str] = ["Change", "DryRun", "StoredStep", "step_facts_of"]
