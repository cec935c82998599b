"""The redactor: finds, propagates and replaces in messages, JSON and text of one trajectory.

Three steps. Detect: a walk gathers all texts, and the detectors look at them. Decide: what they found
counts in the whole trajectory (``substitution``). Replace: where something changes, a second walk writes
the stand-ins. A call either returns everything redacted or raises: a detector that fails never lets text through.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from governance.detect.finding import Detector, Finding, Unit
from governance.detect.normalized_text import view_of
from governance.policy.redaction import Operator, RedactionSpec
from governance.redact.detection_cache import (
    DetectionCache,
    DetectionMemory,
    Findings,
    Item,
    by_hash,
)
from governance.redact.numbers import IDENTITY, BareNumbers
from governance.redact.own_marks import MarkFinder
from governance.redact.propagate import VERSION as PROPAGATION_VERSION
from governance.redact.pseudonym import ENCODED_DATA, Pseudonymizer
from governance.redact.report import (
    RedactedJson,
    RedactedMessage,
    RedactedText,
    RedactionError,
    RedactionScope,
    ReportBuilder,
)
from governance.redact.segments import (
    ParsedTexts,
    Path,
    Visitor,
    asked_for,
    keys_of,
    rewritten,
    rewritten_message,
)
from governance.redact.subject_keys import SubjectKeys
from governance.redact.substitution import Substitution
from trajectory.canonical import JsonValue
from trajectory.message import Message

DEFAULT_THRESHOLD = 0.5
DEFAULT_THRESHOLDS = {
    "PHONE_NUMBER": 0.4,
    "CREDIT_CARD": 0.6,
    "US_BANK_NUMBER": 0.4,
    "US_PASSPORT": 0.4,
    "US_DRIVER_LICENSE": 0.4,
    "US_SSN": 0.4,
    "US_ITIN": 0.4,
}
_WARM_UP = (
    "Dear Ms Eve Fictional, my name is Bo Madeup and I live at 12 Nowhere Street, Springfield, IL 62701.\n"
    "Call +1 212 555 0100 or write to bo@madeup.invalid; card 4111 1111 1111 1111, password: Xy12zw9!\n",
    "def run(self):\n    return connect('postgres://u:p@192.0.2.1:5432/db')  # reviewed by Zed Nobody\n",
    "\u0417\u0434\u0435\u0441\u044c %41 &#64; 2001:db8::1 1984-05-06 DOB: 1984-05-06 \u6c49\u5b57 a"
    + " Zed" * 40,
)
_SHORTEST_IDENTITY = 6

type Walk[T] = Callable[[T, Visitor], T]
"""Goes through a value and returns it with what the visitor put in place of its texts."""


class _TextAt(NamedTuple):
    """A text, and where it stands."""

    path: Path
    item: Item


@dataclass(slots=True)
class _Gathered:
    """What a value holds."""

    texts: list[_TextAt] = field(default_factory=list)
    numbers: list[tuple[str, Path]] = field(default_factory=list)
    """As they are written."""
    is_rewritten: bool = False
    """Whether it becomes another one, whatever is found in its texts."""


class Redactor:
    """Redacts by one policy with one key. Not for several threads at once."""

    def __init__(
        self,
        spec: RedactionSpec,
        detectors: Sequence[Detector],
        *,
        pseudonym_key: bytes,
        subject_key: bytes | None = None,
        subjects: SubjectKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
        memory: DetectionMemory | None = None,
    ) -> None:
        """Redact by ``spec``.

        Args:
            spec: the policy's ``spec``.
            detectors: what finds, in this order.
            pseudonym_key: keys pseudonyms.
            subject_key: names data subjects; by default the same key.
            subjects: the keys of data subjects.
            clock: seconds that only grow.
            memory: what other redactors of the same policy found; by default its own.
        """
        self._spec = spec
        self._operators = spec.operators()
        self._marks = MarkFinder.of(spec, subject_key or pseudonym_key)
        thresholds = {**DEFAULT_THRESHOLDS, **spec.thresholds}
        self._detections = DetectionCache(
            detectors,
            {entity: thresholds.get(entity, DEFAULT_THRESHOLD) for entity in self._operators},
            marks=self._marks,
            allow=spec.allow,
            seconds=spec.timeout_seconds,
            clock=clock,
            memory=memory,
        )
        self._pseudonyms = Pseudonymizer(
            spec, pseudonym_key, subject_key=subject_key or pseudonym_key, subjects=subjects
        )
        self._numbers = BareNumbers(self._operators, self._pseudonyms)
        self._drops_opaque = spec.opaque_data != "keep" and "OPAQUE_DATA" in self._operators
        self._versions = {"presidio": "", **{one.name: one.version for one in detectors}}
        self._versions |= {"propagation": PROPAGATION_VERSION, "walker": "4", "caller": "1"}

    @property
    def versions(self) -> dict[str, str]:
        """Versions of all detectors that run."""
        return dict(self._versions)

    @property
    def operators(self) -> dict[str, Operator]:
        """What is done to each entity that is looked for."""
        return dict(self._operators)

    def warm(self) -> None:
        """Have detectors load what they load on first use, so that no row pays for it.

        Raises:
            RedactionError: a detector fails.
        """
        self._detections.detect([Unit(view_of(text), ("note",)) for text in _WARM_UP])

    def redact_messages(
        self, messages: Sequence[Message], *, scope: RedactionScope
    ) -> list[RedactedMessage]:
        """Redact messages of one trajectory; what is found in one is redacted in all.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        return self._redact_messages(messages, scope)[0]

    def redact_stored(
        self, said: Sequence[Message], stored: Sequence[Message], *, scope: RedactionScope
    ) -> list[RedactedMessage]:
        """Redact stored messages of a trajectory again, with what was said in it since.

        What stood for a part of a name alone becomes what stands for the name.

        Raises:
            RedactionError: a detector failed or time ran out.
        """
        done, substitution = self._redact_messages([*said, *stored], scope)
        marks = substitution.marks_of_parts()
        return [_renamed(one, marks) for one in done[len(said) :]]

    def redact_json(
        self, value: JsonValue, *, scope: RedactionScope, path: str = ""
    ) -> RedactedJson:
        """Redact a JSON value; ``path`` (``/tools/0``) leads the places of the report.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        at = tuple(part for part in path.split("/") if part)
        done, _ = self._redact([value], scope, lambda one, visitor: rewritten(one, at, visitor))
        ((clean, report),) = done
        return RedactedJson(clean, report.done(), tuple(report.subjects))

    def redact_text(self, text: str, *, scope: RedactionScope, path: str = "") -> RedactedText:
        """Redact one text, JSON and base64 within it included.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        done = self.redact_json(text, scope=scope, path=path)
        return RedactedText(str(done.value), done.report, done.subjects)

    def find(self, messages: Sequence[Message]) -> Findings:
        """Return what is in the texts of messages, for another redactor of the same policy.

        It holds positions and types by a hash of each text, no values; see :meth:`learn`.

        Raises:
            RedactionError: a detector failed or time ran out.
        """
        if not self._operators:
            return {}
        with _depth_is_an_error():
            gathered = self._gather(messages, _message_walk(messages), ParsedTexts())
            return by_hash(self._look(_texts_of(gathered), gathered))

    def learn(self, found: Findings) -> None:
        """Take over what another redactor of the same policy found, so as not to look again."""
        self._detections.learn(found)

    # One call: detect, decide, replace.

    def _redact_messages(
        self, messages: Sequence[Message], scope: RedactionScope
    ) -> tuple[list[RedactedMessage], Substitution]:
        done, substitution = self._redact(messages, scope, _message_walk(messages))
        redacted = [
            # an equal message is the one object that stands for this content
            RedactedMessage(
                old if new == old else new,
                report.done(substitution.name_parts(report.names)),
                tuple(report.subjects),
            )
            for old, (new, report) in zip(messages, done, strict=True)
        ]
        return redacted, substitution

    def _redact[T](
        self,
        values: Sequence[T],
        scope: RedactionScope,
        walk: Walk[T],
        substitution: Substitution | None = None,
    ) -> tuple[list[tuple[T, ReportBuilder]], Substitution]:
        """Return values with everything replaced, each with its report; and what was decided."""
        self._pseudonyms.begin()
        if substitution is None:
            substitution = Substitution(self._spec, self._pseudonyms, self._marks, scope)
        done = [(value, ReportBuilder(self._versions)) for value in values]
        if self._operators:  # else policy asks for nothing
            with _depth_is_an_error():
                parsed = ParsedTexts()
                gathered = self._gather(values, walk, parsed)
                texts = _texts_of(gathered)
                found = self._look(texts, gathered)
                substitution.learn((item, found[item]) for item in texts)
                done = [
                    (
                        walk(value, self._replacing(found, substitution, scope, parsed, report))
                        if self._changes(one, found, substitution, scope)
                        else value,
                        report,
                    )
                    for one, (value, report) in zip(gathered, done, strict=True)
                ]
        self._pseudonyms.forget()
        return done, substitution

    def _gather[T](
        self, values: Sequence[T], walk: Walk[T], parsed: ParsedTexts
    ) -> list["_Gathered"]:
        """Return what is in each value."""
        out: list[_Gathered] = []
        for value in values:
            one = _Gathered()
            out.append(one)
            same = walk(value, self._gathering(one, parsed))
            # Roles and types of media are made fit on the way, whatever is found.
            one.is_rewritten |= same != value
        return out

    def _gathering(self, into: "_Gathered", parsed: ParsedTexts) -> Visitor:
        """Return the visitor that notes all texts and bare numbers of a value."""

        def text(text: str, path: Path, is_digits: bool, gone: Sequence[Finding]) -> str:
            into.texts.append(_TextAt(path, (keys_of(path), text, is_digits)))
            into.is_rewritten |= bool(gone)
            return text

        def number(written: str, path: Path) -> None:
            into.numbers.append((written, path))

        def media(name: str) -> str:
            into.is_rewritten = True
            return name

        return Visitor(text, number, media, parsed, drops_opaque=self._drops_opaque)

    def _look(
        self, texts: Iterable[Item], gathered: Sequence["_Gathered"]
    ) -> Mapping[Item, tuple[Finding, ...]]:
        """Return what is in texts and in bare numbers."""
        digits = {
            (keys_of(path), digits, False): None
            for one in gathered
            for written, path in one.numbers
            if (digits := self._numbers.digits(written, path))
        }
        return self._detections.find([*texts, *digits])

    def _changes(
        self,
        gathered: "_Gathered",
        found: Mapping[Item, tuple[Finding, ...]],
        substitution: Substitution,
        scope: RedactionScope,
    ) -> bool:
        """Whether anything of a value is replaced: most values stay, and are not walked through again."""
        people = scope.people
        return (
            gathered.is_rewritten
            or any(
                substitution.of_text(item[1], found[item]) is not None
                or (people and self._is_identity(item[1], path, people))
                for path, item in gathered.texts
            )
            or any(
                self._entity_of_number(written, path, found, people) is not None
                for written, path in gathered.numbers
            )
        )

    def _replacing(
        self,
        found: Mapping[Item, tuple[Finding, ...]],
        substitution: Substitution,
        scope: RedactionScope,
        parsed: ParsedTexts,
        report: ReportBuilder,
    ) -> Visitor:
        """Return the visitor that replaces what was found, and reports it."""
        people = scope.people

        def text(text: str, path: Path, is_digits: bool, gone: Sequence[Finding]) -> str:
            findings = found[keys_of(path), text, is_digits]
            if gone:
                findings = (*findings, *gone)
            if people and self._is_identity(text, path, people):
                findings = (*findings, Finding(IDENTITY, 0, len(text), 1.0, "caller"))
            replacement = substitution.of_text(text, findings)
            if replacement is None:
                return text
            report.add(path, [one for one in replacement.spans if one.entity != ENCODED_DATA])
            report.subjects.update(replacement.subjects)
            report.names.update(replacement.names)
            return replacement.text

        def number(written: str, path: Path) -> int | str | None:
            entity = self._entity_of_number(written, path, found, people)
            if entity is None:
                return None
            report.add(path, [Finding(entity, 0, len(written), 1.0, "walker")])
            return substitution.of_number(entity, written, self._numbers)

        def media(name: str) -> str:
            return self._pseudonyms.of_media(scope.tenant_id, name)

        return Visitor(text, number, media, parsed, drops_opaque=self._drops_opaque)

    def _entity_of_number(
        self,
        written: str,
        path: Path,
        found: Mapping[Item, tuple[Finding, ...]],
        people: Sequence[str],
    ) -> str | None:
        if self._numbers.is_biometric(path):
            return "BIOMETRIC"
        if people and self._numbers.is_identity(written, path, people):
            return IDENTITY
        digits = self._numbers.digits(written, path)
        if not digits:
            return None
        return self._numbers.entity(digits, found[keys_of(path), digits, False])

    def _is_identity(self, text: str, path: Path, people: Sequence[str]) -> bool:
        """Whether a whole text is the id of an end user; short ones only where clients put ids."""
        if text not in people or IDENTITY not in self._operators:
            return False
        return len(text) >= _SHORTEST_IDENTITY or "ext" in path


def _texts_of(gathered: Sequence[_Gathered]) -> dict[Item, None]:
    """Return all texts once, in the order in which they were met."""
    return dict.fromkeys(text.item for one in gathered for text in one.texts)


def _message_walk(messages: Sequence[Message]) -> Walk[Message]:
    """Return the walk through one of these messages, which knows what it answers."""
    asked = asked_for(messages)
    return lambda one, visitor: rewritten_message(one, visitor, asked.get(id(one)))


def _renamed(
    redacted: RedactedMessage, marks: Mapping[str, tuple[str, tuple[str, ...]]]
) -> RedactedMessage:
    """Return a message with other marks for some of those in it."""
    text = redacted.message.canonical().decode("utf-8", "surrogatepass")
    held = {old: one for old, one in marks.items() if old in text}
    if not held:
        return redacted
    subjects = dict.fromkeys(redacted.subjects)
    for old, (mark, people) in held.items():
        text = text.replace(old, mark)
        subjects |= dict.fromkeys(people)
    message = Message.from_json(json.loads(text))
    return replace(redacted, message=message, subjects=tuple(subjects))


@contextmanager
def _depth_is_an_error() -> Iterator[None]:
    """Turn values that are nested too deeply to walk into a refusal."""
    try:
        yield
    except RecursionError:
        raise RedactionError(
            "a value is nested too deeply to be redacted; it is held back"
        ) from None


def known_entities(detectors: Iterable[Detector]) -> frozenset[str]:
    """Return every entity type that these detectors or the walker can find."""
    return frozenset({"OPAQUE_DATA"}.union(*(detector.entities for detector in detectors)))
