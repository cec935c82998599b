"""A call on its way through the passes: admitted, redacted, or at its end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from governance.consent import ConsentVerdict
from governance.policy.capture import CaptureField
from governance.policy.consent import Purpose
from governance.records import Disposition, GovernanceRecord
from governance.redact.report import RedactionReport
from governance.redact.trajectory import CleanCall, CleanMessage, TrajectoryRedaction
from governance.retention import RetentionVerdict
from governance.vocabulary import reason_word
from trajectory.assembly.result import PlacedCall
from trajectory.call import Call

ON_HOLD = "retention:legal-hold"
"""Why a released call is held again that policy does not keep."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedCall:
    """A call whose content may be looked at."""

    placed: PlacedCall
    admission: Admission
    end_user: str | None
    """Keyed pseudonym of the person who used the application."""
    named: tuple[str, ...]
    """Keyed pseudonyms of other people, or other ids, that the request names."""
    withheld: frozenset[Purpose]
    """What earlier requests lost for the whole conversation."""

    @property
    def tenant_id(self) -> str:
        """Whose call it is."""
        return self.placed.call.exchange.client.tenant_id

    @property
    def step_id(self) -> str:
        """The step that the call would become."""
        return self.placed.step_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedCall(AdmittedCall):
    """An admitted call with every string redacted."""

    redaction: TrajectoryRedaction
    clean: CleanCall


class LiveCall(NamedTuple):
    """The stored call of which a shadow got a copy."""

    decision: GovernanceRecord
    """The decision that holds for it."""
    people: tuple[str, ...]
    """Keyed pseudonyms of everybody whom its conversation concerns so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """A call that adds no step, with the reason; the ledger and the decisions are written from it."""

    call: Call
    placed: PlacedCall | None
    disposition: Disposition
    reasons: tuple[str, ...]
    admission: Admission | None = None
    """None: the call ended before policy was asked, so there is no decision on it."""
    stage: str = ""
    """What held it back: read, policy, redact or quality; for quarantine only."""
    subjects: tuple[str, ...] = ()
    """Keyed pseudonyms of the people concerned, for the decision of quarantine, which keeps the content."""
    awaits: tuple[str, ...] = ()
    """What this one waits for, for quarantine only: trajectories in which a call has no answer yet, or the call
    of which this is a copy."""
    repeats: str | None = None
    """The step that says the same: what hangs on this call hangs on that one."""
    near_to: str | None = None
    """The better step that says almost the same."""


def ended_early(call: Call, reason: str, placed: PlacedCall | None = None) -> EndedCall:
    """End a call that has no content."""
    return EndedCall(call=call, placed=placed, disposition=Disposition.CONTROL, reasons=(reason,))


def held_early(call: Call, stage: str, reason: str, placed: PlacedCall | None = None) -> EndedCall:
    """Hold back a call that policy could not judge; nothing of its content is kept."""
    return EndedCall(
        call=call,
        placed=placed,
        disposition=Disposition.QUARANTINED,
        reasons=(reason_word(reason),),
        stage=stage,
    )


def held(
    one: AdmittedCall, stage: str, reasons: Iterable[str], awaits: Iterable[str] = ()
) -> EndedCall:
    """Hold back an admitted call."""
    return EndedCall(
        call=one.placed.call,
        placed=one.placed,
        disposition=Disposition.QUARANTINED,
        reasons=tuple(reasons),
        admission=one.admission,
        stage=stage,
        subjects=people_in(one),
        awaits=tuple(awaits),
    )


def people_in(one: AdmittedCall) -> tuple[str, ...]:
    """Return everybody whom a call concerns, as far as it was looked into."""
    found = found_in(one.clean, one.clean.context).subjects if isinstance(one, RedactedCall) else ()
    return (*([one.end_user] if one.end_user else []), *one.named, *found)


def left_out(
    call: Call, placed: PlacedCall | None, admission: Admission, subjects: tuple[str, ...] = ()
) -> EndedCall:
    """Leave out a call that policy does not keep."""
    return EndedCall(
        call=call,
        placed=placed,
        disposition=Disposition.LEFT_OUT,
        reasons=admission.refusals,
        admission=admission,
        subjects=subjects,
    )


def held_again(one: EndedCall) -> EndedCall:
    """Hold a released call back again that would end here, though a legal hold keeps its content."""
    return replace(
        one,
        disposition=Disposition.QUARANTINED,
        reasons=(ON_HOLD, *one.reasons),
        stage="policy",
        near_to=None,
    )


def duplicate(
    one: AdmittedCall, reason: str, *, repeats: str | None = None, near_to: str | None = None
) -> EndedCall:
    """Leave out a call whose content is stored under another step."""
    return EndedCall(
        call=one.placed.call,
        placed=one.placed,
        disposition=Disposition.DUPLICATE,
        reasons=(reason,),
        admission=one.admission,
        subjects=people_in(one) if near_to else (),
        repeats=repeats,
        near_to=near_to,
    )


def failed(error: Exception) -> str:
    """Return the reason for a call that an error holds back; the error's text may hold content."""
    return f"error:{type(error).__name__}"


def follow(repeats: Mapping[str, str], step_id: str) -> str:
    """Return the step under which the content of ``step_id`` is stored."""
    for _ in range(len(repeats)):
        if step_id not in repeats:
            break
        step_id = repeats[step_id]
    return step_id


@dataclass(frozen=True, slots=True)
class RedactionSummary:
    """What redaction found: a report without values, and the people concerned."""

    report: RedactionReport
    subjects: tuple[str, ...]


def found_in(
    clean: CleanCall, context: Sequence[CleanMessage], *, first: int = 0
) -> RedactionSummary:
    """Return what was found in part of a call's context, in its output and its fields.

    Args:
        clean: the redacted call.
        context: the messages to report on; the call's other ones belong to other steps.
        first: position of the first of them in the conversation.
    """
    reports = [
        *(_under(f"/messages/{first + at}", one.report) for at, one in enumerate(context)),
        *([_under("/output", clean.output.report)] if clean.output else []),
        clean.fields.report,
    ]
    people = [*(subject for one in context for subject in one.subjects), *clean.fields.subjects]
    people += clean.output.subjects if clean.output else ()
    return RedactionSummary(RedactionReport().joined(*reports), tuple(dict.fromkeys(people)))


def _under(prefix: str, report: RedactionReport) -> RedactionReport:
    if not report.places:
        return report
    places = tuple(place._replace(path=prefix + place.path) for place in report.places)
    return replace(report, places=places)
