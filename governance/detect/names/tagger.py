"""The embedded names model: a small convolutional network that labels each token of a text.

A token is known by its spelling, its shape, and the word lists and dictionaries that hold it. What stands within
seven tokens on either side decides, and what kind of text it is. ``scripts/names_model/train.py`` trains the
network; only numpy is needed here.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from zlib import crc32

import numpy

from governance.detect.offline_imports import one_thread_of_blas
from governance.names.words import (
    ambiguous_names,
    common,
    everyday,
    family_names,
    first_names,
    foreign,
    hand_written_first_names,
    last_names,
    nouns,
    office_words,
    parts_of_programs,
    places,
    service_accounts,
    things,
    words_of_other_languages,
)

type Floats = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
type Integers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

EMBEDDED = Path(__file__).parent.parent.parent / "names" / "model"
DICTIONARIES = EMBEDDED / "dictionaries.npz"
LABELS = ("", "PERSON", "USERNAME", "LOCATION", "ORGANIZATION")
ROWS = (8_000, 2_000, 4_000, 1_000)
"""Rows of the tables: words of the vocabulary, beginnings, endings, shapes."""
REACHES = (1, 2, 4)
"""How far each layer looks to either side."""
SLOTS = 1 << 22
LANGUAGES = 7
LISTS = (
    hand_written_first_names, first_names, last_names, family_names, ambiguous_names, places, things, everyday,
    common, foreign, office_words, nouns, parts_of_programs, service_accounts, words_of_other_languages,
)  # fmt: skip
MEMBERSHIPS = len(LISTS) + LANGUAGES + 1
"""Bits that a word has: the lists, the languages, and whether it is a word without its last letter."""
FLAGS = 5
_PIECE = re.compile(r"[^\W\d_]+|[^\S\n]+(?!\n)|\d+|\s*\n\s*|[^\w\s]{1,3}|_+|\s")
"""Tokens and the spaces between them: together they are the whole text."""
_LONGEST = 24
_HARDLY_ANY = 1e-5
_MOST_REMEMBERED = 20_000


@cache
def listed() -> dict[str, int]:
    """Return each word of the lists, in small letters, with a bit for each list that holds it.

    The words of a thing of several words, such as Jane Street, are none by themselves.
    """
    found: dict[str, int] = {}
    for place, words in enumerate(LISTS):
        for word in words():
            parts = word.lower().split()
            for part in parts if words is not things or len(parts) == 1 else ():
                found[part] = found.get(part, 0) | 1 << place
    return found


class TextTokens(NamedTuple):
    """The tokens of some texts, one after the other."""

    starts: Integers
    ends: Integers
    words: Integers
    """Each token's place among ``distinct``."""
    distinct: list[str]
    text_of: Integers
    flags: Floats
    """Space before it, space behind it; of a capitalised word: it is met in small letters too, it is met again, it is
    all capitals."""


def shape(word: str) -> str:
    """Return what kind of characters a word has, runs cut at three."""
    if word.isalpha():
        if word.islower():
            return "x" * min(4, len(word)) if word.isascii() else "y" * min(4, len(word))
        if word.istitle():
            return "X" + "x" * min(3, len(word) - 1) + ("" if word.isascii() else "y")
        if word.isupper():
            return "X" * min(6, len(word)) + "!"
        return "Xx?" + word[0:1].upper() if word[0].isupper() else "xX?"
    if word.isdigit():
        return "d" * min(6, len(word))
    if "\n" in word:
        return "n" * min(2, word.count("\n")) + ("i" if word[-1] != "\n" else "")
    return word


def tokens(texts: Sequence[str]) -> TextTokens:
    """Return the tokens of texts."""
    pieces = [_PIECE.findall(text) for text in texts]
    strings = list(chain.from_iterable(pieces))
    found = dict.fromkeys(strings)
    spaces = [string for string in found if string.isspace() and "\n" not in string]
    for string in spaces:
        del found[string]
    rows = {string: row for row, string in enumerate(found)} | dict.fromkeys(spaces, -1)
    words = numpy.fromiter(map(rows.__getitem__, strings), int, len(strings))
    text_of = numpy.repeat(numpy.arange(len(texts)), list(map(len, pieces)))
    ends = numpy.cumsum(numpy.fromiter(map(len, strings), int, len(strings)))
    starts = numpy.append(0, ends)[:-1]
    ahead = (numpy.cumsum([0, *map(len, texts)])[:-1])[text_of]
    is_token = words >= 0
    words, text_of, ahead = words[is_token], text_of[is_token], ahead[is_token]
    starts, ends = starts[is_token] - ahead, ends[is_token] - ahead
    for string in spaces:
        del rows[string]
    flags = numpy.zeros((len(starts), FLAGS), dtype=numpy.float32)
    begins = numpy.ones(len(starts), dtype=bool)
    begins[1:] = text_of[1:] != text_of[:-1]
    gap = numpy.zeros(len(starts) + 1, dtype=bool)
    gap[1:-1] = (starts[1:] > ends[:-1]) & ~begins[1:]
    flags[:, 0] = gap[:-1] | (begins & (starts > 0))
    flags[:, 1] = gap[1:]
    capital = [(row, string) for string, row in rows.items() if string[0].isupper()]
    if capital:
        small, is_upper = numpy.full(len(rows), -1), numpy.zeros(len(rows), dtype=bool)
        for row, string in capital:
            small[row], is_upper[row] = rows.get(string.lower(), len(rows)), string.isupper()
        at = (small[words] >= 0).nonzero()[0]
        in_text = text_of * (len(rows) + 1)
        met, place, times = numpy.unique(in_text + words, return_inverse=True, return_counts=True)
        lower = in_text[at] + small[words[at]]
        flags[at, 2] = met[numpy.searchsorted(met, lower).clip(max=len(met) - 1)] == lower
        flags[at, 3] = times[place[at]] > 1
        flags[at, 4] = is_upper[words[at]]
    return TextTokens(starts, ends, words, list(rows), text_of, flags)


def vocabulary_word(word: str) -> str:
    """Return how a token is looked up: in small letters, whatever number or indentation it is."""
    if word[0].isdigit():
        return "0" * min(4, len(word))
    return "\n" * min(2, word.count("\n")) if "\n" in word else word[:_LONGEST].lower()


def slots(words: Sequence[str]) -> tuple[Integers, Integers]:
    """Return the two places of words in small letters in the table of everyday words."""
    one = numpy.array([crc32(word.encode()) for word in words], dtype=numpy.uint64)
    other = one * numpy.uint64(2654435761) % numpy.uint64(1 << 32) * numpy.uint64(40503)
    other = other // numpy.uint64(65536) % numpy.uint64(SLOTS)
    return (one % numpy.uint64(SLOTS)).astype(int), other.astype(int)


@cache
def dictionaries() -> Integers:
    """Return the table of everyday words: at each place a bit for each of seven languages."""
    with numpy.load(DICTIONARIES) as held:
        return numpy.asarray(held["table"])


def _languages_of(words: Sequence[str]) -> Integers:
    one, other = slots(words)
    table = dictionaries()
    return (table[one] & table[other]).astype(int)


def _row(pieces: Sequence[str], rows: int) -> list[int]:
    return [crc32(piece.encode()) % rows for piece in pieces]


def features(words: Sequence[str], vocabulary: Mapping[str, int]) -> tuple[Integers, Floats]:
    """Return the rows of the tables that words are known by, and the lists and languages that hold them."""
    known = listed()
    small = [vocabulary_word(word) for word in words]
    rows = numpy.array(
        [
            [vocabulary.get(word, 0) for word in small],
            _row([word[:3] for word in small], ROWS[1]),
            _row([word[-3:] for word in small], ROWS[2]),
            _row([shape(word) for word in words], ROWS[3]),
        ],
        dtype=int,
    ).T
    bits = numpy.array([known.get(word, 0) for word in small], dtype=int)
    letters = [at for at, word in enumerate(small) if len(word) > 2 and words[at][0].isalpha()]
    if letters:
        spelled = [small[at] for at in letters]
        bits[letters] |= _languages_of(spelled) << len(LISTS)
        cut = [word[:-1] if len(word) > 4 else word for word in spelled]
        is_form = (_languages_of(cut) > 0).astype(int)
        bits[letters] |= is_form << len(LISTS) + LANGUAGES
    memberships = bits[:, None] >> numpy.arange(MEMBERSHIPS) & 1
    return rows, memberships.astype(numpy.float32)


class NamesTagger:
    """Tells of each token of a text how likely it is each label."""

    def __init__(self, folder: Path) -> None:
        """Load the weights and the vocabulary.

        Raises:
            OSError: they are not there.
        """
        one_thread_of_blas()
        with numpy.load(folder / "network.npz") as held:
            weights: dict[str, Floats] = {
                name: held[name].astype(numpy.float32)
                for name in held.files
                if name != "vocabulary"
            }
            vocabulary = held["vocabulary"].tolist()
        self.vocabulary: dict[str, int] = {word: row for row, word in enumerate(vocabulary)}
        mixing = weights["mix.weight"].T
        width = len(mixing) // 5
        self._tables = [
            weights[f"tables.{place}"] @ mixing[place * width : (place + 1) * width]
            for place in range(4)
        ]
        self._lists = weights["lists"] @ mixing[4 * width :]
        self._mixing_bias = weights["mix.bias"]
        self._normal = [
            (weights[f"norm.{at}.weight"], weights[f"norm.{at}.bias"]) for at in range(4)
        ]
        self._flags, self._whole = weights["flags"], weights["whole"]
        self._layers = [
            (numpy.ascontiguousarray(weights[f"layer.{at}.weight"].T), weights[f"layer.{at}.bias"])
            for at in range(len(REACHES))
        ]
        self._out, self._out_bias = weights["out.weight"].T, weights["out.bias"]
        self._rows: dict[str, int] = {}
        self._vectors = numpy.zeros((_MOST_REMEMBERED, self._out.shape[0]), dtype=numpy.float32)
        self._lock = Lock()

    def __call__(self, texts: Sequence[str]) -> tuple[TextTokens, Floats]:
        """Return the tokens of texts, and of each how likely it has each of ``LABELS``."""
        found = tokens(texts)
        if not len(found.words):
            return found, numpy.zeros((0, len(LABELS)), dtype=numpy.float32)
        seen = self._known(found.distinct).take(found.words, axis=0) + found.flags @ self._flags
        counts = numpy.bincount(found.text_of, minlength=len(texts))
        filled = numpy.flatnonzero(counts)
        whole = numpy.add.reduceat(seen, (numpy.cumsum(counts) - counts)[filled], axis=0)
        whole /= counts[filled][:, None]
        seen += numpy.repeat(whole @ self._whole, counts[filled], axis=0)
        size, width = seen.shape
        beside = numpy.empty((size, 3 * width), dtype=numpy.float32)
        sums = numpy.empty((size, 2 * width), dtype=numpy.float32)
        for at, reach in enumerate(REACHES):
            weights, bias = self._layers[at]
            beside[:reach, :width] = beside[-reach:, 2 * width :] = 0
            beside[:, width : 2 * width] = seen
            beside[reach:, :width] = seen[:-reach]
            beside[:-reach, 2 * width :] = seen[reach:]
            apart = numpy.flatnonzero(found.text_of[reach:] != found.text_of[:-reach])
            beside[apart + reach, :width] = 0
            beside[apart, 2 * width :] = 0
            numpy.matmul(beside, weights, out=sums)
            sums += bias
            seen += self._greatest(sums, at + 1)
        scores = seen @ self._out + self._out_bias
        scores -= scores.max(axis=1, keepdims=True)
        numpy.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return found, scores

    def _known(self, words: Sequence[str]) -> Floats:
        """Return how the network knows each word by itself; of words of the vocabulary it remembers that."""
        held = self._rows
        places = [held.get(word, -1) for word in words]
        fresh = [word for word, place in zip(words, places, strict=True) if place < 0]
        if not fresh:
            return self._vectors.take(places, axis=0)
        rows, memberships = features(fresh, self.vocabulary)
        sums = memberships @ self._lists + self._mixing_bias
        for place, table in enumerate(self._tables):
            sums += table.take(rows[:, place], axis=0)
        seen = self._greatest(sums, 0)
        out = self._vectors.take(places, axis=0)
        out[numpy.array(places) < 0] = seen
        with self._lock:
            for at in rows[:, 0].nonzero()[0].tolist():
                if len(held) < _MOST_REMEMBERED and fresh[at] not in held:
                    self._vectors[len(held)] = seen[at]
                    held[fresh[at]] = len(held)
        return out

    def _greatest(self, sums: Floats, at: int) -> Floats:
        """Return the greater half of each output, normalised."""
        width = sums.shape[1] // 2
        best = numpy.maximum(sums[:, :width], sums[:, width:])
        best -= best.mean(axis=1, keepdims=True)
        spread = numpy.einsum("ij,ij->i", best, best) / width
        best *= (1 / numpy.sqrt(spread + _HARDLY_ANY))[:, None]
        gain, shift = self._normal[at]
        best *= gain
        best += shift
        return best
