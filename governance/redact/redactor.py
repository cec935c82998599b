"""The redactor: finds, propagates and replaces in messages, JSON and text of one trajectory.

Three steps: a walk gathers all texts; the detectors look at them, and what they find is known for the
whole trajectory; a second walk replaces. A call either returns everything redacted or raises: a
detector that fails or runs out of time never lets text through.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

from governance.detect.finding import Detector, Finding, Unit
from governance.detect.normalized_text import read_as, view_of
from governance.policy.redaction import Operator, RedactionSpec
from governance.redact.canonical import meant
from governance.redact.detection_cache import Findings, Item, Looking, by_hash
from governance.redact.numbers import IDENTITY, BareNumbers
from governance.redact.propagate import VERSION as PROPAGATION_VERSION
from governance.redact.propagate import Again, Known, means_itself, met_again
from governance.redact.pseudonym import ENCODED_DATA, OwnMarks, Pseudonymizer, Whose, own_marks
from governance.redact.report import (
    Redacted,
    RedactedJson,
    RedactedText,
    RedactionError,
    RedactionScope,
    ReportBuilder,
    Told,
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
from governance.redact.splice import resolved, spliced
from governance.redact.subject_keys import SubjectKeys
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
_SURE_OF_NAME = 0.7
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_IN_TWO_PARTS = re.compile(r"[^\s,]+,?\s+[^\s,]+")
_SHORTEST_IDENTITY = 6
_UNREAD = frozenset({ENCODED_DATA, "OPAQUE_DATA"})
"""Digits that go as a whole: nothing stands for what they say."""


@dataclass(slots=True)
class _Replaced:
    """What becomes of a text."""

    spans: list[Finding]
    subjects: dict[str, None]
    names: dict[str, None] = field(repr=False)
    text: str = field(repr=False)


@dataclass(slots=True)
class _Work:
    """One call's state: what was found where, and what stands for it."""

    scope: RedactionScope
    whose: Whose
    texts: dict[Item, None] = field(default_factory=dict, repr=False)
    numbers: dict[Item, None] = field(default_factory=dict, repr=False)
    """Digits of bare numbers that may be somebody's."""
    found: dict[Item, tuple[Finding, ...]] = field(default_factory=dict, repr=False)
    """What is in each text."""
    known: Known = field(default_factory=Known)
    """What is redacted wherever it is met."""
    texts_replaced: dict[object, _Replaced | None] = field(default_factory=dict, repr=False)
    """What becomes of each text; None for those that stay."""
    values_replaced: dict[tuple[str, str], tuple[str | None, tuple[str, ...]]] = field(
        default_factory=dict, repr=False
    )
    """What stands in a value's place, and whom it names, by entity and value."""
    told: dict[str, Told] = field(default_factory=dict, repr=False)
    """Parts of names that are not said in full here, by their keyed hashes."""
    told_words: dict[str, Told | None] = field(default_factory=dict, repr=False)
    """Words that were looked for among them."""
    meanings: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """What spans mean, by entity and what they hold."""
    parsed: ParsedTexts = field(default_factory=ParsedTexts, repr=False)

    def meant(self, entity: str, held: str) -> str:
        """Return the value that a span means, worked out once."""
        plain = self.meanings.get((entity, held))
        if plain is None:
            plain = self.meanings[entity, held] = meant(entity, read_as(held))
        return plain


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
    ) -> None:
        """Redact by ``spec``.

        Args:
            spec: the policy's ``spec``.
            detectors: what finds, in this order.
            pseudonym_key: keys pseudonyms.
            subject_key: names data subjects; by default the same key.
            subjects: the keys of data subjects.
            clock: seconds that only grow.
        """
        self._spec = spec
        self._operators = spec.operators()
        self._marks = own_marks(self._operators)
        thresholds = {**DEFAULT_THRESHOLDS, **spec.thresholds}
        self._looking = Looking(
            detectors,
            {entity: thresholds.get(entity, DEFAULT_THRESHOLD) for entity in self._operators},
            marks=self._marks,
            allow=spec.allow,
            seconds=spec.timeout_seconds,
            clock=clock,
        )
        self._pseudonyms = Pseudonymizer(
            spec, pseudonym_key, subject_key=subject_key or pseudonym_key, subjects=subjects
        )
        self._numbers = BareNumbers(self._operators, self._pseudonyms)
        self._versions = {"presidio": "", **{one.name: one.version for one in detectors}}
        self._versions |= {"propagation": PROPAGATION_VERSION, "walker": "3", "caller": "1"}

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
        self._looking.asked([Unit(view_of(text), ("note",)) for text in _WARM_UP])

    def redact_messages(
        self, messages: Sequence[Message], *, scope: RedactionScope
    ) -> list[Redacted]:
        """Redact messages of one trajectory; what is found in one is redacted in all.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        return self._redact_messages(messages, scope)[0]

    def redact_stored(
        self, said: Sequence[Message], stored: Sequence[Message], *, scope: RedactionScope
    ) -> list[Redacted]:
        """Redact stored messages of a trajectory again, with what was said in it since.

        What stood for a part of a name alone becomes what stands for the name.

        Raises:
            RedactionError: a detector failed or time ran out.
        """
        done, work = self._redact_messages([*said, *stored], scope)
        marks = self._marks_of_parts(work)
        return [_renamed(one, marks) for one in done[len(said) :]]

    def redact_json(
        self, value: JsonValue, *, scope: RedactionScope, path: str = ""
    ) -> RedactedJson:
        """Redact a JSON value; ``path`` (``/tools/0``) leads the places of the report.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        at = tuple(part for part in path.split("/") if part)
        work = self._begin(scope)
        ((clean, report),) = self._redact(
            [value], work, lambda one, visitor: rewritten(one, at, visitor)
        )
        return RedactedJson(clean, report.done(), tuple(report.subjects))

    def redact_text(self, text: str, *, scope: RedactionScope, path: str = "") -> RedactedText:
        """Redact one text, JSON and base64 within it included.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        done = self.redact_json(text, scope=scope, path=path)
        return RedactedText(str(done.value), done.report, done.subjects)

    def find(self, messages: Sequence[Message], *, scope: RedactionScope) -> Findings:
        """Return what is in the texts of messages, for another redactor of the same policy.

        It holds positions and types by a hash of each text, no values; see :meth:`learn`.

        Raises:
            RedactionError: a detector failed or time ran out.
        """
        if not self._operators:
            return {}
        work = self._begin(scope)
        with _depth_is_an_error():
            asked = asked_for(messages)
            for message in messages:
                rewritten_message(message, self._gathering(work), asked.get(id(message)))
            return by_hash(self._looking.found([*work.texts, *work.numbers]))

    def learn(self, found: Findings) -> None:
        """Take over what another redactor of the same policy found, so as not to look again."""
        self._looking.learn(found)

    # One call: gather, look, replace.

    def _redact_messages(
        self, messages: Sequence[Message], scope: RedactionScope
    ) -> tuple[list[Redacted], _Work]:
        work = self._begin(scope)
        asked = asked_for(messages)
        done = self._redact(
            messages,
            work,
            lambda one, visitor: rewritten_message(one, visitor, asked.get(id(one))),
        )
        redacted = [
            # an equal message is the one object that stands for this content
            Redacted(
                old if new == old else new,
                report.done(self._told(report.names, work)),
                tuple(report.subjects),
            )
            for old, (new, report) in zip(messages, done, strict=True)
        ]
        return redacted, work

    def _begin(self, scope: RedactionScope) -> _Work:
        self._pseudonyms.begin()
        told: dict[str, Told] = {}
        for one in scope.told:  # of two with one part the first
            told.setdefault(one.word, one)
        reach = scope.tenant_id
        if self._spec.scope == "trajectory":
            reach += "\x1f" + scope.trajectory_id
        return _Work(scope, Whose(scope.tenant_id, reach, scope.linked), told=told)

    def _redact[T](
        self, values: Sequence[T], work: _Work, walk: Callable[[T, Visitor], T]
    ) -> list[tuple[T, ReportBuilder]]:
        """Return values with everything replaced, and what was replaced in each."""
        done: list[tuple[T, ReportBuilder]] = []
        with _depth_is_an_error():
            if self._operators:  # else policy looks for nothing
                for value in values:
                    walk(value, self._gathering(work))
                work.found = self._looking.found([*work.texts, *work.numbers])
                self._learn(work)
            for value in values:
                report = ReportBuilder(self._versions)
                clean = walk(value, self._replacing(work, report)) if self._operators else value
                done.append((clean, report))
        self._pseudonyms.forget()
        return done

    def _gathering(self, work: _Work) -> Visitor:
        texts = work.texts

        def text(text: str, path: Path, is_digits: bool, _: Sequence[Finding]) -> str:
            texts[keys_of(path), text, is_digits] = None
            return text

        def number(written: str, path: Path) -> None:
            if digits := self._numbers.digits(written, path):
                work.numbers[keys_of(path), digits, False] = None

        return Visitor(text, number, str, work.parsed)

    def _learn(self, work: _Work) -> None:
        """Learn from what was found what to look for elsewhere."""
        known = work.known = Known.within(text for _, text, _ in work.texts)
        propagates, named = self._spec.names.propagate, self._spec.subjects
        subjects = set[tuple[str, str]]()
        for item in work.texts:
            text, found = item[1], work.found[item]
            for entity, start, end, score, _ in resolved(found) if found else ():
                value = work.meant(entity, text[start:end])
                if propagates or entity != "PERSON":
                    known.learn(entity, value, sure=score >= _SURE_OF_NAME)
                if entity in named:
                    subjects.add((entity, value))
        if IDENTITY in self._operators:
            for value in work.scope.people:
                known.learn(IDENTITY, value)
        known.close()
        subjects.update(one for one in known.values if one[0] in named)
        if work.scope.linked:
            self._pseudonyms.expect(work.scope.tenant_id, subjects)

    def _replacing(self, work: _Work, report: ReportBuilder) -> Visitor:
        people = work.scope.people

        def text(text: str, path: Path, is_digits: bool, gone: Sequence[Finding]) -> str:
            found = work.found[keys_of(path), text, is_digits]
            if gone:
                found = (*found, *gone)
            if people and self._is_identity(text, path, people):
                found = (*found, Finding(IDENTITY, 0, len(text), 1.0, "caller"))
            key = text, found
            if key not in work.texts_replaced:
                work.texts_replaced[key] = self._replaced(text, found, work)
            done = work.texts_replaced[key]
            if done is None:
                return text
            report.add(path, [one for one in done.spans if one.entity != ENCODED_DATA])
            report.subjects.update(done.subjects)
            report.names.update(done.names)
            return done.text

        def number(written: str, path: Path) -> int | None:
            entity = self._entity_of_number(written, path, work)
            if entity is None:
                return None
            report.add(path, [Finding(entity, 0, len(written), 1.0, "walker")])
            return self._numbers.replacement(entity, written, work.whose)

        def media(name: str) -> str:
            return self._pseudonyms.of_media(work.scope.tenant_id, name)

        drops = self._spec.opaque_data != "keep" and "OPAQUE_DATA" in self._operators
        return Visitor(text, number, media, work.parsed, drops_opaque=drops)

    def _entity_of_number(self, written: str, path: Path, work: _Work) -> str | None:
        if self._numbers.is_biometric(path):
            return "BIOMETRIC"
        if work.scope.people and self._numbers.is_identity(written, path, work.scope.people):
            return IDENTITY
        digits = self._numbers.digits(written, path)
        if not digits:
            return None
        return self._numbers.entity(digits, work.found[keys_of(path), digits, False])

    def _is_identity(self, text: str, path: Path, people: Sequence[str]) -> bool:
        """Whether a whole text is the id of an end user; short ones only where clients put ids."""
        if text not in people or IDENTITY not in self._operators:
            return False
        return len(text) >= _SHORTEST_IDENTITY or "ext" in path

    def _replaced(self, text: str, found: Sequence[Finding], work: _Work) -> _Replaced | None:
        """Return what becomes of a text by what was found in it and elsewhere; None when it stays."""
        spans = resolved(found) if found else []
        stands_for: dict[int, str] = {}
        if again := self._met_again(text, work):
            stands_for, more = met_again(again, spans, OwnMarks.within(text, self._marks))
            if more:
                spans = resolved((*found, *more))
        if not spans:
            return None
        subjects: dict[str, None] = {}
        names: dict[str, None] = {}
        changes: list[tuple[int, int, str]] = []
        for entity, start, end, _, _ in spans:
            if entity in _UNREAD:
                changes.append((start, end, f"<{entity}>"))
                continue
            value = work.meant(entity, text[start:end])
            if entity == "PERSON":
                whole = work.known.whole(value)
                value = stands_for.get(start, value) if whole == value else whole
                names[value] = None
            replacement, people = self._stand_in(entity, value, work)
            subjects |= dict.fromkeys(people)
            if replacement is not None:
                changes.append((start, end, replacement))
        for value in _apart(text, spans):
            name = work.meant("PERSON", value)
            subjects |= dict.fromkeys(self._subjects("PERSON", name, work))
        return _Replaced(spans, subjects, names, spliced(text, changes) if changes else text)

    def _stand_in(self, entity: str, value: str, work: _Work) -> tuple[str | None, tuple[str, ...]]:
        """Return what stands in a value's place, and the names of the data subject that it is."""
        known = work.values_replaced.get((entity, value))
        if known is None:
            named = self._subjects(entity, value, work)
            known = self._pseudonyms.replacement(entity, value, work.whose), named
            work.values_replaced[entity, value] = known
        return known

    def _subjects(self, entity: str, value: str, work: _Work) -> tuple[str, ...]:
        if entity not in self._spec.subjects:
            return ()
        return self._pseudonyms.subjects(work.whose.tenant_id, entity, value)

    def _met_again(self, text: str, work: _Work) -> list[Again]:
        """Return the known values in a text, and the parts of names that were told before."""
        again = work.known.find(text)
        if not work.told:
            return again
        taken = [(start, end) for _, start, end, _ in again]
        again += [
            one
            for one in self._met_as_told(text, work)
            if not any(start < one[2] and one[1] < end for start, end in taken)
        ]
        return sorted(again, key=itemgetter(1))

    # Parts of names that other batches of the trajectory told, or will look for.

    def _told(self, names: Iterable[str], work: _Work) -> tuple[Told, ...]:
        """Return the parts of names, for calls of the trajectory that say no more than them."""
        if not work.scope.linked:
            return ()
        told: list[Told] = []
        for name in names:
            mark, subjects = work.values_replaced["PERSON", name]
            for part, as_written in work.known.parts(name) if mark is not None else ():
                told.append(
                    Told(self._word(part, work, as_written=as_written), mark or "", subjects)
                )
        return tuple(told)

    def _met_as_told(self, text: str, work: _Work) -> Iterator[Again]:
        """Yield parts of names that this trajectory told before; each stands for its hash."""
        linked = work.scope.linked
        for match in _LETTERS.finditer(text):
            word = match[0]
            if word not in work.told_words:
                hashes = (
                    self._word(word, work, as_written=True),
                    self._word(word.lower(), work, as_written=False),
                )
                work.told_words[word] = next((work.told[h] for h in hashes if h in work.told), None)
            told = work.told_words[word]
            if told is not None and not means_itself(text, *match.span()):
                stand_in = (told.mark, told.subjects) if linked else ("<PERSON>", ())
                work.values_replaced["PERSON", told.word] = stand_in
                yield "PERSON", match.start(), match.end(), told.word

    def _word(self, word: str, work: _Work, *, as_written: bool) -> str:
        scope = work.scope
        return self._pseudonyms.of_word(
            scope.tenant_id, scope.trajectory_id, word, as_written=as_written
        )

    def _marks_of_parts(self, work: _Work) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return what stands for parts of known names, with the name's own mark and its subjects."""
        marks: dict[str, tuple[str, tuple[str, ...]]] = {}
        for spelling, name in work.known.names():
            part = self._pseudonyms.standing("PERSON", spelling, work.whose)
            whole, subjects = self._stand_in("PERSON", name, work)
            if part is not None and whole is not None and part != whole:
                marks[part] = whole, subjects
        return marks


def _apart(text: str, spans: Sequence[Finding]) -> Iterator[str]:
    """Yield names that were found in two parts, with a line's end, blanks or a comma between them."""
    for one, other in pairwise(spans):
        if one.entity == other.entity == "PERSON" and one.end < other.start:
            whole = text[one.start : other.end]
            if _IN_TWO_PARTS.fullmatch(whole):
                yield whole


def _renamed(redacted: Redacted, marks: Mapping[str, tuple[str, tuple[str, ...]]]) -> Redacted:
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
