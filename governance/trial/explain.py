"""Explaining decisions: each rule's verdict with its reason, never the text that it was about."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from governance.policy.documents import PolicyBundle
from governance.policy.redaction import Operator
from governance.quality import RowGate
from governance.records import GovernanceRecord, GovernedBatch, LedgerRecord, QuarantineRecord
from governance.redact.trajectory import CallRedactor
from governance.trial.cases import CaseCall
from governance.trial.run import judge_given

_SENTENCES = {
    "consent:key": "the client key grants purposes",
    "consent:registry": "the registry grants purposes to the tenant",
    "consent:erased": "a person in the call, or its conversation, was erased after it was captured",
    "consent:no-purpose": "nobody granted a purpose that nothing took away",
    "consent:header:purposes": "the request's header allows only some purposes",
    "consent:header:opt-out": "the request's header opts out",
    "consent:document:purposes": "the imported document allows only some purposes",
    "consent:global-privacy-control": "the request carries Global Privacy Control",
    "capture:metadata-only": "policy keeps metadata only",
    "capture:failed-attempt": "the attempt failed without usable output",
    "dedup:identical-retry": "the same request with the same answer is stored already",
    "dedup:repeated-step": "the trajectory holds the same conversation and answer already",
    "dedup:near-duplicate": "a better step says almost the same",
    "retention:default": "no retention rule fits: the default class",
    "retention:expired": "the capture is older than its retention class allows",
    "retention:legal-hold": "a legal hold keeps in quarantine what policy leaves out",
    "release:damaged-note": "what was told of the call while it was held does not open",
    "control": "traffic without content",
    "refused": "the gateway refused the call itself",
    "signal:kept": "feedback that is kept",
    "signal:left-out": "feedback that may not be kept",
    "signal:comment-left-out": "its comment stays out: its person is unknown, or allows nothing",
    "signal:step-not-stored": "feedback on a step that is not stored",
    "signal:trajectory-left-out": "feedback on a trajectory that lost a call to the policy",
    "signal:trajectory-not-stored": "feedback on a trajectory without a stored step",
}
_PREFIXES = {
    "consent:grant:": "granted by rule {0}",
    "consent:limit:": "taken away by limit {0}",
    "consent:withdrawn:subject:": "a person in the call withdrew {0}",
    "consent:withdrawn:tenant:": "the tenant withdrew {0}",
    "consent:conversation:": "a header, or somebody whom it concerns, took {0} away from the conversation",
    "consent:subject-unknown:": "no grant of the end user for {0}",
    "capture:": "capture rule {0} applies",
    "dedup:same-as:": "the better step is {0}",
    "retention:": "retention rule {0} fits",
    "legal-hold:": "legal hold {0} applies",
    "pii:": "redacted: {0}",
    "quality:": "expectation {0} is not met",
    "redaction:": "redaction could not vouch for its output ({0})",
    "error:": "the rules failed on this call ({0})",
}


@dataclass(frozen=True, slots=True)
class ExplainedReason:
    """What one rule said."""

    stage: str
    """capture | consent | redaction | retention | dedup | quality | result"""
    rule: str
    says: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and what led to it, in the order of the rules."""

    decision: str
    policy_hash: str
    verdicts: tuple[ExplainedReason, ...]
    current: bool
    """Whether the policy that decided is the one at hand."""


def explain_step(
    bundle: PolicyBundle,
    *,
    ledger: LedgerRecord | None,
    governance: Sequence[GovernanceRecord] = (),
    quarantine: Sequence[QuarantineRecord] = (),
) -> Explanation:
    """Explain what was decided about a row of the lake, from the records of its decision.

    Args:
        bundle: the policy at hand, to tell whether it is still the one that decided.
        ledger: the exchange's line, where there is one.
        governance: decisions on its step, oldest first.
        quarantine: its quarantine rows.
    """
    verdicts = [_verdict(reason) for reason in _reasons(ledger, governance)]
    for row in governance:
        verdicts += _facts(row)
    for held in quarantine:
        verdicts.append(
            ExplainedReason(held.stage, held.reason, f"{_sentence(held.reason)}; {held.status}")
        )
    latest = governance[-1] if governance else None
    decision = ledger.disposition if ledger else latest.decision if latest else "unknown"
    policy = latest.policy_hash if latest else ledger.policy_hash if ledger else ""
    return Explanation(decision, policy, tuple(verdicts), policy == bundle.content_hash)


def explain_exchange(bundle: PolicyBundle, redactor: CallRedactor, given: CaseCall) -> Explanation:
    """Explain what a bundle would make of a call: every rule of it, also those that do not fit.

    Args:
        bundle: the policy.
        redactor: built from it.
        given: the call, in the shape of a test case's ``given``.
    """
    batch = judge_given(bundle, redactor, RowGate(bundle.quality.spec), given)
    line = batch.exchanges[-1]
    verdicts = [
        *_capture(bundle, batch),
        *_consent(bundle, given, batch),
        *_retention(bundle, batch),
        *_redaction(bundle, batch),
        *_quality(bundle, batch),
    ]
    verdicts += [_verdict(reason) for reason in line.reasons if reason.startswith("dedup:")]
    return Explanation(line.disposition, line.policy_hash, tuple(verdicts), current=True)


def _reasons(ledger: LedgerRecord | None, governance: Sequence[GovernanceRecord]) -> Iterable[str]:
    reasons = [reason for row in governance for reason in row.reasons]
    return dict.fromkeys([*reasons, *(ledger.reasons if ledger else ())])


def _facts(row: GovernanceRecord) -> list[ExplainedReason]:
    until = row.expires_at.date().isoformat() if row.expires_at else "forever"
    versions = json.loads(row.redaction_report).get("versions", {})
    facts = [
        ExplainedReason("consent", "purposes", ", ".join(row.purposes) or "none"),
        ExplainedReason("consent", "legal basis", row.legal_basis),
        ExplainedReason("retention", row.retention_class, f"until {until}"),
    ]
    facts += [
        ExplainedReason("redaction", name, f"version {version}")
        for name, version in versions.items()
    ]
    return facts


def _verdict(reason: str) -> ExplainedReason:
    stage = reason.partition(":")[0]
    named = {"pii": "redaction", "legal-hold": "retention"}.get(stage, stage)
    return ExplainedReason(named, reason, _sentence(reason))


def _sentence(reason: str) -> str:
    if reason in _SENTENCES:
        return _SENTENCES[reason]
    for prefix, sentence in _PREFIXES.items():
        if reason.startswith(prefix):
            return sentence.format(reason.removeprefix(prefix))
    return reason


def _capture(bundle: PolicyBundle, batch: GovernedBatch) -> list[ExplainedReason]:
    spec = bundle.capture.spec
    said = set(_all_reasons(batch))
    verdicts = [ExplainedReason("capture", "level", spec.level.value)]
    for rule in spec.rules:
        fits = f"capture:{rule.name}" in said
        says = f"fits: {rule.level.value}" if fits else "does not fit"
        verdicts.append(ExplainedReason("capture", rule.name, says))
    return verdicts


def _consent(bundle: PolicyBundle, given: CaseCall, batch: GovernedBatch) -> list[ExplainedReason]:
    said = set(_all_reasons(batch))
    spec = bundle.consent.spec
    key = ", ".join(given.purposes) or "nothing"
    verdicts = [
        ExplainedReason(
            "consent", "client key", f"grants {key}" if spec.key_purposes else "ignored"
        )
    ]
    for grant in spec.grants:
        fits = f"consent:grant:{grant.name}" in said
        says = f"grants {', '.join(grant.purposes)}" if fits else "does not fit"
        verdicts.append(ExplainedReason("consent", grant.name, says))
    for limit in spec.limits:
        fits = f"consent:limit:{limit.name}" in said
        says = f"never {', '.join(limit.never)}" if fits else "takes nothing away"
        verdicts.append(ExplainedReason("consent", limit.name, says))
    taking = tuple(
        f"consent:{how}" for how in ("header", "global", "conversation", "withdrawn", "subject")
    )
    verdicts += [_verdict(reason) for reason in sorted(said) if reason.startswith(taking)]
    purposes = batch.governance[-1].purposes if batch.governance else ()
    return [*verdicts, ExplainedReason("consent", "purposes", ", ".join(purposes) or "none")]


def _retention(bundle: PolicyBundle, batch: GovernedBatch) -> list[ExplainedReason]:
    if not batch.governance:
        return []
    row, said = batch.governance[-1], set(_all_reasons(batch))
    spec = bundle.retention.spec
    verdicts = [
        ExplainedReason("retention", rule.name, f"decides: class {rule.class_}"
                if f"retention:{rule.name}" in said else "does not decide")
        for rule in spec.rules
    ]  # fmt: skip
    verdicts += [
        ExplainedReason("retention", hold.name, "holds: may not be deleted"
                if f"legal-hold:{hold.name}" in said else "does not hold")
        for hold in spec.legal_holds
    ]  # fmt: skip
    until = row.expires_at.date().isoformat() if row.expires_at else "forever"
    return [*verdicts, ExplainedReason("retention", row.retention_class, f"until {until}")]


def _redaction(bundle: PolicyBundle, batch: GovernedBatch) -> list[ExplainedReason]:
    operators = bundle.redaction.spec.operators()
    return [
        ExplainedReason("redaction", entity, f"found {n}: {operators.get(entity, Operator.DROP)}")
        for entity, n in _findings(batch)
    ]


def _quality(bundle: PolicyBundle, batch: GovernedBatch) -> list[ExplainedReason]:
    failed = {
        reason.removeprefix("quality:")
        for row in batch.exchanges
        for reason in row.reasons
        if reason.startswith("quality:")
    }
    if not batch.steps and not failed:
        return []
    return [
        ExplainedReason("quality", one.name, "not met" if one.name in failed else "met")
        for one in bundle.quality.spec.expectations
    ]


def _findings(batch: GovernedBatch) -> list[tuple[str, int]]:
    return sorted(batch.governance[-1].redaction_counts.items()) if batch.governance else []


def _all_reasons(batch: GovernedBatch) -> Iterable[str]:
    for line in batch.exchanges:
        yield from line.reasons
    for row in batch.governance:
        yield from row.reasons
