"""Whether words that a model takes for a name may be a person's."""

import re
from functools import cache

from governance.detect.code_terms import (
    ProgramSigns,
    is_declared,
    is_heading,
    is_plain_word,
    is_term,
)
from governance.detect.names.acts import is_called_after, is_of_science
from governance.detect.names.patterns import CAMEL_CASE
from governance.names.words import (
    ambiguous_names,
    common,
    family_names,
    first_names,
    foreign,
    is_a_place,
    is_a_thing,
    nouns,
    office_words,
    places,
)

NOT_A_NAME = re.compile(r"[\d_(){}\[\]=/\\|<>@#$%^*;:\"`~+]")
CAPITALS = re.compile(
    r"\b[A-Z\u00c0-\u00de]{3,}(?:,? [A-Z\u00c0-\u00de][A-Z\u00c0-\u00de'-]{2,}){1,3}\b"
)
_LABEL = re.compile(r"[ ]?[:=](?!\w)")


def names_no_person(text: str, start: int, stop: int) -> bool:
    """Whether what stands around a name, or a list, makes it the name of a thing, a place or a term."""
    if is_a_thing(text, start, stop) or is_term(text, stop):
        return True
    words = text[start:stop].split()
    if is_called_after(text, start, words):
        return True
    if len(words) == 1 and words[0].islower() and words[0].capitalize() not in first_names():
        return words[0].capitalize() not in family_names()
    if len(words) > 1:
        return False
    if is_a_place(text, start, stop) or is_declared(text, start) or is_heading(text, words[0]):
        return True
    if words[0] in first_names() or words[0] not in family_names():
        return False
    if words[0].lower() in nouns() and _GERMAN_ARTICLE.search(text, max(0, start - 6), start):
        return True
    return is_of_science(text, start, stop)


_GERMAN_ARTICLE = re.compile(r"\b(?:[Dd](?:er|en|em|es|as)|[Ee]in|[Bb]eim|[Vv]om|[Zz]um)[ ]\Z")
"""Before a trade that is a family name too; a woman may be called by hers: die Richter."""


_NOUN = re.compile(
    r"[^\W\d_]{3,}(?:ung|ungen|heit|keit|schaft|ismus|tion|t\u00e4t|nis|ci\u00f3n|\u00e7\u00e3o|zione)\Z"
)
_TOKEN = re.compile(r"[^\W\d_]+")


@cache
def _foreign_only() -> frozenset[str]:
    return frozenset(word for word in foreign() - common() if len(word) > 2)


def is_a_foreign_word(words: list[str], text: str) -> bool:
    """Whether a word that no list has as a name stands in a text of a language that the model never saw."""
    if any(word in first_names() or word in family_names() for word in words):
        return False
    if len(words) == 1 and _NOUN.match(words[0]):
        return True
    if len(words) > 1:
        return False
    functions, others = _foreign_only(), nouns()
    beside = {word.lower() for word in _TOKEN.findall(text)} - common()
    return not beside.isdisjoint(functions) or len(beside & others) > 1


@cache
def _capitalised_plain() -> frozenset[str]:
    """Return words that no name begins or ends with, of other languages and of offices."""
    return _functions() | nouns()


@cache
def _functions() -> frozenset[str]:
    return foreign() | office_words()


def is_a_plain_word(word: str) -> bool:
    """Whether a word begins sentences of some language, and no list has it as a name."""
    if word.lower() not in _functions():
        return False
    return word not in first_names() and word not in family_names()


def without_plain_ends(
    words: list[str], text: str, start: int, stop: int
) -> tuple[list[str], int, int]:
    """Return a span without everyday words of any language at its ends."""
    if len(words) == 1 and words[0] in first_names():
        return words, start, stop
    first, last, plain = 0, len(words), _capitalised_plain()
    several, functions = len(words) > 1, _functions()

    def is_one(word: str) -> bool:
        known = word.lower().strip(".,:'")
        if known in functions or known not in plain:
            return known in functions
        listed = word.strip(".,:'")
        return not (several and (listed in first_names() or listed in family_names()))

    while first < last and is_one(words[first]):
        first += 1
    while last > first and is_one(words[last - 1]):
        last -= 1
    if last - first == len(words):
        return words, start, stop
    left = words[first:last]
    if not left or (len(left) == 1 and left[0].lower() in plain and left[0] not in first_names()):
        return [], start, start
    begin = start
    for word in words[: first + 1]:
        at = text.find(word, begin, stop)
        begin = at + len(word)
    begin -= len(words[first])
    return left, begin, text.rfind(left[-1], begin, stop) + len(left[-1])


def may_be_a_person(words: list[str], text: str, start: int, stop: int) -> bool:
    """Whether words have the case of a name: no acronym, no class, no sentence that goes on."""
    first, last = first_names(), family_names()
    for word in words:
        listed = word.title()
        if listed in first or listed in last:
            return words[0][0].isupper()
    if len(words) > 1:
        if "of" in words or all(map(like_a_word, words)) or "".join(words).isupper():
            return False
        return words[0][0].isupper() and words[-1][0].isupper()
    word = words[0]
    if not word[0].isupper() or CAMEL_CASE.match(word) or "-" in word[-2:] or like_a_word(word):
        return False
    if not word.isupper():
        return True
    before, behind = text[max(0, start - 2) : start].strip(), text[stop : stop + 2].strip()
    return len(word) > 5 and (before.isupper() or behind.isupper())


def is_a_label(words: list[str], text: str, start: int, stop: int) -> bool:
    """Whether a word that no list has begins a line and announces what follows it."""
    if len(words) > 1 or text[stop : stop + 2].lstrip(" ")[:1] not in (":", "="):
        return False
    if not _LABEL.match(text, stop) or text[:start].rpartition("\n")[2].strip(" \t*-#>\"'"):
        return False
    return words[0] not in first_names() and words[0] not in family_names()


_ENDS = ("s", "es", "ed", "d", "er", "ing")


def like_a_word(word: str) -> bool:
    """Whether this is an everyday word, its plural or another form of a verb."""
    plain, known = word.lower(), common()
    if plain in known:
        return True
    if not plain.endswith(_ENDS):
        return False
    return any(plain.endswith(end) and plain.removesuffix(end) in known for end in _ENDS)


def beside_a_place(words: list[str]) -> bool:
    """Whether one of two words is a place and neither is a name: a club, a station, a district."""
    if any(w in first_names() or w in ambiguous_names() or w in family_names() for w in words):
        return False
    return any(word.lower() in places() for word in words)


def is_an_abbreviation(words: list[str]) -> bool:
    """Whether a short word in capitals that no list has stands by itself, or behind everyday words."""
    left = [word for word in words if not like_a_word(word)]
    if len(left) != 1 or not left[0].isupper() or len(left[0]) > 5:
        return False
    return left[0].title() not in first_names() and left[0].title() not in family_names()


def is_an_identifier(text: str, start: int, stop: int, signs: ProgramSigns) -> bool:
    """Whether a word by itself belongs to a program."""
    if text[stop : stop + 1] in ("(", "[", "=", "_", "/"):
        return True
    if start and text[start - 1] in "_./$#":
        return True
    if text[start:stop] in ambiguous_names() and is_plain_word(text, start, stop):
        return True
    if start == 0 and stop == len(text) and text[0].isupper() and "." not in text:
        return False  # nothing stands around it
    return signs.around(start, stop)
