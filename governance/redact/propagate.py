"""Finds known values again everywhere in a trajectory; names also by their parts and spellings.

Detection finds a value where something tells what it is: ``my name is Nina Hartwig``. Elsewhere the same
value may stand alone: ``ask Nina``, ``nhartwig``. So each value that detection found is learned, with the
spellings in which it may come again (:meth:`KnownValues.learn`). One automaton then looks for all spellings
in each text (:meth:`KnownValues.find`). A name that is a word too counts only as it was written.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ahocorasick

from governance.detect.code_terms import is_plain_word, is_term
from governance.detect.finding import Finding
from governance.names.words import (
    ambiguous_names,
    common,
    everyday,
    hand_written_first_names,
    is_plain,
    last_names,
    plain_words,
    things,
    words_of_other_languages,
)
from governance.redact.canonical import without_accents
from governance.redact.own_marks import OwnMarks
from governance.redact.report import RedactionError

VERSION = "propagate-9"
SCORE = 0.6
_WORD = re.compile(r"[^\W\d_][\w'\-]*")
_SHORTEST_VALUE = 6
_SHORTEST_PART, _SHORTEST_IN_SMALL, _SHORTEST_HANDLE = 3, 4, 5
_LOOKED_UP = 100
"""Characters of a spelling that the look-up holds. In text that repeats itself it takes as many steps at
each character as the text repeats within a spelling: with a whole one of 18,000 that was half of
redaction, and grew with its square."""
_MOST_SPELLINGS = 100_000
"""Those of some ten thousand names; their look-up takes some hundred megabytes."""
_JOINTS = ("-", "_", ".", "", "%20", "+", ", ")
"""What the words of a name are joined by in addresses and file names; turned round by the last."""
_IN_TWO_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae", "ø": "oe", "å": "aa", "Ø": "Oe", "Å": "Aa"}
)  # fmt: skip
_IN_ONE_LETTER = str.maketrans(
    {"ß": "ss", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "æ": "ae", "đ": "d", "Đ": "D", "ı": "i"}
)
"""Letters that Unicode does not take apart."""

type Recurrence = tuple[str, int, int, str]
"""Entity, start and end of a known value in a text, and the value that it stands for."""


@dataclass(slots=True)
class KnownValues:
    """Values found in one trajectory, and the spellings by which they are found again.

    Names count in any case, unless they are words too: those count as they were written.
    """

    joints: tuple[str, ...] = _JOINTS
    """Those of the joints that some text holds."""
    _values: dict[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    """Spelling in small letters to (entity, value that it stands for)."""
    _as_written: dict[str, set[str]] = field(default_factory=dict, repr=False)
    """Those of the spellings that count only as they were written."""
    _parts: dict[str, dict[tuple[str, bool], None]] = field(default_factory=dict, repr=False)
    """Parts of names, each with whether it counts only as it was written, by name."""
    _learned: set[tuple[str, str, bool]] = field(default_factory=set, repr=False)
    _longer: dict[str, list[str]] = field(default_factory=dict, repr=False)
    """By what the look-up holds of them, the spellings that it does not hold whole."""
    _automaton: Any = field(default=None, repr=False)

    @classmethod
    def within(cls, texts: Iterable[str]) -> "KnownValues":
        """Return what learns for these texts: no spelling with a joint that none of them holds."""
        held = "\n".join(texts)
        return cls(joints=tuple([joint for joint in _JOINTS if joint in held]))

    @property
    def values(self) -> frozenset[tuple[str, str]]:
        """Return what spellings stand for: entities and values."""
        return frozenset(self._values.values())

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield spellings and parts of names, and the names that they stand for."""
        for spelling, (entity, value) in self._values.items():
            if entity == "PERSON":
                yield spelling, value

    def parts(self, name: str) -> Iterable[tuple[str, bool]]:
        """Return the words by which a name is met, and whether they count only as they are written."""
        return self._parts.get(name, ())

    def whole(self, value: str) -> str:
        """Return the name that a name or a part of one stands for; itself when nobody has it."""
        known = self._values.get(_small(value))
        return known[1] if known is not None and known[0] == "PERSON" else value

    def learn(self, entity: str, value: str, *, sure: bool = True) -> None:
        """Remember a value; the parts of a name only when it is sure to be one.

        Raises:
            RedactionError: there are too many to look for.
        """
        if (entity, value, sure) in self._learned:
            return
        self._learned.add((entity, value, sure))
        if entity == "PERSON":
            for written in dict.fromkeys((value, *_in_plain_letters(value))):
                self._learn_name(written, value, sure=sure)
        elif len(value) >= _SHORTEST_VALUE and not value.isalpha():
            self._add(value, entity, value, as_written=entity != "EMAIL_ADDRESS")
        elif entity == "USERNAME" and sure and _is_no_word(value):
            self._add(value, entity, value, as_written=True)

    def _learn_name(self, written: str, value: str, *, sure: bool) -> None:
        """Remember a name in full as it may be written, its spellings and handles, and its parts."""
        words = [word for word in _WORD.findall(written) if len(word) >= _SHORTEST_PART]
        if len(words) == 1 and not sure and not _is_listed(words[0]):
            return
        if " " in written:
            self._add(written, "PERSON", value)
        elif written[:1].isupper() or _is_unspaced(written[:1]):
            self._add(written, "PERSON", value, as_written=not sure or _is_a_word_too(written))
        if len(words) > 1:
            for spelling in _spellings(words, self.joints):
                self._add(spelling, "PERSON", value)
        if len(words) > 1 and sure:
            for handle in _handles(words[0], words[-1], self.joints):
                self._add(handle, "PERSON", value)
        listed = len(words) > 1 and any(_is_listed(word.capitalize()) for word in words)
        for word in words:
            self._learn_part(word, value, sure=sure, alone=len(words) == 1)
            if listed and not sure and word[0].isupper() and word.lower() not in plain_words():
                self._add_part(word, value, as_written=True)

    def _learn_part(self, word: str, value: str, *, sure: bool, alone: bool) -> None:
        """Remember a part of a name. What may be a product by itself keeps its capital."""
        plain, is_listed = word.lower(), _is_listed(word.capitalize())
        if plain in everyday() or not (sure or is_listed):
            return
        if plain in common():
            if is_listed and word[0].isupper():
                self._add_part(word.capitalize(), value, as_written=True)
        elif _is_a_word_too(word) or (alone and not sure):
            if word[0].isupper():
                self._add_part(word.capitalize(), value, as_written=True)
                self._add(f"@{plain}", "PERSON", value)
        elif sure or word[0].isupper():
            self._add_part(word, value, as_written=False)

    def _add_part(self, word: str, value: str, *, as_written: bool) -> None:
        self._add(word, "PERSON", value, as_written=as_written)
        parts = self._parts.setdefault(value, {})
        parts[word if as_written else _small(word), as_written] = None

    def _add(self, spelling: str, entity: str, value: str, *, as_written: bool = False) -> None:
        small = _small(spelling)
        if entity == "PERSON" and self._is_known_alone(small) and " " in value:
            self._values[small] = entity, value  # who was named by a part is now named in full
        if small not in self._values:
            if len(self._values) >= _MOST_SPELLINGS:
                raise RedactionError(
                    "there are too many different values in one trajectory to look for each of them "
                    "everywhere; it is held back. Govern it in smaller batches."
                )
            self._values[small] = entity, value
            if as_written:
                self._as_written[small] = {spelling}
        elif not as_written:
            self._as_written.pop(small, None)
        elif small in self._as_written:
            self._as_written[small].add(spelling)

    def _is_known_alone(self, small: str) -> bool:
        """Whether a word stands for a name of that one word."""
        entity, value = self._values.get(small, ("", ""))
        return entity == "PERSON" and _small(value) == small and " " not in value

    def close(self) -> None:
        """Build the look-up; call once, after the last :meth:`learn`."""
        if self._values:
            self._automaton = ahocorasick.Automaton()
            for spelling in self._values:
                beginning = spelling[:_LOOKED_UP]
                if beginning != spelling:
                    itself = [beginning] if beginning in self._values else []
                    self._longer.setdefault(beginning, itself).append(spelling)
                self._automaton.add_word(beginning, beginning)
            self._automaton.make_automaton()

    def find(self, text: str) -> list[Recurrence]:
        """Return what is met again, whole words alone and the longest at each place.

        What is of one type and overlaps comes as one.
        """
        if self._automaton is None:
            return []
        small = _small(text)
        if small in self._values and self._counts(small, text, 0, len(text)):
            entity, value = self._values[small]
            return [(entity, 0, len(text), value)]
        longest = self._longest(text, small)
        return list(self._without_overlap(longest)) if longest else []

    def _counts(self, spelling: str, text: str, start: int, end: int) -> bool:
        """Whether a spelling is met as it was written, where that counts, and does not mean itself."""
        exact = self._as_written.get(spelling)
        if exact is not None and text[start:end] not in exact:
            return False
        return not (spelling.isalpha() and means_itself(text, start, end))

    def _longest(self, text: str, small: str) -> dict[int, tuple[int, str]]:
        """Return the end and the spelling of the longest value that begins at each place."""
        size = len(text)
        longest: dict[int, tuple[int, str]] = {}
        for last, beginning in self._automaton.iter(small):
            start = last + 1 - len(beginning)
            if start and text[start - 1].isalnum() and not _is_unspaced(text[start]):
                continue
            for spelling in self._longer.get(beginning, (beginning,)):
                end = start + len(spelling)
                if end < size and text[end].isalnum() and not _is_unspaced(text[end - 1]):
                    continue
                if start in longest and longest[start][0] >= end:
                    continue
                if not small.startswith(spelling, start):
                    continue  # begins like it
                if _begins_an_address(text, end) and ", " in spelling:
                    continue
                if self._counts(spelling, text, start, end):
                    longest[start] = (end, spelling)
        return longest

    def _without_overlap(self, longest: dict[int, tuple[int, str]]) -> Iterator[Recurrence]:
        """Yield what was found, in order; values of one type that overlap come as one."""
        begin = behind = 0
        held: tuple[str, str] | None = None
        for start in sorted(longest):
            end, spelling = longest[start]
            if end <= behind:
                continue
            entity, value = self._values[spelling]
            if held is not None and start < behind and held[0] == entity:
                behind = end
                continue
            if held is not None:
                yield held[0], begin, behind, held[1]
            begin, behind, held = start, end, (entity, value)
        if held is not None:
            yield held[0], begin, behind, held[1]


def outside_findings(
    again: Iterable[Recurrence], spans: Iterable[Finding], marks: OwnMarks | None
) -> tuple[dict[int, str], list[Finding]]:
    """Map each known value to its replacement; also return those outside any span of the same type.

    Args:
        again: the known values in a text, in order.
        spans: what was found in it, in order and without overlap.
        marks: what redaction wrote in it itself.
    """
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
            more.append(Finding(entity, start, end, SCORE, "propagation"))
    return stands_for, more


def _in_plain_letters(name: str) -> Iterator[str]:
    """Yield a name as it is written where its letters are not to be had: Zoelner and Zolner for Zölner."""
    if name.isascii() or not all(char < "\u0250" for char in name):
        return
    for letters in (_IN_TWO_LETTERS, _IN_ONE_LETTER):
        yield without_accents(name.translate(letters))


def _is_listed(word: str) -> bool:
    """Whether this is a given or a family name that was written down for this project."""
    return word in hand_written_first_names() or word in last_names()


def _is_no_word(account: str) -> bool:
    """Whether an account of letters alone is no word that may stand for itself elsewhere."""
    plain = account.lower()
    return len(plain) >= _SHORTEST_HANDLE and not is_plain(plain) and plain not in things()


def _small(text: str) -> str:
    """Return a text in small letters, each at its place."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join([one if len(one := char.lower()) == 1 else char for char in text])


def _begins_an_address(text: str, end: int) -> bool:
    """Whether the word before ``end`` is the beginning of an address: ``Hartwig, leonie.h@…``."""
    return text[end : end + 1] in (".", "@", "_", "-", "+") and text[end + 1 : end + 2].isalnum()


def _is_unspaced(char: str) -> bool:
    """Whether a letter is of a script that puts no spaces between words, as far as a letter tells."""
    return char.isalpha() and char.lower() == char.upper()


def _is_a_word_too(word: str) -> bool:
    """Whether a name in small letters may be something else."""
    plain = word.lower()
    return (
        len(word) < _SHORTEST_IN_SMALL
        or plain in common()
        or plain in words_of_other_languages()
        or word.capitalize() in ambiguous_names()
    )


def _spellings(words: Sequence[str], joints: Iterable[str]) -> Iterator[str]:
    """Yield how the words of a name are written as one, and short."""
    yield f"{words[0][0]}. {words[-1]}"
    for joint in joints:
        if joint != ", ":
            yield joint.join(words)
        yield f"{words[-1]}{joint}{words[0]}"


def _handles(first: str, last: str, joints: Iterable[str]) -> Iterator[str]:
    """Yield account names: an initial and a name."""
    for joint in joints:
        if joint in ("", ".", "_", "-"):
            for handle in (f"{first[0]}{joint}{last}", f"{first}{joint}{last[0]}"):
                if len(handle) >= _SHORTEST_HANDLE and handle.lower() not in common():
                    yield handle


def means_itself(text: str, start: int, end: int) -> bool:
    """Whether a part of a name is used as a word, a month or in a term: Mark the node, Taylor series."""
    if is_term(text, end):
        return True
    word = text[start:end]
    return word.capitalize() in ambiguous_names() and is_plain_word(text, start, end)
