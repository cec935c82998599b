"""Admission: what policy says of a call before anybody looks at its content."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from governance.consent import BatchConsent, ConsentQuestion, ConsentVerdict
from governance.policy.capture import CaptureField, CaptureLevel, FailedAttempts
from governance.policy.consent import Purpose
from governance.policy.documents import PolicyBundle
from governance.policy.selector import Facts
from governance.retention import RetentionVerdict, judge_retention
from trajectory.call import Call
from trajectory.exchange import Headers

_PRODUCT = re.compile(r"\s*([A-Za-z][\w.\-]{1,60})(?:/|\s|$)")
_WORD = re.compile(r"[A-Za-z0-9][\w.\-]{0,60}\Z")
_REGION = re.compile(
    r"(?<![a-z0-9])((?:us|eu|ap|sa|ca|me|af|il|mx|asia|europe|northamerica|southamerica|australia|africa)"
    r"-(?:gov-)?[a-z]{2,14}-?\d{1,2}"
    r"|(?:west|north|east|south|central)(?:europe|us\d?|india|asia)|(?:uk|france|germany|sweden|norway|"
    r"switzerland|japan|brazil|canada|australia)(?:west|north|east|south|central|southeast)(?:central)?"
    r"|eu|us)(?=[.\-:/]|$)"
)


def agents_of(headers: Headers) -> tuple[str, ...]:
    """Return ``x-headrace-agent`` and the product that the user agent names first."""
    found = [value for name, value in headers if name == "x-headrace-agent"]
    return _agents(tuple(found), tuple(value for name, value in headers if name == "user-agent"))


def regions_of(headers: Headers, upstream: str) -> tuple[str, ...]:
    """Return ``x-headrace-region`` and the cloud region that the upstream's host names."""
    found = tuple(value for name, value in headers if name == "x-headrace-region")
    return _regions(found, upstream)


@lru_cache(maxsize=1024)
def _agents(said: tuple[str, ...], user_agents: tuple[str, ...]) -> tuple[str, ...]:
    products = [_PRODUCT.match(value) for value in user_agents]
    return _words([*said, *(product[1] for product in products if product is not None)])


@lru_cache(maxsize=1024)
def _regions(said: tuple[str, ...], upstream: str) -> tuple[str, ...]:
    return _words([*map(str.lower, said), *_REGION.findall(upstream.lower())])


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.strip() for value in values if _WORD.match(value.strip())))


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
