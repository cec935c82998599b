"""What redaction takes and gives: a scope in, redacted values with a report without values out."""

from dataclasses import dataclass, field
from typing import NamedTuple

from trajectory.canonical import JsonObject, JsonValue
from trajectory.errors import WorkError
from trajectory.message import Message


class RedactionError(WorkError):
    """A detector failed or ran out of time; what it should have looked at must be held back."""


@dataclass(frozen=True, slots=True)
class RedactionScope:
    """Whose text it is: decides which pseudonyms agree and how far a found name reaches."""

    tenant_id: str
    trajectory_id: str
    people: tuple[str, ...] = field(default=(), repr=False)
    """Ids of end users that clients gave: redacted as ``USERNAME``, whatever they look like."""
    linked: bool = True
    """False: only its type stands for a value, nothing by which a person is found again."""


class Place(NamedTuple):
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
    places: tuple[Place, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the detectors that found something."""

    @property
    def changed(self) -> bool:
        """Whether anything was found."""
        return bool(self.counts)

    def to_json(self) -> JsonObject:
        """Return the JSON form that the governance table keeps."""
        places: list[JsonValue] = [[*place] for place in self.places]
        return {
            "counts": dict(sorted(self.counts.items())),
            "places": places,
            "versions": dict(sorted(self.versions.items())),
        }

    def joined(self, *others: "RedactionReport") -> "RedactionReport":
        """Return one report over this one and ``others``."""
        counts, places, versions = dict(self.counts), list(self.places), dict(self.versions)
        for other in others:
            for entity, count in other.counts.items():
                counts[entity] = counts.get(entity, 0) + count
            places.extend(other.places)
            versions.update(other.versions)
        return RedactionReport(counts, tuple(places), versions)


@dataclass(frozen=True, slots=True)
class Redacted:
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
