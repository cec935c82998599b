"""The redactor: finds, propagates and replaces in messages, JSON and text of one trajectory.

A call either returns everything redacted or raises: a detector that fails or runs out of time
never lets text through.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter

from governance.detect.finding import Detector, Finding, Unit
from governance.detect.keys import tells_biometric
from governance.detect.named_tuples import new
from governance.detect.normalized_text import read_as, view_of
from governance.detect.rules.identity_numbers import IDENTITY_WORDS
from governance.policy.redaction import Operator, RedactionSpec
from governance.redact.canonical import meant
from governance.redact.detection_cache import Findings, Item, Looking, by_hash
from governance.redact.places import shown
from governance.redact.propagate import SCORE as PROPAGATED
from governance.redact.propagate import VERSION as PROPAGATION_VERSION
from governance.redact.propagate import Again, Known, means_itself
from governance.redact.pseudonym import OwnMarks, Pseudonymizer, Whose, own_marks
from governance.redact.report import (
    Place,
    Redacted,
    RedactedJson,
    RedactedText,
    RedactionError,
    RedactionReport,
    RedactionScope,
    Told,
)
from governance.redact.segments import (
    DECODED,
    Before,
    Blobs,
    Insides,
    Path,
    Visitor,
    rewritten,
    rewritten_text,
)
from governance.redact.splice import resolved, spliced
from governance.redact.subject_keys import SubjectKeys
from governance.vocabulary import media_type, role
from trajectory.canonical import JsonValue
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

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
_NUMBER_KEYS = (
    "phone", "mobile", "tel", "fax", "cell", "card", "ssn", "social", "account", "acct", "routing",
    "passport", "mrn", "medical", "patient", "pin", "passcode", "password", "otp", "tax_id",
    "national_id", "license", "licence", "zip", "postcode", "postal", "plz", "npi", "chart",
    "encounter", "claim", "policy", "member", "subscriber", "serial", "imei", "contact", "whatsapp",
    "caller", "callback", "msisdn", "number", "iban", "dob", "birth", *IDENTITY_WORDS,
)  # fmt: skip
"""Parts of keys without which a number is only looked at when it is as long as a card's; who looks
for every identifier asks of each key."""
_FEWEST_DIGITS, _MOST_DIGITS = 4, 19
"""Of numbers that are looked at as such; shorter ones may be ages."""
_CARD_DIGITS = (15, 16)
_IDENTITY = "USERNAME"
_SHORTEST_IDENTITY = 6
_NUMBER_ENTITIES = frozenset(
    {"CREDIT_CARD", "PHONE_NUMBER", "US_SSN", "BANK_ACCOUNT", "NATIONAL_ID"}
)


@dataclass(slots=True)
class _Made:
    """What becomes of a text."""

    spans: list[Finding]
    subjects: dict[str, None]
    names: dict[str, None] = field(repr=False)
    text: str = field(repr=False)


@dataclass(slots=True)
class _Work:
    """One call's state: what was found where, and the clock."""

    scope: RedactionScope
    deadline: float
    texts: dict[Item, None] = field(default_factory=dict, repr=False)
    numbers: dict[Item, None] = field(default_factory=dict, repr=False)
    """Digits of bare numbers that may be somebody's."""
    unseen: dict[Item, int] = field(default_factory=dict, repr=False)
    """Texts that only replacing has made, and how deep within others they stand."""
    found: dict[Item, tuple[Finding, ...]] = field(default_factory=dict, repr=False)
    """What is in each text that was looked at."""
    spans: dict[Item, list[Finding]] = field(default_factory=dict, repr=False)
    """What that comes to, where there is something."""
    made: dict[Item, _Made | None] = field(default_factory=dict, repr=False)
    """What becomes of each text, for those that are met again."""
    known: Known = field(default_factory=Known)
    replaced: dict[tuple[str, str], tuple[str | None, tuple[str, ...]]] = field(
        default_factory=dict, repr=False
    )
    """What stands in a value's place, and whom it names, by entity and value."""
    told: dict[str, Told] = field(default_factory=dict, repr=False)
    """Parts of names that are not said in full here, by their keyed hashes."""
    words: dict[str, Told | None] = field(default_factory=dict, repr=False)
    """Words that were looked for among them."""
    insides: Insides = field(default_factory=Insides, repr=False)
    read: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """What spans mean, by entity and what they hold."""

    def meant(self, entity: str, held: str) -> str:
        """Return the value that a span means, worked out once."""
        plain = self.read.get((entity, held))
        if plain is None:
            plain = self.read[entity, held] = meant(entity, read_as(held))
        return plain


class _Report:
    """Gathers one report while a value is rewritten."""

    def __init__(self, versions: dict[str, str]) -> None:
        self._versions = versions
        self.counts: dict[str, int] = {}
        self.places: list[Place] = []
        self.subjects: dict[str, None] = {}
        self.names: dict[str, None] = {}

    def add(self, path: Path, spans: Iterable[Finding], before: Before | None = None) -> None:
        where = shown(path)
        counts, places = self.counts, self.places
        for entity, start, end, _, detector in spans:
            counts[entity] = counts.get(entity, 0) + 1
            was = (start, end) if before is None else before.of(start, end)
            places.append(new(Place, (entity, where, *was, detector)))

    def done(self, names: tuple[Told, ...] = ()) -> RedactionReport:
        used = {place.detector.partition(".")[0] for place in self.places}
        versions = {name: self._versions.get(name, self._versions["presidio"]) for name in used}
        return RedactionReport(self.counts, tuple(self.places), versions, names)


def _keys(path: Path) -> Path:
    """Return the part of a key path that detection depends on."""
    return tuple([key for key in path[-6:] if not key.isdigit() and key != DECODED][-3:])


def _met_again(
    again: Iterable[Again], spans: Iterable[Finding], marks: OwnMarks | None
) -> tuple[dict[int, str], list[Finding]]:
    """Return what values stand for, by their places, and those that are no part of a span of their type."""
    stands_for: dict[int, str] = {}
    more: list[Finding] = []
    left = iter(spans)
    following = next(left, None)
    around, behind = "", 0  # type and end of the last span that begins before
    for entity, start, end, value in again:
        if marks is not None and not marks.leave_free(start, end):
            continue
        stands_for[start] = value
        while following is not None and following.start <= start:
            around, _, behind, _, _ = following
            following = next(left, None)
        if around != entity or end > behind:
            more.append(Finding(entity, start, end, PROPAGATED, "propagation"))
    return stands_for, more


def _still(found: tuple[Finding, ...] | None, was: str, text: str) -> tuple[Finding, ...] | None:
    """Return what is in digits that were made anew, where that follows from what was in the old ones.

    What they say was looked at and replaced. As digits they are what they were: nothing, or as a
    whole a secret; None where only looking tells.
    """
    if found is None or any(one.start > 0 or one.end < len(was) for one in found):
        return None
    return tuple([one._replace(end=len(text)) for one in found])


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
        self._biometric = "BIOMETRIC" in self._operators
        every_key = "IDENTIFIER" in self._operators
        self._number_key = re.compile(
            ""
            if every_key
            else "|".join(_NUMBER_KEYS)
            + "|(?:^|_)(?:to|from|sin|cpf|nif|dni|rut|cnp|bsn|inn|egn|tfn|oib)$"
        )
        self._versions = {detector.name: detector.version for detector in detectors}
        self._versions.setdefault("presidio", "")
        self._versions |= {"propagation": PROPAGATION_VERSION, "walker": "2", "caller": "1"}

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
        return self._redacted(messages, scope)[0]

    def redact_stored(
        self, said: Sequence[Message], stored: Sequence[Message], *, scope: RedactionScope
    ) -> list[Redacted]:
        """Redact stored messages of a trajectory again, with what was said in it since.

        What stood for a part of a name alone becomes what stands for the name.

        Raises:
            RedactionError: a detector failed or time ran out.
        """
        done, work = self._redacted([*said, *stored], scope)
        marks = self._marks_of_parts(work)
        return [_renamed(one, marks) for one in done[len(said) :]]

    def _redacted(
        self, messages: Sequence[Message], scope: RedactionScope
    ) -> tuple[list[Redacted], _Work]:
        work = self._begin(scope)
        if not self._operators:  # policy looks for nothing
            return [Redacted(message, RedactionReport(), ()) for message in messages], work
        with _depth_is_an_error():
            for message in messages:
                self._message(message, (), self._gathering(work))
            self._look(work)
            done = self._replaced(
                messages, work, lambda message, visitor: self._message(message, (), visitor)
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
        self._pseudonyms.forget()
        return redacted, work

    def _told(self, names: Iterable[str], work: _Work) -> tuple[Told, ...]:
        """Return the parts of names, for calls of the trajectory that say no more than them."""
        scope, told = work.scope, list[Told]()
        if not scope.linked:
            return ()
        for name in names:
            mark, subjects = work.replaced["PERSON", name]
            for part, as_written in work.known.parts(name) if mark is not None else ():
                word = self._pseudonyms.of_word(
                    scope.tenant_id, scope.trajectory_id, part, as_written=as_written
                )
                told.append(Told(word, mark or "", subjects))
        return tuple(told)

    def _met_as_told(self, text: str, work: _Work) -> Iterator[Again]:
        """Yield parts of names that this trajectory told before; each stands for its hash."""
        for match in _LETTERS.finditer(text):
            word = match[0]
            if word not in work.words:
                hashes = [
                    self._pseudonyms.of_word(
                        work.scope.tenant_id, work.scope.trajectory_id, said, as_written=as_written
                    )
                    for said, as_written in ((word, True), (word.lower(), False))
                ]
                work.words[word] = next((work.told[h] for h in hashes if h in work.told), None)
            told = work.words[word]
            if told is not None and not means_itself(text, *match.span()):
                work.replaced["PERSON", told.word] = (
                    told.mark if work.scope.linked else "<PERSON>",
                    told.subjects if work.scope.linked else (),
                )
                yield "PERSON", match.start(), match.end(), told.word

    def _marks_of_parts(self, work: _Work) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return what stands for parts of known names, with the name's own mark and its subjects."""
        whose = self._whose(work.scope)
        marks: dict[str, tuple[str, tuple[str, ...]]] = {}
        for spelling, name in work.known.names():
            part = self._pseudonyms.standing("PERSON", spelling, whose)
            whole, subjects = self._known_as("PERSON", name, whose)
            if part is not None and whole is not None and part != whole:
                marks[part] = whole, subjects
        return marks

    def _whose(self, scope: RedactionScope) -> Whose:
        reach = scope.tenant_id
        if self._spec.scope == "trajectory":
            reach += "\x1f" + scope.trajectory_id
        return Whose(scope.tenant_id, reach, scope.linked)

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
            for message in messages:
                self._message(message, (), self._gathering(work))
            return by_hash(self._looking.found([*work.texts, *work.numbers], work.deadline))

    def learn(self, found: Findings) -> None:
        """Take over what another redactor of the same policy found, so as not to look again."""
        self._looking.learn(found)

    def redact_json(
        self, value: JsonValue, *, scope: RedactionScope, path: str = ""
    ) -> RedactedJson:
        """Redact a JSON value; ``path`` (``/tools/0``) leads the places of the report.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        if not self._operators:
            return RedactedJson(value, RedactionReport(), ())
        work = self._begin(scope)
        at = tuple(part for part in path.split("/") if part)
        with _depth_is_an_error():
            rewritten(value, at, self._gathering(work))
            self._look(work)
            ((clean, report),) = self._replaced(
                [value], work, lambda value, visitor: rewritten(value, at, visitor)
            )
        self._pseudonyms.forget()
        return RedactedJson(clean, report.done(), tuple(report.subjects))

    def redact_text(self, text: str, *, scope: RedactionScope, path: str = "") -> RedactedText:
        """Redact one text, JSON and base64 within it included.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        done = self.redact_json(text, scope=scope, path=path)
        return RedactedText(str(done.value), done.report, done.subjects)

    def _begin(self, scope: RedactionScope) -> _Work:
        self._pseudonyms.begin()
        told: dict[str, Told] = {}
        for one in scope.told:  # of two with one part the first
            told.setdefault(one.word, one)
        return _Work(scope, self._looking.deadline(), told=told)

    # What the two walks do: the first gathers texts to look at, the second replaces.

    def _gathering(self, work: _Work) -> Visitor:
        texts = work.texts

        def gather(text: str, path: Path, blobs: Blobs | None) -> str:
            texts[_keys(path), text, blobs is not None and blobs.is_no_name] = None
            return text

        def number(written: str, path: Path) -> None:
            digits = self._digits_of(written, path)
            if digits:
                work.numbers[_keys(path), digits, False] = None

        def ignore(*_: object) -> None:
            return None

        return Visitor(gather, number, ignore, str, work.insides)

    def _look(self, work: _Work) -> None:
        """Find in everything that was gathered, and learn what to look for elsewhere."""
        work.found = self._looking.found([*work.texts, *work.numbers], work.deadline)
        known = work.known = Known.within(text for _, text, _ in work.texts)
        propagates, named = self._spec.names.propagate, self._spec.subjects
        subjects = set[tuple[str, str]]()
        for item in work.texts:
            found = work.found[item]
            if not found:
                continue
            text = item[1]
            spans = work.spans[item] = resolved(found)
            for entity, start, end, score, _ in spans:
                value = work.meant(entity, text[start:end])
                if propagates or entity != "PERSON":
                    known.learn(entity, value, sure=score >= _SURE_OF_NAME)
                if entity in named:
                    subjects.add((entity, value))
        if _IDENTITY in self._operators:
            for value in work.scope.people:
                known.learn(_IDENTITY, value)
        known.close()
        subjects.update(one for one in known.values if one[0] in named)
        if work.scope.linked:
            self._pseudonyms.expect(work.scope.tenant_id, subjects)

    def _replaced[T](
        self, values: Sequence[T], work: _Work, walk: Callable[[T, Visitor], T]
    ) -> list[tuple[T, _Report]]:
        """Return values with everything replaced, and what was replaced in each.

        Where base64 is replaced, the text around it becomes another one and is looked at as well:
        the innermost first and all of them at once, until a walk meets none that is new.
        """
        done: dict[int, tuple[T, _Report]] = {}
        left = list(range(len(values)))
        while left:
            again: list[int] = []
            unseen: dict[Item, int] = {}
            for place in left:
                report = _Report(self._versions)
                done[place] = walk(values[place], self._replacing(work, report)), report
                if work.unseen:
                    again.append(place)
                    unseen |= work.unseen
                    work.unseen.clear()
            deepest = max(unseen.values(), default=0)
            fresh = [item for item, depth in unseen.items() if depth == deepest]
            work.found |= self._looking.found(fresh, work.deadline)
            left = again
        return [done[place] for place in range(len(values))]

    def _replacing(self, work: _Work, report: _Report) -> Visitor:
        spec, whose = self._spec, self._whose(work.scope)

        def put(text: str, path: Path, blobs: Blobs | None) -> str:
            keys, is_no_name = _keys(path), blobs is not None and blobs.is_no_name
            item = keys, text, is_no_name
            seen = work.found.get(item)
            if seen is None and blobs is not None and blobs.was is not None:
                seen = _still(work.found.get((keys, blobs.was, is_no_name)), blobs.was, text)
            if seen is None:
                work.unseen[item] = path.count(DECODED)
                return text
            if work.scope.people and self._is_identity(text, path, work.scope):
                whole = Finding(_IDENTITY, 0, len(text), 1.0, "caller")
                made = self._made(text, (*seen, whole), None, work, whose)
            elif item in work.made:
                made = work.made[item]
            else:
                made = self._made(text, seen, work.spans.get(item), work, whose)
                work.made[item] = made
            if made is None:
                return text
            before = Before(blobs.moved) if blobs is not None and blobs.moved else None
            report.add(path, made.spans, before)
            report.subjects.update(made.subjects)
            report.names.update(made.names)
            return made.text

        def number(written: str, path: Path) -> int | None:
            entity = self._number_entity(written, path, work)
            if entity is None:
                return None
            report.add(path, [Finding(entity, 0, len(written), 1.0, "walker")])
            return self._wider_number(entity, written, whose)

        def opaque(size: int, path: Path) -> str | None:
            if spec.opaque_data == "keep" or "OPAQUE_DATA" not in self._operators:
                return None
            report.add(path, [Finding("OPAQUE_DATA", 0, size, 1.0, "walker")])
            return "<OPAQUE_DATA>"

        def media(name: str) -> str:
            return self._pseudonyms.of_media(work.scope.tenant_id, name)

        return Visitor(put, number, opaque, media, work.insides)

    def _made(
        self,
        text: str,
        seen: tuple[Finding, ...],
        spans: list[Finding] | None,
        work: _Work,
        whose: Whose,
    ) -> _Made | None:
        """Return what becomes of a text in which something was found; None when it stays.

        Args:
            text: the text.
            seen: what was found in it.
            spans: what that comes to, when it is known.
            work: what is known of other texts.
            whose: whose text it is.
        """
        again = work.known.find(text)
        if work.told:
            taken = [(start, end) for _, start, end, _ in again]
            again += [
                one
                for one in self._met_as_told(text, work)
                if not any(start < one[2] and one[1] < end for start, end in taken)
            ]
            again.sort(key=itemgetter(1))
        if not (seen or again):
            return None
        if spans is None:
            spans = resolved(seen)
        more: list[Finding] = []
        stands_for: dict[int, str] = {}
        if again:
            stands_for, more = _met_again(again, spans, OwnMarks.within(text, self._marks))
            if not (spans or more):
                return None
        if more:
            spans = resolved((*seen, *more))
        subjects: dict[str, None] = {}
        names: dict[str, None] = {}
        changes: list[tuple[int, int, str]] = []
        for entity, start, end, _, _ in spans:
            value = work.meant(entity, text[start:end])
            if entity == "PERSON":
                whole = work.known.whole(value)
                value = stands_for.get(start, value) if whole == value else whole
                names[value] = None
            known_as = work.replaced.get((entity, value))
            if known_as is None:
                known_as = work.replaced[entity, value] = self._known_as(entity, value, whose)
            replacement, whom = known_as
            if whom:
                subjects |= dict.fromkeys(whom)
            if replacement is not None:
                changes.append((start, end, replacement))
        return _Made(spans, subjects, names, spliced(text, changes) if changes else text)

    def _known_as(
        self, entity: str, value: str, whose: Whose
    ) -> tuple[str | None, tuple[str, ...]]:
        """Return what stands in a value's place, and the names of the data subject that it is."""
        replacement = self._pseudonyms.replacement(entity, value, whose)
        if entity not in self._spec.subjects:
            return replacement, ()
        return replacement, self._pseudonyms.subjects(whose.tenant_id, entity, value)

    def _is_identity(self, text: str, path: Path, scope: RedactionScope) -> bool:
        """Whether a whole text is the id of an end user; short ones only where clients put ids."""
        if text not in scope.people or _IDENTITY not in self._operators:
            return False
        return len(text) >= _SHORTEST_IDENTITY or "ext" in path

    def _digits_of(self, written: str, path: Path) -> str:
        """Return the digits of a bare number that may be somebody's; keys must speak for all but cards."""
        digits = written.lstrip("-")
        size = len(digits)
        if size > _MOST_DIGITS or not digits.isdigit():
            return ""
        if size in _CARD_DIGITS:
            return digits
        key = "_".join(path[-2:]).lower()
        speaks = "age" in key if size < _FEWEST_DIGITS else self._number_key.search(key)
        return digits if speaks else ""

    def _number_entity(self, written: str, path: Path, work: _Work) -> str | None:
        """Return what a bare number is."""
        if self._biometric and tells_biometric(_keys(path)):
            return "BIOMETRIC"
        number = written.lstrip("-")
        if number in work.scope.people and "ext" in path and _IDENTITY in self._operators:
            return _IDENTITY
        digits = self._digits_of(written, path)
        if not digits:
            return None
        keys = _keys(path)
        found = work.found.get((keys, digits, False))
        if found is None:
            work.unseen[keys, digits, False] = path.count(DECODED)
            return None
        if len(digits) < _FEWEST_DIGITS:
            return next((f.entity for f in found if f.entity == "AGE"), None)
        for finding in found:
            whole = finding.end - finding.start == len(digits)
            if whole and (finding.entity in _NUMBER_ENTITIES or finding.detector == "key_paths"):
                return finding.entity
        return None

    def _wider_number(self, entity: str, written: str, whose: Whose) -> int | None:
        """Return what replaces a number: the lower end of its wider form, 0 for all others."""
        if self._operators[entity] is Operator.KEEP:
            return None
        if self._operators[entity] is not Operator.GENERALISE:
            return 0
        wider = self._pseudonyms.replacement(entity, written, whose) or "0"
        begin = wider.partition("-")[0].rstrip("+")
        return int(begin) if begin.isdigit() else 0

    # Messages.

    def _message(self, message: Message, path: Path, visitor: Visitor) -> Message:
        parts = tuple(
            self._part(part, (*path, "parts", str(place)), visitor)
            for place, part in enumerate(message.parts)
        )
        name = message.name
        if name is not None:
            name = rewritten_text(name, (*path, "participant", "name"), visitor)
        return Message(role(message.role), parts, name)

    def _part(self, part: Part, path: Path, visitor: Visitor) -> Part:
        def text(value: str, key: str) -> str:
            return rewritten_text(value, (*path, key), visitor)

        match part:
            case TextPart():
                return TextPart(text(part.text, "text"))
            case ReasoningPart():
                signature = part.signature
                if signature is not None:
                    signature = text(signature, "signature")
                return ReasoningPart(text(part.text, "text"), signature)
            case ToolCallPart():
                arguments = rewritten(part.arguments, (*path, "arguments"), visitor)
                call_id, name = text(part.call_id, "call_id"), text(part.name, "tool")
                return replace(part, call_id=call_id, name=name, arguments=arguments)
            case ToolResultPart():
                content = rewritten(part.content, (*path, "content"), visitor)
                return replace(part, call_id=text(part.call_id, "call_id"), content=content)
            case MediaPart():
                url = None if part.url is None else text(part.url, "url")
                sha256 = None if part.sha256 is None else visitor.media(part.sha256)
                return MediaPart(media_type(part.media_type), sha256, part.size_bytes, url)
            case OpaquePart():
                return OpaquePart(rewritten(part.value, (*path, "value"), visitor))


def known_entities(detectors: Iterable[Detector]) -> frozenset[str]:
    """Return every entity type that these detectors or the walker can find."""
    return frozenset({"OPAQUE_DATA"}.union(*(detector.entities for detector in detectors)))
