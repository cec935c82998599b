"""Admission: what policy says of a call before anybody looks at its content."""

from dataclasses import dataclass
from datetime import datetime

from governance.callers import agents_of, regions_of
from governance.consent import BatchConsent, ConsentQuestion, ConsentVerdict
from governance.policy.capture import CaptureField, CaptureLevel, FailedAttempts
from governance.policy.consent import Purpose
from governance.policy.documents import PolicyBundle
from governance.policy.selector import Facts
from governance.retention import RetentionVerdict, judge_retention
from trajectory.call import Call


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict of capture, consent and retention on one call."""

    kept: bool
    """False: nothing but a line in the ledger and the decision itself may be stored."""
    without: frozenset[CaptureField]
    consent: ConsentVerdict
    retention: RetentionVerdict
    reasons: tuple[str, ...]
    """All that was considered."""
    refusals: tuple[str, ...]
    """What decided against keeping it; empty when it is kept."""


def facts_of(call: Call, data_classes: tuple[str, ...] = ()) -> Facts:
    """Return what selectors may ask about a call."""
    client = call.exchange.client
    tools = [part.name for part in call.output.tool_calls()] if call.output else []
    if call.dispatch is not None:
        tools.append(call.dispatch.name)
    return Facts(
        tenant=client.tenant_id,
        app=client.app_id,
        environment=client.environment,
        route=call.exchange.route,
        dialect=call.dialect,
        model=call.model_served or call.model_requested or "",
        upstream=call.exchange.upstream,
        agents=agents_of(call.exchange.request.headers),
        regions=regions_of(call.exchange.request.headers, call.exchange.upstream),
        kind=call.kind.value,
        tools=tuple(tools),
        data_classes=data_classes,
    )


def failed_without_output(call: Call) -> bool:
    """Return whether the attempt gave nothing that could be used."""
    status = call.exchange.response.status if call.exchange.response else None
    broken = call.error is not None or status is None or status >= 400
    return broken and call.output is None and call.dispatch is None


def admit(
    bundle: PolicyBundle,
    consent_of: BatchConsent,
    call: Call,
    *,
    end_user: str | None,
    now: datetime,
    subjects: tuple[str, ...] = (),
    data_classes: tuple[str, ...] = (),
    withheld: frozenset[Purpose] = frozenset(),
) -> Admission:
    """Judge one call; once before redaction, and once more with what redaction found.

    Args:
        bundle: the policy.
        consent_of: judges consent for the batch.
        call: what is judged.
        end_user: keyed pseudonym of the person who used the application.
        now: the moment of the decision.
        subjects: keyed pseudonyms of people that the content names.
        data_classes: classes of what redaction found.
        withheld: what headers of earlier requests took away from the conversation.
    """
    facts = facts_of(call, data_classes)
    retention = judge_retention(bundle.retention.spec, facts, call.exchange.started_at)
    question = ConsentQuestion(
        facts=facts,
        key_purposes=call.exchange.client.purposes,
        headers=call.exchange.request.headers,
        end_user=end_user,
        subjects=subjects,
        captured_at=None if retention.legal_hold else call.exchange.started_at,
        withheld=withheld,
    )
    consent = consent_of.judge(question)
    level, without, reasons = _capture(bundle, call, facts)
    refusals = list(reasons) if level is CaptureLevel.METADATA else []
    if not consent.purposes:
        refusals += consent.refusals
    if retention.expired(now):
        reasons.append("retention:expired")
        refusals.append("retention:expired")
    return Admission(
        kept=not refusals,
        without=without,
        consent=consent,
        retention=retention,
        reasons=(*reasons, *consent.reasons, *retention.reasons),
        refusals=tuple(refusals),
    )


def _capture(
    bundle: PolicyBundle, call: Call, facts: Facts
) -> tuple[CaptureLevel, frozenset[CaptureField], list[str]]:
    spec = bundle.capture.spec
    level, without, reasons = spec.level, set(spec.without), list[str]()
    if level is CaptureLevel.METADATA:
        reasons.append("capture:metadata-only")
    for rule in spec.matching(facts):
        without |= set(rule.without)
        reasons.append(f"capture:{rule.name}")
        if rule.level is CaptureLevel.METADATA:
            level = CaptureLevel.METADATA
    if spec.failed_attempts is FailedAttempts.METADATA and failed_without_output(call):
        level = CaptureLevel.METADATA
        reasons.append("capture:failed-attempt")
    return level, frozenset(without), reasons
