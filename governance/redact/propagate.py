"""What was found once is found everywhere in the same trajectory: names by their parts too."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ahocorasick

from governance.detect.in_code import is_plain_word, is_term
from governance.names.words import (
    ambiguous_names,
    common,
    everyday,
    hand_written_first_names,
    last_names,
)

VERSION = "propagate-4"
SCORE = 0.6
_WORD = re.compile(r"[^\W\d_][\w'\-]*")
_SHORTEST_VALUE = 6
_SHORTEST_PART = 3
_MOST_VALUES = 4000
_JOINTS = ("-", "_", ".", "", "%20", "+", ", ")
"""What the words of a name are joined by in addresses and file names; turned round by the last."""

type Again = tuple[str, int, int, str]
"""Entity, start and end of a value that is met again, and what it stands for."""


@dataclass(slots=True)
class Known:
    """Values found in one trajectory, and whose they are. Lives as long as one call."""

    values: dict[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    """Spelling to (entity, value that it stands for)."""
    joints: tuple[str, ...] = _JOINTS
    """Those of them that can be met at all."""
    _learned: set[tuple[str, str, bool]] = field(default_factory=set, repr=False)
    _automaton: Any = field(default=None, repr=False)

    @classmethod
    def within(cls, texts: Iterable[str]) -> "Known":
        """Return what learns for these texts: no spelling with a joint that none of them holds."""
        held = "\n".join(texts)
        return cls(joints=tuple([joint for joint in _JOINTS if joint in held]))

    def learn(self, entity: str, value: str, *, sure: bool = True) -> None:
        """Remember a value; the parts of a name only when it is sure to be one."""
        if (entity, value, sure) in self._learned or len(self.values) >= _MOST_VALUES:
            return
        self._learned.add((entity, value, sure))
        if entity == "PERSON":
            self._learn_name(value, sure=sure)
        elif len(value) >= _SHORTEST_VALUE and not value.isalpha():
            self.values.setdefault(value, (entity, value))

    def _learn_name(self, value: str, *, sure: bool) -> None:
        words = [word for word in _WORD.findall(value) if len(word) >= _SHORTEST_PART]
        if len(words) == 1 and not sure and not _is_listed(words[0]):
            return
        if value[:1].isupper() or " " in value:
            self.values.setdefault(value, ("PERSON", value))
            if " " in value:
                for spelling in (value.upper(), value.lower()):
                    self.values.setdefault(spelling, ("PERSON", value))
        if len(words) > 1:
            for joint in self.joints:
                if joint == ", ":
                    spellings = {f"{words[-1]}, {words[0]}"}
                else:
                    slug = joint.join(words)
                    spellings = {slug, slug.lower()} if joint else {slug.lower()}
                for spelling in spellings:
                    self.values.setdefault(spelling, ("PERSON", value))
        for word in words:
            if word in self.values or not word[0].isupper() or word.lower() in everyday():
                continue
            known = _is_listed(word)
            if (known or word.lower() not in common()) and (sure or known):
                self.values.setdefault(word, ("PERSON", value))

    def close(self) -> None:
        """Build the look-up; call once, after the last :meth:`learn`."""
        if self.values:
            self._automaton = ahocorasick.Automaton()
            for spelling in self.values:
                self._automaton.add_word(spelling, spelling)
            self._automaton.make_automaton()

    def find(self, text: str) -> list[Again]:
        """Return what is met again, whole words alone and the longest at each place.

        What is of one type and overlaps comes as one.
        """
        if self._automaton is None:
            return []
        if text in self.values and not (text.isalpha() and _means_itself(text, 0, len(text))):
            entity, value = self.values[text]
            return [(entity, 0, len(text), value)]
        longest = self._longest(text)
        return list(self._apart(text, longest)) if longest else []

    def _longest(self, text: str) -> dict[int, tuple[int, str]]:
        """Return the end and the spelling of the longest value that begins at each place."""
        size = len(text)
        longest: dict[int, tuple[int, str]] = {}
        for last, spelling in self._automaton.iter(text):
            end = last + 1
            if end < size and text[end].isalnum():
                continue
            start = end - len(spelling)
            if start not in longest or longest[start][0] < end:
                if spelling.isalpha() and _means_itself(text, start, end):
                    continue
                longest[start] = (end, spelling)
        return longest

    def _apart(self, text: str, longest: dict[int, tuple[int, str]]) -> Iterator[Again]:
        begin = behind = 0
        held: tuple[str, str] | None = None
        for start in sorted(longest):
            end, spelling = longest[start]
            if end <= behind or (start and text[start - 1].isalnum()):
                continue
            entity, value = self.values[spelling]
            if held is not None and start < behind and held[0] == entity:
                behind = end
                continue
            if held is not None:
                yield held[0], begin, behind, held[1]
            begin, behind, held = start, end, (entity, value)
        if held is not None:
            yield held[0], begin, behind, held[1]


def _is_listed(word: str) -> bool:
    """Whether this is a given or a family name that was written down for this project."""
    return word in hand_written_first_names() or word in last_names()


def _means_itself(text: str, start: int, end: int) -> bool:
    """Whether a part of a name is used as a word, a month or in a term: Mark the node, Taylor series."""
    if is_term(text, end):
        return True
    word = text[start:end]
    return word in ambiguous_names() and is_plain_word(text, start, end)
