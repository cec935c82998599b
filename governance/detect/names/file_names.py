"""Somebody's name in the name of a file: beside a given name, or beside the word for a paper of theirs."""

import re
from functools import cache
from itertools import pairwise

from governance.detect.rules.name_checks import is_known, is_no_name
from governance.names.words import (
    ambiguous_names,
    family_names,
    first_names,
    is_plain,
    plain_words,
    things,
)

_TOKENS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_CAMEL_PAIR = re.compile(
    r"(?<![^\W_])([^\W\d_a-z][^\W\d_A-Z]{2,})([^\W\d_a-z][^\W\d_A-Z]{2,})(?![^\W\d_])"
)
_PAPERS_WORDS = """
    cv resume résumé curriculum vitae lebenslauf bewerbung arbeitsvertrag mietvertrag kündigung zeugnis
    krankmeldung gehaltsabrechnung lohnabrechnung abmahnung personalakte anschreiben vollmacht führerschein
    personalausweis reisepass payslip headshot passport diploma transcript paie salaire rib attestation cni
    motivation nómina dni currículo currículum busta paga zaświadczenie umowa świadectwo życiorys loonstrook
    arbeidscontract rijbewijs резюме договор справка заявление özgeçmiş sözleşme dilekçe candidate interview
    offboarding nomina payroll steuerbescheid rentenbescheid bescheinigung certificado contratto permesso
    patente pasaporte passaporto passeport permis paspoort paszport visa xray prescription recept receta
    ordonnance referral bewerbungsunterlagen
    """
_PAPERS = frozenset(_PAPERS_WORDS.split())
"""Papers that are somebody's: what else stands in the name of such a file is whose."""


def in_file_name(name: str) -> tuple[int, int] | None:
    """Return where somebody's name stands in a file's name.

    That is a given name with a word beside it, or what stands beside the word for somebody's paper.
    """
    tokens = [*_TOKENS.finditer(name)]
    capital = [match for match in tokens if match.group()[0].isupper()]
    for place, match in enumerate(capital):
        if _given(match.group()):
            start, end = match.span()
            if place + 1 < len(capital) and _beside(name, match, capital[place + 1]):
                end = capital[place + 1].end()
                if place and _known_beside(capital[place - 1], match):
                    start = capital[place - 1].start()
                return start, end
            if place and _beside(name, capital[place - 1], match, turned=True):
                return capital[place - 1].start(), end
    if len(tokens) == len(capital) == 2 and _beside(name, *capital):
        first, last = (match.group() for match in capital)
        if (last in family_names() and _may_be_family(first)) or first in family_names():
            return capital[0].start(), capital[1].end()
    if (camel := _CAMEL_PAIR.search(name)) and _given(camel[1]) and not is_no_name(camel[2]):
        return camel.span()
    return _in_small_letters(tokens) or _of_a_paper(tokens, capital)


def _given(word: str) -> bool:
    """Whether a word is a given name and no everyday word or program."""
    plain = word.title() if word.isupper() else word
    if plain not in first_names() and plain not in ambiguous_names():
        return False
    return word.lower() not in _things_alone()


def may_be_family(word: str) -> bool:
    """Whether a capitalised word is no everyday word and no thing."""
    return word.istitle() and word.isalpha() and _may_be_family(word)


def _may_be_family(word: str) -> bool:
    return len(word) > 1 and not is_no_name(word) and word.lower() not in _things_alone()


def _beside(name: str, one: re.Match[str], other: re.Match[str], *, turned: bool = False) -> bool:
    """Whether two words are joined by a mark or a comma, and the one that is no given name may be a family's."""
    between = name[one.end() : other.start()]
    family = (one if turned else other).group()
    if len(between) != 1 and between != ", ":
        return False
    return _may_be_family(family) and not (
        family.isupper() and len(family) < 4 and not is_known(family)
    )


def _known_beside(one: re.Match[str], other: re.Match[str]) -> bool:
    return other.start() - one.end() == 1 and _given(one.group())


def _in_small_letters(tokens: list[re.Match[str]]) -> tuple[int, int] | None:
    """Return where a given and a family name stand in small letters: ``cv_leonie-hartwig``."""
    for one, other in pairwise(tokens):
        words = (one.group(), other.group())
        if other.start() - one.end() != 1 or not all(word.islower() for word in words):
            continue
        if any(len(word) < 4 or word in plain_words() or word in things() for word in words):
            continue
        first, last = (word.capitalize() for word in words)
        if (first in first_names() and _unlike_a_thing(last)) or (
            last in first_names() and first in family_names()
        ):
            return one.start(), other.end()
    return None


def _unlike_a_thing(word: str) -> bool:
    return word in family_names() or word in first_names() or len(word) > 5


def _of_a_paper(
    tokens: list[re.Match[str]], capital: list[re.Match[str]]
) -> tuple[int, int] | None:
    """Return where the words stand that say whose paper a file is."""
    if not any(match.group().lower() in _PAPERS for match in tokens):
        return None
    left = [
        match for match in capital if _may_be_family(match.group()) and not match.group().isupper()
    ]
    left = left or [
        match for match in capital if len(match.group()) > 4 and _may_be_family(match.group())
    ]
    left = left or _written_small(tokens)
    return (left[0].start(), left[-1].end()) if 0 < len(left) < 4 else None


def _written_small(tokens: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return what may be a name in small letters in the name of somebody's paper; one word is long."""
    left = [match for match in tokens if _may_be_in_small(match.group())]
    return left if any(len(match.group()) > 4 for match in left) else []


def _may_be_in_small(word: str) -> bool:
    return (
        len(word) > 2
        and word.islower()
        and word not in _PAPERS
        and not is_plain(word)
        and word not in things()
    )


@cache
def _things_alone() -> frozenset[str]:
    """Return the things that nobody is called."""
    return things() - _as_names()


@cache
def _as_names() -> frozenset[str]:
    return frozenset(word.lower() for word in family_names())
