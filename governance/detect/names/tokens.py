"""The embedded names model's tokens as spaCy's tokenizer makes them, many times as fast on dense text.

spaCy tries two hundred patterns at each end of whatever stands between two spaces, again for each
mark that it takes off. In ASCII most of them are one character; what is not ASCII spaCy still splits.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, NamedTuple

import numpy

_PIECE = re.compile(r"\S+|\A\s+|(?<=\S)(?! )\s+|(?<=\S )\s+")
"""What stands between spaces, and what there is of white space beside one space."""
_ONE_TOKEN = re.compile(r"[A-Za-z]*[0-9]*\Z")
"""What no rule splits."""
_BETWEEN, _LETTER = "\x1f", "\x1e"
"""Stand for pictures, which are tokens wherever they are, and for letters of scripts without small ones."""
_MARKS = _BETWEEN + "!\"#&'()*,:;<>?[]_`{}"
"""Marks that are taken off both ends."""
_BEFORE = frozenset(_MARKS + "%$=")
_BEHIND = frozenset(_MARKS)
_PREFIX = re.compile(r"\+(?![0-9])|\.\.+|(?:US|C|A)\$")
_UNITS = (
    "km|m|dm|cm|mm|ha|nm|yd|in|ft|kg|g|mg|t|lb|oz|m/s|km/h|kmh|mph|hPa|Pa|mbar|mb|MB|kb|KB|gb|GB|"
    "tb|TB|T|G|M|K|%"
)
_ENDS = frozenset("sS.+$%" + "".join(_UNITS.split("|")))
_SMALL, _GREAT = f"a-z{_LETTER}", f"A-Z{_LETTER}"
_SUFFIX = re.compile(
    rf"(?:'[sS]|\.\.+|(?<=[0-9])(?:\+|(?:US|C|A)?\$|{_UNITS})"
    rf"|(?<=[0-9{_SMALL}%\-+|{re.escape(_MARKS)}])\.|(?<=[{_GREAT}][{_GREAT}])\.)\Z"
)
_INFIX = re.compile(
    rf"\.\.+|{_BETWEEN}|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[{_SMALL}\"',`])\.(?=[{_GREAT}\"',`])"
    rf"|(?<=[{_SMALL}A-Z]),(?=[{_SMALL}A-Z])|(?<=[{_SMALL}A-Z0-9])(?:---|--|-|~)(?=[{_SMALL}A-Z])"
    rf"|(?<=[{_SMALL}A-Z0-9])[:<>=/](?=[{_SMALL}A-Z])"
)
_MAY_BE_SPLIT = re.compile(rf"[+\-*^.,~:<>=/{_BETWEEN}]")
_LONG_RUN = re.compile(r"(.)\1{4,}", re.DOTALL)
_ASCII_SHAPE = bytes.maketrans(
    (ascii_uppercase + ascii_lowercase + digits).encode(), b"X" * 26 + b"x" * 26 + b"d" * 10
)
_LONGEST_SHAPE = 100
_LONGEST_RUN = 4
_AT_EACH_END = re.escape(_MARKS.strip(_BETWEEN))
_PLAIN = re.compile(
    rf"([{_AT_EACH_END}%$=]{{0,4}})([A-Za-z{_LETTER}]+(?:[,:=/<>~\-][A-Za-z{_LETTER}]+)*)([{_AT_EACH_END}]{{0,4}})\Z"
)
"""Words with a mark between them and some at either end, which most of what is split is."""
_MARK = re.compile(rf"([^A-Za-z{_LETTER}])")
type _Word = str | tuple[str, str]
"""A token's text; with what it is read as, where a rule says so."""


class TokenizedTexts(NamedTuple):
    """The tokens of some texts, one after the other."""

    counts: Any
    """How many each text has."""
    starts: Any
    """Their places in their texts."""
    ends: Any
    words: Any
    """Each token's row of ``attributes``."""
    attributes: Any
    """Hashes of the attributes that the model looks at, one row a word."""
    blank: Any
    """Whether a word is white space."""


class NamesTokenizer:
    """Splits texts for one pipeline with spaCy's English rules."""

    def __init__(self, nlp: Any) -> None:
        from spacy.attrs import NORM, ORTH, SHAPE
        from spacy.lang.norm_exceptions import BASE_NORMS
        from spacy.strings import get_string_id

        self._spacy = nlp.tokenizer
        self._number = get_string_id
        self._shape = nlp.vocab.lex_attr_getters[SHAPE]
        self._norms = BASE_NORMS
        self._like = lru_cache(maxsize=4096)(self._stand_in)
        self._url = nlp.tokenizer.url_match
        self._special: dict[str, list[_Word]] = {}
        for text, rule in nlp.tokenizer.rules.items():
            self._special[text] = [
                (part[ORTH], part[NORM]) if NORM in part else part[ORTH] for part in rule
            ]
        self._within_marks = {text.strip(_MARKS + "%$=") for text in self._special}
        self._apart: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for text in filter(str.isascii, self._special):
            parts = tuple(map(str, self._split(text, {})))
            if len(parts) > 1:
                self._apart.setdefault((parts[0], parts[1]), []).append(parts)
        self._with_marks = {
            part
            for rules in self._apart.values()
            for rule in rules
            for part in rule
            if part.isalnum()
        }
        """Words that rules take together with marks."""
        self._of_marks = lru_cache(maxsize=4096)(lambda marks: self._with_rules([*marks]))

    def __call__(self, texts: Sequence[str]) -> TokenizedTexts:
        """Return the tokens of texts."""
        pieces, places, sizes = _pieces(texts)
        rows = {piece: row for row, piece in enumerate(dict.fromkeys(pieces))}
        found = numpy.fromiter(map(rows.__getitem__, pieces), int, len(pieces))
        known = [self._known(piece) for piece in rows]
        words: dict[_Word, int] = {}
        numbers = numpy.array(
            [words.setdefault(word, len(words)) for parts in known for word in parts], dtype=int
        )
        texts_of = [word if isinstance(word, str) else word[0] for word in words]
        lengths = numpy.array([len(word) for word in texts_of], dtype=int)[numbers]
        many = numpy.array(list(map(len, known)), dtype=int)
        token, of = _expanded(many, found)
        behind = numpy.cumsum(lengths)
        first = numpy.concatenate((behind - lengths, behind[-1:]))[numpy.cumsum(many) - many]
        starts = (behind - lengths)[token] - first[found][of] + places[of]
        counts = numpy.bincount(
            numpy.repeat(numpy.arange(len(texts)), sizes), many[found], minlength=len(texts)
        )
        return TokenizedTexts(
            counts.astype(int),
            starts,
            starts + lengths[token],
            numbers[token],
            self._hashed(words),
            numpy.array([word.isspace() for word in texts_of], dtype=bool),
        )

    def _hashed(self, words: Iterable[_Word]) -> Any:
        number = cache(self._number)  # of what few words begin with, and of their few shapes
        hashes = [value for word in words for value in self._attributes(word, number)]
        return numpy.array(hashes, dtype=numpy.uint64).reshape(-1, 4)

    def _known(self, piece: str) -> list[_Word]:
        """Return the words of a piece."""
        special = self._special.get(piece)
        if special is not None:
            return special
        if piece.isalpha() or piece.isspace():
            return [piece]
        if not piece.isascii():
            like = "".join([char if char.isascii() else self._like(char) for char in piece])
            parts = _of_plain(like) if _PLAIN.match(like) else self._split(like, {})
            return self._with_rules(_cut(piece, parts))
        plain = _PLAIN.match(piece)
        if plain is not None and self._is_plain(piece, *plain.span(2)):
            before, core, behind = plain.groups()
            inner: list[_Word] = [core] if core.isalpha() else _MARK.split(core)
            if not self._with_marks.isdisjoint(inner):
                return self._with_rules([*before, *inner, *behind])
            return [*self._of_marks(before), *inner, *self._of_marks(behind)]
        if _ONE_TOKEN.match(piece):
            return [piece]
        return self._with_rules(self._split(piece))

    def _is_plain(self, piece: str, start: int, end: int) -> bool:
        """Whether no rule is for what stands between these places, nor for it with marks at its ends."""
        size = len(piece)
        if (start == 0 and end == size) or piece[start:end] not in self._within_marks:
            return True
        inner = [piece[left:right] for left in range(start + 1) for right in range(end, size + 1)]
        return self._special.keys().isdisjoint(inner)

    def _stand_in(self, char: str) -> str:
        """Return the character of ASCII that the rules treat as they treat this one."""
        if char.isalpha():
            return "A" if char.isupper() else "a" if char.islower() else _LETTER
        if any(match.start() == 1 for match in self._spacy.infix_finditer(f"q{char}q")):
            return _BETWEEN
        if self._spacy.prefix_search(char + "q") is None:
            return "|"
        return "$" if self._spacy.suffix_search("q" + char) is None else "!"

    def _with_rules(self, words: list[_Word]) -> list[_Word]:
        """Return words with those that stand next to each other as a rule takes them together."""
        texts = [word if isinstance(word, str) else word[0] for word in words]
        if self._apart.keys().isdisjoint(pairwise(texts)):
            return words
        found = [
            (len(parts), -place)
            for place, pair in enumerate(pairwise(texts))
            if pair in self._apart
            for parts in self._apart[pair]
            if tuple(texts[place : place + len(parts)]) == parts
        ]
        sizes: dict[int, int] = {}
        taken: set[int] = set()
        for size, minus in sorted(found, reverse=True):
            first, last = -minus, size - minus - 1
            if first not in taken and last not in taken:
                sizes[first] = size
            taken.update(range(first, last + 1))
        out: list[_Word] = []
        at = 0
        for place in sorted(sizes):
            behind = place + sizes[place]
            out += words[at:place]
            out += self._special["".join(texts[place:behind])]
            at = behind
        return out + words[at:]

    def _split(self, piece: str, special: dict[str, list[_Word]] | None = None) -> list[_Word]:
        """Return the words of a piece of ASCII: marks are taken off both ends, then what joins words."""
        special = self._special if special is None else special
        before: list[_Word] = []
        behind: list[_Word] = []
        size = 0
        while piece and len(piece) != size:
            if _ONE_TOKEN.match(piece) or piece in special:
                break
            size = len(piece)
            left = _prefix(piece)
            if left and piece[left:] in special:
                before.append(piece[:left])
                piece = piece[left:]
                break
            right = _suffix(piece[left:])
            if right and piece[:-right] in special:
                behind.append(piece[-right:])
                piece = piece[:-right]
                break
            if left:
                before.append(piece[:left])
            if right and left + right <= size:
                behind.append(piece[-right:])
                piece = piece[left:-right]
            else:
                piece = piece[left:]
        if piece in special:
            before += special[piece]
        elif piece:
            before += self._joined(piece)
        behind.reverse()
        return before + behind

    def _joined(self, piece: str) -> list[str]:
        """Return the words of a piece that has no marks at its ends, and what joins them."""
        if _MAY_BE_SPLIT.search(piece) is None or _ONE_TOKEN.match(piece):
            return [piece]
        if "." in piece and self._url(piece):
            return [piece]
        words: list[str] = []
        at = 0
        for match in _INFIX.finditer(piece):
            start, end = match.span()
            if start == 0:
                continue
            if start != at:
                words.append(piece[at:start])
            words.append(piece[start:end])
            at = end
        if at < len(piece):
            words.append(piece[at:])
        return words

    def _attributes(self, word: _Word, few: Callable[[str], int]) -> tuple[int, int, int, int]:
        word, norm = (word, self._norms.get(word)) if isinstance(word, str) else word
        number = self._number
        if len(word) >= _LONGEST_SHAPE:
            shape = self._shape(word)
        elif word.isascii():
            shape = word.encode().translate(_ASCII_SHAPE).decode()
        else:
            shape = "".join(map(_shape_of, word))
        if len(shape) > _LONGEST_RUN:
            shape = _LONG_RUN.sub(r"\1\1\1\1", shape)
        return number(norm or word.lower()), few(word[0]), number(word[-3:]), few(shape)


def _pieces(texts: Sequence[str]) -> tuple[list[str], Any, list[int]]:
    """Return the pieces of texts one after the other, their places, and how many each text has."""
    pieces: list[str] = []
    places: list[int] = []
    sizes: list[int] = []
    for text in texts:
        if text.isprintable() and "" not in (words := text.split(" ")):  # no other white space
            pieces += words
            sizes.append(len(words))
            at = 0
            for word in words:
                places.append(at)
                at += len(word) + 1
            continue
        before = len(pieces)
        for match in _PIECE.finditer(text):
            pieces.append(match.group())
            places.append(match.start())
        sizes.append(len(pieces) - before)
    return pieces, numpy.array(places, dtype=int), sizes


def _of_plain(piece: str) -> list[_Word]:
    """Return the words and the marks of a piece that holds nothing else."""
    return [part for part in _MARK.split(piece) if part]


def _cut(piece: str, like: Iterable[_Word]) -> list[_Word]:
    """Return a piece cut into words as long as these."""
    at = 0
    words: list[_Word] = []
    for word in like:
        words.append(piece[at : at + len(word)])
        at += len(word)
    return words


@lru_cache(maxsize=8192)
def _shape_of(char: str) -> str:
    """Return what stands for one character in the shape of a word."""
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return "d" if char.isdigit() else char


def _expanded(many: Any, chosen: Any) -> tuple[Any, Any]:
    """Return the elements of the groups that are chosen, and of which choice each one is.

    Args:
        many: how many elements each group has; they are counted on from group to group.
        chosen: groups, some of them often.
    """
    sizes = many[chosen]
    of = numpy.repeat(numpy.arange(len(chosen)), sizes)
    within = numpy.arange(len(of)) - (numpy.cumsum(sizes) - sizes)[of]
    return (numpy.cumsum(many) - many)[chosen][of] + within, of


def _prefix(piece: str) -> int:
    """Return how long the mark is that a piece begins with."""
    if piece[0] in _BEFORE:
        return 1
    match = _PREFIX.match(piece) if piece[0] in "+.UCA" else None
    return match.end() if match is not None else 0


def _suffix(piece: str) -> int:
    """Return how long the mark is that a piece ends with."""
    if not piece:
        return 0
    if piece[-1] in _BEHIND:
        return 1
    match = _SUFFIX.search(piece) if piece[-1] in _ENDS else None
    return match.end() - match.start() if match is not None else 0
