"""Decides what stands for what in the texts of one trajectory, for one call of the redactor.

What was found in one text counts in all of them: a name, its parts and its spellings get the same
stand-in everywhere. Earlier batches pass on the parts of names that they found, as keyed hashes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

from governance.detect.finding import Finding
from governance.detect.normalized_text import read_as
from governance.policy.redaction import RedactionSpec
from governance.redact.canonical import meant
from governance.redact.detection_cache import Item
from governance.redact.numbers import IDENTITY, BareNumbers
from governance.redact.own_marks import MarkFinder
from governance.redact.propagate import KnownValues, Recurrence, means_itself, outside_findings
from governance.redact.pseudonym import ENCODED_DATA, Pseudonymizer, PseudonymScope
from governance.redact.report import NamePart, RedactionScope
from governance.redact.splice import resolved, spliced

type StandIn = tuple[str | None, tuple[str, ...]]
"""What replaces a value, None when it stays; and the names of the data subject that it is."""

_SURE_OF_NAME = 0.7
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_IN_TWO_PARTS = re.compile(r"[^\s,]+,?\s+[^\s,]+")
_UNREAD = frozenset({ENCODED_DATA, "OPAQUE_DATA"})
"""Digits that go as a whole: nothing stands for what they say."""


@dataclass(slots=True)
class Replacement:
    """What becomes of a text."""

    spans: list[Finding]
    subjects: dict[str, None]
    names: dict[str, None] = field(repr=False)
    text: str = field(repr=False)


class Substitution:
    """Decides for one call. Learn first, then ask for texts."""

    def __init__(
        self,
        spec: RedactionSpec,
        pseudonyms: Pseudonymizer,
        marks: MarkFinder,
        scope: RedactionScope,
    ) -> None:
        """Decide by a policy.

        Args:
            spec: the policy's ``spec``.
            pseudonyms: makes the stand-ins.
            marks: what redaction writes itself.
            scope: whose texts they are.
        """
        self._spec = spec
        self._pseudonyms = pseudonyms
        self._marks = marks
        self._scope = scope
        reach = scope.tenant_id
        if spec.scope == "trajectory":
            reach += "\x1f" + scope.trajectory_id
        self.whose = PseudonymScope(scope.tenant_id, reach, scope.linked)
        self._known = KnownValues()
        self._meanings: dict[tuple[str, str], str] = {}
        self._stand_ins: dict[tuple[str, str], StandIn] = {}
        self._replacements: dict[object, Replacement | None] = {}
        self._earlier: dict[str, NamePart] = {}
        for part in scope.name_parts:  # of two with one hash the first
            self._earlier.setdefault(part.word, part)
        self._earlier_of_words: dict[str, str | None] = {}

    def learn(self, found: Iterable[tuple[Item, tuple[Finding, ...]]]) -> None:
        """Learn from what was found in each text what to look for in all others.

        Raises:
            RedactionError: there are too many values to look for.
        """
        found = list(found)
        known = self._known = KnownValues.within(item[1] for item, _ in found)
        propagates = self._spec.names.propagate
        for (_, text, _), findings in found:
            for entity, start, end, score, _ in resolved(findings) if findings else ():
                value = self._meant(entity, text[start:end])
                if propagates or entity != "PERSON":
                    known.learn(entity, value, sure=score >= _SURE_OF_NAME)
        if self._scope.people and IDENTITY in self._spec.operators():
            for value in self._scope.people:
                known.learn(IDENTITY, value)
        known.close()
        if self._scope.linked:
            self._pseudonyms.expect(self._scope.tenant_id, self._subjects_met())

    def _subjects_met(self) -> Iterator[tuple[str, str]]:
        """Yield the values that name data subjects, with their entity types."""
        met = {(entity, value) for (entity, _), value in self._meanings.items()}
        yield from (one for one in met | self._known.values if one[0] in self._spec.subjects)

    def of_text(self, text: str, found: tuple[Finding, ...]) -> Replacement | None:
        """Return what becomes of a text by what was found in it and elsewhere; None when it stays."""
        key = text, found
        if key not in self._replacements:
            self._replacements[key] = self._replacement(text, found)
        return self._replacements[key]

    def of_number(self, entity: str, written: str, numbers: BareNumbers) -> int | str | None:
        """Return what becomes of a bare number; None when it stays."""
        return numbers.replacement(entity, written, self.whose)

    def _replacement(self, text: str, found: Sequence[Finding]) -> Replacement | None:
        spans = resolved(found) if found else []
        stands_for: dict[int, str] = {}
        if again := self._recurrences(text):
            marks = self._marks.within(text)
            stands_for, more = outside_findings(again, spans, marks)
            if more:
                spans = resolved((*found, *more))
        if not spans:
            return None
        subjects: dict[str, None] = {}
        names: dict[str, None] = {}
        changes: list[tuple[int, int, str]] = []
        for entity, start, end, _, _ in spans:
            if entity in _UNREAD:
                changes.append((start, end, self._for_digits(entity, text[start:end])))
                continue
            value = self._meant(entity, text[start:end])
            if entity == "PERSON":
                whole = self._known.whole(value)
                if whole == value:
                    whole = self._named_earlier(stands_for.get(start, value))
                value = whole
                names[value] = None
            replacement, people = self._stand_in(entity, value, text[start:end])
            subjects |= dict.fromkeys(people)
            if replacement is not None:
                changes.append((start, end, replacement))
        for value in _names_in_two_parts(text, spans) if len(spans) > 1 else ():
            name = self._meant("PERSON", value)
            subjects |= dict.fromkeys(self._subjects("PERSON", name))
        return Replacement(spans, subjects, names, spliced(text, changes) if changes else text)

    def _meant(self, entity: str, written: str) -> str:
        """Return the value that a span means, worked out once."""
        value = self._meanings.get((entity, written))
        if value is None:
            value = self._meanings[entity, written] = meant(entity, read_as(written))
        return value

    def _for_digits(self, entity: str, written: str) -> str:  # noqa: ARG002 - for surrogates
        """Return what stands for digits that go as a whole."""
        return f"<{entity}>"

    def _stand_in(self, entity: str, value: str, written: str = "") -> StandIn:  # noqa: ARG002 - for surrogates
        """Return what stands for a value, however it is written."""
        stand_in = self._stand_ins.get((entity, value))
        if stand_in is None:
            named = self._subjects(entity, value)
            stand_in = self._pseudonyms.replacement(entity, value, self.whose), named
            self._stand_ins[entity, value] = stand_in
        return stand_in

    def _subjects(self, entity: str, value: str) -> tuple[str, ...]:
        if entity not in self._spec.subjects:
            return ()
        return self._pseudonyms.subjects(self.whose.tenant_id, entity, value)

    def _recurrences(self, text: str) -> list[Recurrence]:
        """Return the known values in a text, and the parts of names that earlier batches found."""
        again = self._known.find(text)
        if not self._earlier:
            return again
        taken = [(start, end) for _, start, end, _ in again]
        again += [
            one
            for one in self._earlier_parts(text)
            if not any(start < one[2] and one[1] < end for start, end in taken)
        ]
        return sorted(again, key=itemgetter(1))

    # Parts of names, between the batches of one trajectory.

    def name_parts(self, names: Iterable[str]) -> tuple[NamePart, ...]:
        """Return the parts of names, for calls of the trajectory that say no more than a part."""
        if not self._scope.linked:
            return ()
        parts: list[NamePart] = []
        for name in names:
            mark, subjects = self._stand_ins["PERSON", name]
            for part, as_written in self._known.parts(name) if mark is not None else ():
                hashed = self._hash(part, as_written=as_written)
                parts.append(NamePart(hashed, mark or "", subjects))
        return tuple(parts)

    def _earlier_parts(self, text: str) -> Iterator[Recurrence]:
        """Yield the parts of names that earlier batches found; the hash of each is its value."""
        for match in _LETTERS.finditer(text):
            part = self._earlier_part(match[0])
            if part is not None and not means_itself(text, *match.span()):
                yield "PERSON", match.start(), match.end(), part

    def _named_earlier(self, name: str) -> str:
        """Return the hash of a name that is a part of one that an earlier batch found; else the name."""
        return (self._earlier_part(name) if self._earlier else None) or name

    def _earlier_part(self, word: str) -> str | None:
        """Return the hash of a part of a name that an earlier batch found; its stand-in is the name's."""
        if word not in self._earlier_of_words:
            as_written = self._earlier.get(self._hash(word, as_written=True))
            part = as_written or self._earlier.get(self._hash(word.lower(), as_written=False))
            self._earlier_of_words[word] = part and part.word
            if part is not None:
                stand_in = (part.mark, part.subjects) if self._scope.linked else ("<PERSON>", ())
                self._stand_ins["PERSON", part.word] = stand_in
        return self._earlier_of_words[word]

    def _hash(self, word: str, *, as_written: bool) -> str:
        scope = self._scope
        return self._pseudonyms.of_word(
            scope.tenant_id, scope.trajectory_id, word, as_written=as_written
        )

    def marks_of_parts(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Return the marks that may stand for parts of known names, each with the whole name's stand-in."""
        marks: dict[str, tuple[str, tuple[str, ...]]] = {}
        for spelling, name in self._known.names():
            part = self._pseudonyms.standing("PERSON", spelling, self.whose)
            whole, subjects = self._stand_in("PERSON", name)
            if part is not None and whole is not None and part != whole:
                marks[part] = whole, subjects
        return marks


def _names_in_two_parts(text: str, spans: Sequence[Finding]) -> Iterator[str]:
    """Yield names that were found in two parts, with a line's end, blanks or a comma between them."""
    for one, other in pairwise(spans):
        if one.entity == other.entity == "PERSON" and one.end < other.start:
            whole = text[one.start : other.end]
            if _IN_TWO_PARTS.fullmatch(whole):
                yield whole
