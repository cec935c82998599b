"""A call on its way through the rules, and what redaction found in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from governance.admission import Admission
from governance.policy.consent import Purpose
from governance.redact.report import RedactionReport
from governance.redact.trajectory import CleanCall, CleanMessage, TrajectoryRedaction
from trajectory.placement import PlacedCall


@dataclass(frozen=True, slots=True)
class Judged:
    """An admitted call; ``clean`` is there once redaction has been through it."""

    placed: PlacedCall
    admission: Admission
    end_user: str | None
    """Keyed pseudonym of the person who used the application."""
    named: tuple[str, ...] = ()
    """Keyed pseudonyms of other people, or other ids, that the request names."""
    withheld: frozenset[Purpose] = frozenset()
    """What headers of earlier requests took away from the conversation."""
    redaction: TrajectoryRedaction | None = None
    clean: CleanCall | None = None

    @property
    def tenant_id(self) -> str:
        """Whose call it is."""
        return self.placed.call.exchange.client.tenant_id

    @property
    def step_id(self) -> str:
        """The step that the call would become."""
        return self.placed.step_id


@dataclass(frozen=True, slots=True)
class Found:
    """What redaction found: a report without values, and the people concerned."""

    report: RedactionReport
    subjects: tuple[str, ...]


def found_in(clean: CleanCall, context: Sequence[CleanMessage], *, first: int = 0) -> Found:
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
    return Found(RedactionReport().joined(*reports), _once(people))


def _under(prefix: str, report: RedactionReport) -> RedactionReport:
    places = tuple(place._replace(path=prefix + place.path) for place in report.places)
    return replace(report, places=places)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
