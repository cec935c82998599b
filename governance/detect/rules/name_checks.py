"""Whether what stands behind a cue is a name: no everyday word of any language, no thing, no company."""

import re
from collections.abc import Sequence

from governance.detect.names.east_asian import FIRST_LETTER, names_nobody
from governance.names.companies import is_a_company
from governance.names.words import (
    ambiguous_names,
    family_names,
    first_names,
    is_plain,
    things,
    within_a_thing,
)


def is_known(word: str) -> bool:
    """Whether a list has a word as a name."""
    plain = word.title() if word.isupper() else word
    return plain in first_names() or plain in family_names() or plain in ambiguous_names()


def is_no_name(word: str) -> bool:
    """Whether a word is an everyday one of some language, and no list has it as a name."""
    return is_plain(word.lower()) and not is_known(word)


def told(value: str) -> bool | None:
    """Whether what stands behind a cue may be a name: no everyday word of any language, no thing."""
    words = value.replace("-", " ").split()
    if len(words[0]) < 2 or is_no_name(words[0]) or value.lower() in things():
        return False
    return None


def at_an_end(value: str) -> bool | None:
    """The same at the end or the head of a letter, where a team stands as often: words alone are one."""
    return None if told(value) is None and not is_a_team(value) else False


def is_a_team(value: str) -> bool:
    """Whether all words of a run are everyday ones, and none is a given name: Le Service Client."""
    words = value.replace("-", " ").split()
    return all(is_plain(word.lower().strip(".,")) for word in words) and not any(
        word.title() in first_names() for word in words
    )


def are_words(words: Sequence[str]) -> bool:
    """Whether all of these are everyday words or programs, and no list has one as a name: Build Docker Image."""
    return all(
        (is_plain(word.lower()) or word.lower() in things()) and not is_known(word)
        for word in words
    )


def is_a_brand(words: Sequence[str]) -> bool:
    """Whether words together are a thing that is called after somebody, and hardly anybody is called so."""
    last = words[-1]
    if last in family_names() or (is_plain(last.lower()) and last.lower() not in things()):
        return False
    return " ".join(words).lower() in things()


_NO_NAME = re.compile(
    r"(?:ish|ese|ian|ans?|ist|ic|ch|isch|ism|ese|\u00e4r)\Z|(?:Agile|Scrum|DevOps|HR|IT|QA|VIP|CEO|CTO|CFO|PM)\Z"
)
"""How words for peoples, faiths and roles end, which are capitalised too."""


_PARTICLES = frozenset(
    [
        "De",
        "Van",
        "Von",
        "Der",
        "Den",
        "Du",
        "Le",
        "La",
        "Di",
        "Del",
        "Della",
        "Ter",
        "Te",
        "Zu",
        "El",
        "Al",
    ]
)
"""Where a family name may begin with a capital: mevrouw De Wolff."""


def titled(value: str) -> bool | None:
    """The same behind a title: somebody may have the name of a town or of a company."""
    words = value.replace("-", " ").split()
    while len(words) > 1 and words[0] in _PARTICLES:
        del words[0]
    if len(words[0]) < 2 or is_no_name(words[0]):
        return False
    return None


def unlisted(value: str) -> bool | None:
    """Whether a word that no list has may be a name: as ``told``, and no people, faith, language or role."""
    words = value.replace("-", " ").split()
    if told(value) is False or (value.isupper() and not is_known(words[0])):
        return False
    if any(map(is_known, words)):
        return None
    if (
        len(words[0]) < 4
        or any(map(is_no_name, words))
        or any(w.lower() in things() for w in words)
    ):
        return False
    return False if _NO_NAME.search(words[-1]) else None


def in_query(value: str) -> bool | None:
    """The same for a value in the query of an address, whose words are joined by marks."""
    return unlisted(re.sub(r"\+|%20|_", " ", value))


def with_initials(value: str) -> bool | None:
    """Whether what stands behind initials is a family name: no word of any language, and no thing."""
    family = value.rpartition(".")[2].strip()
    if any(map(is_no_name, family.replace("-", " ").split())) or value.lower() in things():
        return False
    return unlisted(family)


def surname_in_small(value: str) -> bool | None:
    """Whether what follows a title in small letters is a family name, and no everyday word."""
    return None if not is_plain(value) and value not in things() else False


def likely(value: str) -> bool | None:
    """The same where other words stand there as often: a name that lists have, or two words at least."""
    words = value.replace("-", " ").split()
    if told(value) is False or any(map(is_no_name, words)):
        return False
    return None if any(map(is_known, words)) or (len(words) > 1 and not value.isupper()) else False


_TITLED = re.compile(
    r"\b(?:Herrn?|Frau|Mr|Mrs|Ms|Dr|Prof|M|Mme|Mlle|Sr|Sra|Srta|Sig|Sig\.ra|Pan|Pani|[Hh]eer|[Mm]evrouw|[Mm]eneer|Don|Do\xf1a|[Ss]e\xf1ora?|[Ss]ignora?|[Ss]enhora?|Madame|Monsieur)\.?[ \xa0]\Z"
)


def has_a_title(text: str, start: int) -> bool:
    """Whether a title of a person stands right before a place, so that a verb of trade says nothing."""
    return _TITLED.search(text, max(0, start - 14), start) is not None


def no_company(text: str, start: int, end: int) -> bool:
    while text[end : end + 1].isalnum():
        end += 1  # a pattern of names ends within a legal form: Gmb|H
    words = text[start:end].split()
    is_named = len(words) > 1 and words[0].title() in first_names()
    if within_a_thing(text, start, end):
        return False
    return not is_a_company(text, start, end, is_named=is_named or has_a_title(text, start))


_VOWEL = re.compile(r"(?i)[aeiouyà-æè-ïò-öù-ý]")


def spelled(value: str) -> bool | None:
    """Return False for an abbreviation or a thing that is spelled letter by letter."""
    word = "".join(filter(str.isalpha, value)).lower()
    return None if _VOWEL.search(word) and word not in things() else False


def and_no_role(value: str) -> bool | None:
    """Return False for a role, and for a word that sentences begin with."""
    roles = ("担当者", "責任者", "関係者", "利用者", "管理者", "한국인", "고객", "お客")
    return False if value in roles or (value[0] >= FIRST_LETTER and names_nobody(value)) else None
