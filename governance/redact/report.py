"""What redaction takes and gives: a scope in, redacted values with a report without values out."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from governance.detect.finding import Finding
from governance.detect.named_tuples import new
from governance.redact.places import shown
from trajectory.canonical import JsonObject, JsonValue
from trajectory.errors import WorkError
from trajectory.message import Message


class RedactionError(WorkError):
    """A detector failed or ran out of time; what it should have looked at must be held back."""


class NamePart(NamedTuple):
    """A part of a name that was found in a trajectory, and what stands for it there."""

    word: str
    """Keyed hash of the part and the trajectory."""
    mark: str
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RedactionScope:
    """Whose text it is: decides which pseudonyms agree and how far a found name reaches."""

    tenant_id: str
    trajectory_id: str
    people: tuple[str, ...] = field(default=(), repr=False)
    """Ids of end users that clients gave: redacted as ``USERNAME``, whatever they look like."""
    linked: bool = True
    """False: only its type stands for a value, nothing by which a person is found again."""
    name_parts: tuple[NamePart, ...] = field(default=(), repr=False)
    """Parts of names that what is redacted may not say in full."""


class RedactedPlace(NamedTuple):
    """Where something was redacted, in the text as it came."""

    entity: str
    path: str
    """Key path, e.g. ``/parts/0/arguments/customer/email``; ``*`` stands for keys that may be values."""
    start: int
    """Offset in characters within the string at ``path``; 0 for a number."""
    end: int
    detector: str


@dataclass(frozen=True, slots=True)
class RedactionReport:
    """What was redacted: counts, places and detector versions, never a value."""

    counts: dict[str, int] = field(default_factory=dict)
    places: tuple[RedactedPlace, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the detectors that found something."""
    names: tuple[NamePart, ...] = ()
    """Parts of names that were found, for calls that say no more than a part."""

    @property
    def changed(self) -> bool:
        """Whether anything was found."""
        return bool(self.counts)

    def to_json(self) -> JsonObject:
        """Return the JSON form that the governance table keeps."""
        places: list[JsonValue] = [[*place] for place in self.places]
        names: list[JsonValue] = [[word, mark, [*who]] for word, mark, who in self.names]
        return {
            "counts": dict(sorted(self.counts.items())),
            "places": places,
            "versions": dict(sorted(self.versions.items())),
            **({"names": names} if names else {}),
        }

    def joined(self, *others: "RedactionReport") -> "RedactionReport":
        """Return one report over this one and ``others``."""
        counts, places, versions = dict(self.counts), list(self.places), dict(self.versions)
        names = dict.fromkeys(self.names)
        for other in others:
            for entity, count in other.counts.items():
                counts[entity] = counts.get(entity, 0) + count
            places.extend(other.places)
            versions.update(other.versions)
            names |= dict.fromkeys(other.names)
        return RedactionReport(counts, tuple(places), versions, tuple(names))


def name_parts_in(report: str) -> tuple[NamePart, ...]:
    """Return the parts of names of a report's JSON text."""
    if '"names"' not in report:
        return ()
    listed = json.loads(report).get("names", [])
    return tuple(NamePart(word, mark, tuple(who)) for word, mark, who in listed)


class ReportBuilder:
    """Gathers one report while a value is rewritten."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        """Name detectors by these ``versions``."""
        self._versions = versions
        self._counts: dict[str, int] = {}
        self._places: list[RedactedPlace] = []
        self.subjects: dict[str, None] = {}
        self.names: dict[str, None] = {}

    def add(self, path: Iterable[str], spans: Iterable[Finding]) -> None:
        """Take note of what was redacted in the string at ``path``."""
        where = shown(path)
        counts, places = self._counts, self._places
        for entity, start, end, _, detector in spans:
            counts[entity] = counts.get(entity, 0) + 1
            places.append(new(RedactedPlace, (entity, where, start, end, detector)))

    def done(self, names: tuple[NamePart, ...] = ()) -> RedactionReport:
        """Return the report."""
        used = {place.detector.partition(".")[0] for place in self._places}
        versions = {name: self._versions.get(name, self._versions["presidio"]) for name in used}
        return RedactionReport(self._counts, tuple(self._places), versions, names)


@dataclass(frozen=True, slots=True)
class RedactedMessage:
    """A message after redaction."""

    message: Message
    report: RedactionReport
    subjects: tuple[str, ...]
    """Keyed pseudonyms of the people named in it (see :func:`~governance.redact.pseudonym.subject_id`)."""


@dataclass(frozen=True, slots=True)
class RedactedJson:
    """A JSON value after redaction; types stay types."""

    value: JsonValue = field(repr=False)
    report: RedactionReport
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A text after redaction."""

    text: str = field(repr=False)
    report: RedactionReport
    subjects: tuple[str, ...]
