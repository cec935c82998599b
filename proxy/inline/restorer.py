"""The restorer: puts values back in the place of their surrogates, in texts that come in pieces.

Only surrogates of the call's own request are restored. Of a piece nothing waits but an end that may
still become one of them: text that is none of them goes on at once.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from trajectory import realistic_surrogate
from trajectory.surrogate import FORM, LENGTH, SIMILAR, form_of

NO_ENTITIES: Mapping[str, str] = MappingProxyType({})
MOST_NAMED = 8
"""So many of what models invented or tore are named."""
_JOINS_REALISTIC = "_.+@-:"
"""What realistic surrogates have within them beside letters and digits."""
_LONGEST_RUN = 4 * LENGTH
"""Of letters without a break so many are kept, to see what looks like a surrogate and is none."""


class IssuedSurrogates:
    """The surrogates that one request got, with what they stand for."""

    def __init__(
        self,
        values: Mapping[str, str],
        known: Collection[str] = (),
        *,
        numbers: Collection[str] = (),
        entities: Mapping[str, str] = NO_ENTITIES,
    ) -> None:
        """Take surrogates.

        Args:
            values: what they stand for.
            known: other surrogates of the request, which stay.
            numbers: those that stand for numbers of JSON.
            entities: the types of their values, as far as they are known.
        """
        self.values = dict(values)
        self.known = known
        self.numbers = numbers
        self.entities = entities
        self._ordered = sorted(self.values)
        self._first = frozenset(name[0] for name in self._ordered)
        self._longest = max(map(len, self._ordered), default=0)
        self.form = re.compile("|".join(map(form_of, _words(self.values))) or "(?!)")
        """Whatever may be one of its tokens."""
        self.realistic = tuple(name for name in self._ordered if not FORM.fullmatch(name))
        withheld = {name for name in known if name not in self.values}
        self.withheld = tuple(name for name in withheld if not FORM.fullmatch(name))
        """Realistic ones that stay where they stand."""

    def __bool__(self) -> bool:
        return bool(self.values)

    def only(self, names: frozenset[str]) -> "IssuedSurrogates":
        """Return those of these names alone."""
        may = {name: value for name, value in self.values.items() if name in names}
        return IssuedSurrogates(may, self.values, numbers=self.numbers, entities=self.entities)

    def of_types(self, entities: Collection[str]) -> frozenset[str]:
        """Return the names of those whose values are of these types."""
        return frozenset(name for name in self.values if self.entities.get(name) in entities)

    def may_hold(self, text: str) -> bool:
        """Tell whether a text may hold something of interest; most do not."""
        return bool(self.realistic or self.withheld) or "_" in text

    def within(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield where in a text a surrogate begins, and which one."""
        tokens = ((one.start(), one[0]) for one in self.form.finditer(text))
        found = ((start, name) for start, name in tokens if name in self.values)
        if not self.realistic:
            yield from found
            return
        at = 0
        everything = [*found, *places(text, self.realistic)]
        for start, name in sorted(everything, key=lambda one: (one[0], -len(one[1]))):
            if start >= at:
                yield start, name
                at = start + len(name)

    def begun(self, text: str) -> int:
        """Return how many characters at a text's end may still become a surrogate."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if text[-size] in self._first:
                end = text[-size:]
                place = bisect_left(self._ordered, end)
                if place < len(self._ordered) and self._ordered[place].startswith(end):
                    return size
        return 0


def _words(names: Iterable[str]) -> list[str]:
    """Return the words that tokens begin with."""
    return sorted({name.partition("_")[0] for name in names if FORM.fullmatch(name)})


def places(text: str, names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield where in a text each of some names begins."""
    for name in names:
        at = text.find(name)
        while at >= 0:
            yield at, name
            at = text.find(name, at + len(name))


class TextRestorer:
    """Restores one text that comes in pieces."""

    def __init__(self, issued: IssuedSurrogates, *, in_json: bool = False) -> None:
        """Restore what was issued; ``in_json`` where the text is JSON, whose strings need escapes."""
        self._issued = issued
        self._in_json = in_json
        self._held = ""
        self._last = ""
        """The last character that went on."""
        self._run = ""
        """The last word of what came, while it may go on."""
        self._taken = 0
        """Characters that have come."""
        self._places: list[int] = []
        self._sizes: list[int] = []
        self._shifts: list[int] = [0]
        """By how much places in the text have moved, behind each of these places."""
        self.unknown = 0
        """How much looks like a surrogate and is none of this call."""
        self.invented: dict[str, None] = {}
        """What did, the first few."""
        self.withheld = 0
        """Surrogates of the request that are not to be restored here."""

    def feed(self, piece: str, *, last: bool = False) -> str:
        """Take a piece; return what can go on, which is all of it where it is the last."""
        self._look(piece)
        text = self._held + piece
        before = self._taken - len(self._held)
        self._taken += len(piece)
        out: list[str] = []
        at = 0
        for begin, name in self._issued.within(text):
            end, value = begin + len(name), self._issued.values[name]
            if self._is_number(text, begin, at, name):
                if end == len(text) and not last:
                    self._held = text[begin - 1 :]  # the quote behind it decides
                    return self._passed([*out, text[at : begin - 1]])
                if text[end : end + 1] == '"':
                    begin, end = begin - 1, end + 1
            elif self._in_json:
                value = json.dumps(value, ensure_ascii=False)[1:-1]
            out += (text[at:begin], value)
            at = end
            self._places.append(before + at)
            self._sizes.append(len(name))
            self._shifts.append(self._shifts[-1] + len(value) - len(name))
        rest = text[at:]
        size = 0 if last else self._begun(rest)
        self._held = rest[len(rest) - size :]
        return self._passed([*out, rest[: len(rest) - size]])

    def _passed(self, pieces: list[str]) -> str:
        told = "".join(pieces)
        self._last = told[-1:] or self._last
        return told

    def _is_number(self, text: str, begin: int, at: int, name: str) -> bool:
        """Whether a surrogate in JSON is all of a string, and stands for a number."""
        if not self._in_json or name not in self._issued.numbers or begin - 1 < at:
            return False
        before = text[begin - 2] if begin - 2 >= at else self._last
        return text[begin - 1] == '"' and before != "\\"

    def _begun(self, text: str) -> int:
        """Return how many characters at a text's end may still become something to be restored."""
        size = self._issued.begun(text)
        quotes = self._in_json and self._issued.numbers
        return size + 1 if quotes and text[: len(text) - size].endswith('"') else size

    def close(self) -> str:
        """Return what is left at the text's end: something that was torn off."""
        told = self.feed("", last=True)
        self._look(" ")
        return told

    def shifted(self, place: int) -> int:
        """Return where a place of the text as it came is now; one in a surrogate lies at its end."""
        passed = bisect_left(self._places, place + 1)
        if passed < len(self._places):
            inside = place - (self._places[passed] - self._sizes[passed])
            if inside > 0:
                return self._places[passed] + self._shifts[passed + 1]
        return place + self._shifts[passed]

    @property
    def restored(self) -> int:
        """How many surrogates were restored."""
        return len(self._places)

    def _look(self, piece: str) -> None:
        """Count what looks like a surrogate and is none, once the word that it is in has ended."""
        issued = self._issued
        is_realistic = bool(issued.realistic or issued.withheld)
        joins = _JOINS_REALISTIC if is_realistic else "_"
        text = self._run + piece
        end = len(text)
        while end and (text[end - 1].isalnum() or text[end - 1] in joins):
            end -= 1
        if end:
            seen = [found[0][:LENGTH] for found in SIMILAR.finditer(text, 0, end)]
            if is_realistic:
                seen += [one[0] for one in realistic_surrogate.SIMILAR.finditer(text, 0, end)]
                self.withheld += sum(1 for _ in places(text[:end], issued.withheld))
            for name in seen:
                if name in issued.values or name in issued.withheld:
                    continue
                if name in issued.known:
                    self.withheld += 1
                    continue
                self.unknown += 1
                if len(self.invented) < MOST_NAMED:
                    self.invented[name] = None
        self._run = text[end:][-_LONGEST_RUN:]


def restored(text: str, issued: IssuedSurrogates) -> str:
    """Return a whole text with its surrogates restored."""
    if not issued.may_hold(text):
        return text
    restorer = TextRestorer(issued)
    return restorer.feed(text) + restorer.close()
