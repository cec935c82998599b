"""The labelled texts of ``texts/``: reading them, and drawing other texts from them.

Each text has its personal data between marks: ``[[PERSON:Aneta Wójcik]]``. What is drawn has other people's names in
those places, other accounts, and other names in the places where a name is that of a thing.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from governance.names.words import (
    ambiguous_names,
    common,
    family_names,
    first_names,
    hand_written_first_names,
    last_names,
)
from scripts.names_model.corpus import Example

TEXTS = Path(__file__).with_name("texts")
OTHER = "OTHER"
"""What is personal and no name: the network learns nothing from it."""
_MARK = re.compile(r"\[\[([A-Z_]+):(.*?)\]\]", re.DOTALL)
_END = re.compile(r"\n=====[ \t]*(?:\n|\Z)")
_WORD = re.compile(r"[^\W\d_]+")
_PARTICLES = """
    de del della der den di da dos das du van von vom zu la le al el bin ben ibn ter ten y e af av st und of dr ms mr abu
    o mc
    """
_SMALL_WORDS = frozenset(_PARTICLES.split())
_LONGEST = 1400
"""About as much as the product shows the network at once."""

type _Spans = list[tuple[int, int, str]]


def marked(folder: Path = TEXTS) -> list[Example]:
    """Return the texts of all files with their spans."""
    out: list[Example] = []
    for file in sorted(folder.glob("*.txt")):
        for part in _END.split(file.read_text(encoding="utf-8")):
            header, _, body = part.strip("\n").partition("\n")
            if header.startswith("#### "):
                out.append(_read(body))
    return out


def lines(folder: Path = TEXTS / "lines") -> dict[str, list[Example]]:
    """Return the short texts of each language with their spans."""
    out: defaultdict[str, list[Example]] = defaultdict(list)
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("#### "):
                language = line.removeprefix("#### ").strip()
            elif line.strip():
                out[language].append(_read(line.replace("\\n", "\n")))
    return dict(out)


def together(examples: Sequence[Example], joint: str) -> Example:
    """Return texts as one, with ``joint`` between them."""
    text, spans = "", []
    for example in examples:
        at = len(text) + (len(joint) if text else 0)
        text += (joint if text else "") + example.text
        spans += [(start + at, end + at, label) for start, end, label in example.spans]
    return Example(text, tuple(spans))


def _read(body: str) -> Example:
    text, at, spans = "", 0, []
    for mark in _MARK.finditer(body):
        text += body[at : mark.start()]
        label = mark[1] if mark[1] in ("PERSON", "USERNAME") else OTHER
        spans.append((len(text), len(text) + len(mark[2]), label))
        text += mark[2]
        at = mark.end()
    return Example(text + body[at:], tuple(spans))


class Drawn:
    """Draws texts from labelled ones."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._known, self._given = sorted(hand_written_first_names()), sorted(first_names())
        self._listed, self._family = sorted(last_names()), sorted(family_names())
        self._ambiguous = sorted(ambiguous_names())
        self._are_given = first_names()
        self._words = sorted(word for word in common() if 3 < len(word) < 9 and word.isalpha())

    def text(self, example: Example, *, other_things: bool = True) -> Example:
        """Return a text like this one, or a piece of it.

        Args:
            example: where to draw from.
            other_things: whether things may get other names, where enough stands around them to tell.
        """
        draw = self._draw
        if example.spans and draw.random() < 0.65:
            example = self._renamed(example)
        if draw.random() < 0.5:
            example = self._with_accounts(example)
        if other_things and draw.random() < 0.5:
            example = self.with_other_things(example)
        example = self._cropped(example)
        chance = draw.random()
        if chance < 0.08:
            text = example.text.lower() if chance < 0.06 else example.text.upper()
            if len(text) == len(example.text):
                example = Example(text, example.spans)
        return example

    def name(self) -> str:
        """Return a full name, a given or a family name."""
        kind = self._draw.random()
        given, family = self._part(given=True), self._part(given=False)
        return f"{given} {family}" if kind < 0.7 else given if kind < 0.85 else family

    def _part(self, *, given: bool) -> str:
        draw, chance = self._draw, self._draw.random()
        if given:
            names = (
                self._known if chance < 0.35 else self._given if chance < 0.9 else self._ambiguous
            )
        else:
            names = self._listed if chance < 0.3 else self._family
        found = draw.choice(names)
        if draw.random() < 0.12:  # in no list
            wide = self._given if given else self._family
            begin, end = draw.choice(wide), draw.choice(wide)
            found = begin[: max(2, len(begin) // 2)] + end[len(end) // 2 :].lower()
        return re.split(r"[-' ]", found)[0]

    def _renamed(self, example: Example) -> Example:
        """Give the people of a text other names, each the same one throughout."""
        names: dict[str, str] = {}

        def of_word(word: str, *, given: bool) -> str:
            new = names.setdefault(word.lower(), self._part(given=given))
            if word.islower():
                return new.lower()
            return new.upper() if word.isupper() and len(word) > 1 else new

        def renamed(value: str) -> str:
            words = list(_WORD.finditer(value))
            long = [w for w in words if len(w[0]) > 2 and w[0].lower() not in _SMALL_WORDS]
            out, at = "", 0
            for word in words:
                out += value[at : word.start()]
                at = word.end()
                if word not in long:
                    out += word[0]
                    continue
                place, comma = long.index(word), "," in value
                first = len(long) - 1 if comma else 0
                alone = len(long) == 1 and self._draw.random() < 0.6
                middle = len(long) > 2 and place == 1 and self._draw.random() < 0.4
                out += of_word(word[0], given=alone or middle or (len(long) > 1 and place == first))
            return out + value[at:]

        return _replaced(example, "PERSON", renamed)

    def _with_accounts(self, example: Example) -> Example:
        accounts: dict[str, str] = {}
        return _replaced(
            example, "USERNAME", lambda value: accounts.setdefault(value, self._account())
        )

    def _account(self) -> str:
        draw = self._draw
        first, last = self._part(given=True).lower(), self._part(given=False).lower()
        word, other = draw.choice(self._words), draw.choice(self._words)
        number = str(
            draw.choice((draw.randrange(10), draw.randrange(100), draw.randrange(1950, 2012)))
        )
        forms = (
            first[0] + last, first[0] + last, first[0] + last, f"{first}.{last}", first + last[0], f"{first}_{last}",
            f"{first}-{last}", first + number, last, last[:3] + first[:3], first[0] + last + number,
            f"{word}_{other}", word + number, f"{word}-{other}",
        )  # fmt: skip
        return draw.choice(forms)

    def with_other_things(self, example: Example) -> Example:
        """Give things that have a person's name another one: the words around must tell."""
        names: dict[str, str] = {}
        things = [
            (word.start(), word.end(), "THING")
            for word in _WORD.finditer(example.text)
            if word[0] in self._are_given
            and not any(
                start < word.end() and end > word.start() for start, end, _ in example.spans
            )
        ]

        def another(value: str) -> str:
            if value not in names:
                wide = self._known if self._draw.random() < 0.5 else self._given
                names[value] = self._draw.choice(wide) if self._draw.random() < 0.5 else value
            return names[value]

        both = Example(example.text, tuple(sorted((*example.spans, *things))))
        text, spans = _replaced(both, "THING", another)
        return Example(text, tuple(span for span in spans if span[2] != "THING"))

    def _cropped(self, example: Example) -> Example:
        draw, (text, spans) = self._draw, example
        if len(text) <= _LONGEST and draw.random() < 0.75:
            return example
        size = draw.choice((150, 300, 600, 1000, _LONGEST))
        start = text.rfind("\n", 0, draw.randrange(max(1, len(text) - size // 2))) + 1
        end = text.find("\n", min(len(text), start + size))
        end = len(text) if end < 0 else end
        if end - start > 2500:
            end = text.rfind(" ", start, start + 2000)
        kept = [(a - start, b - start, label) for a, b, label in spans if a >= start and b <= end]
        return Example(text[start:end], tuple(kept))


def _replaced(example: Example, wanted: str, new: Callable[[str], str]) -> Example:
    """Return a text with other values in the spans of one label."""
    out, at = "", 0
    spans: _Spans = []
    for start, end, label in example.spans:
        if start < at:
            continue
        out += example.text[at:start]
        value = example.text[start:end]
        begin = len(out)
        out += new(value) if label == wanted else value
        spans.append((begin, len(out), label))
        at = end
    return Example(out + example.text[at:], tuple(spans))
