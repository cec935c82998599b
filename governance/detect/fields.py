"""Labels and their values in text of any format: a setting, a form, a query, an element, a cell beside a cell.

What a label says is known by the keys of JSON (``keys.py``, ``key_names.py``); here values are found that
belong to such a label, whatever stands between the two. So a word for "passport" is written down once.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from governance.detect.keys import entities_told
from governance.detect.matcher import QUERY_PARAMETER
from governance.detect.names.east_asian import names_nobody
from governance.detect.names.key_names import (
    is_of_people,
    may_be_anybody,
    names_a_person,
    names_a_thing,
)
from governance.detect.phone_words import TELLS_PHONE
from governance.detect.rules.name_checks import is_known, likely, no_company, unlisted
from governance.names.companies import has_a_form_before
from governance.names.words import first_names, is_a_thing, is_plain, things

_TOLD = frozenset(
    [
        "AGE", "BANK_ACCOUNT", "CREDIT_CARD", "DATE_OF_BIRTH", "HEALTH_PLAN", "IBAN_CODE", "LICENSE_NUMBER", "MEDICAL_RECORD",
        "NATIONAL_ID", "PHONE_NUMBER", "STREET_ADDRESS", "US_DRIVER_LICENSE", "US_PASSPORT", "US_SSN", "VEHICLE_ID",
    ]
)  # fmt: skip
"""What a label in text is believed of; passwords, keys and accounts have rules of their own."""
_SIGN = r"[-=→⇒：: ](?:(?<=[-=])>|(?<=[=→⇒：])|(?<=:)(?!//)|(?<= )(?=\*\*|[`\[«„“|]))"
_SEPARATOR = re.compile(_SIGN)
"""What stands between a label and its value; the set that it begins with lets `re` pass over all else at once."""
_SEPARATOR_IN_EAST_ASIA = re.compile(
    rf"{_SIGN}|(?<=[\u3040-\u9fff\uac00-\ud7a3]) ?(?=[A-Z]{{0,3}}\d)"
)
_REACH = 44
_BOUNDARY = re.compile(r"[\n\r\t,;|(\[{<&?>\"'`#/=:]|  | [-–—] ")
_AROUND_LABELS = " \t*_-+•.\"'`)]"
_VALUE = re.compile(
    r"[\"'`*_)\]]{0,3}[ \t]{0,16}(?P<below>\r?\n[ \t]{0,12})?[|]?(?P<open>[\"'`*_(\[{«„“「『‹\\]{0,3})(?:<[a-z]{1,8}>)?[ ]?"
    r"(?P<value>[^\W_](?:[^\n\r\t,;|\"`<>{}()\[\]→=&*「」『』«»“”\\ -]|[ -](?![ \->→])){1,79})"
)
_MORE = re.compile(
    r"\]?(?:, ?|; ?| (?:and|und|et|y|e|i|og|och|en|ve) )\[?(?P<value>[^\W\d_](?:[^\W\d_]|['’.\-]|[ ](?=[^\W\d_])){2,60})"
)
_NEXT = re.compile(
    r"[\"'\u201d]{0,2}\]?, ?\[?[\"'\u201c]{0,2}(?P<value>[^\n\r\t,;|\"'`<>{}()\[\]]{2,40})"
)
_MOST_NAMES = 8
_ELEMENT = re.compile(
    r"<(?P<label>[^\W\d_][\w.\-:]{1,40})(?:\s[^<>\n]{0,80})?>\s{0,8}(?P<value>[^<>\n]{2,80}?)\s{0,8}</"
)
_BESIDE = re.compile(
    r">\s{0,4}(?P<label>[^<>\n]{2,40}?):?\s{0,4}</[\w\-]{1,12}>\s{0,8}(?:<[^<>\n]{1,60}>\s{0,4}){1,2}(?P<value>[^<>\n]{2,80}?)\s{0,4}</"
)
_FORM = re.compile(
    r"\bname=\"(?P<label>[^\"\n]{2,40})\"[^\n]{0,80}\r?\n(?:[^\n]{1,80}\n)?\r?\n(?P<value>[^\r\n]{2,80})"
)
_LINE = re.compile(r"[ \t>*+•\-]{0,8}(?:text: ?)?[\"']?(?P<said>[^\n\r]*?)[\"']?:?[ \t\r]*\Z")
_A_NUMBER = re.compile(r"[ _](?:n[ro]?|num|number|nummer|numero|número|id)\.?\Z", re.IGNORECASE)
_LONGEST_LABEL = 40
_ALSO_OF_THINGS = frozenset(
    [
        "driver",
        "partner",
        "conductor",
        "parent",
        "child",
        "children",
        "maintainer",
        "backup",
        "speaker",
        "contributor",
        "host",
        "tutor",
        "client",
    ]
)
"""Labels of people that programs and goods have too: one unlisted word behind them is nobody."""
_PARTICLES_WORDS = """
    von van vom zu zum zur der den dem de del della di da dos das do du des la le les al el bin ibn ben abu ter ten te af av
    y e i och og und and st sankt mac nic ni o d
    """
_PARTICLES = frozenset(_PARTICLES_WORDS.split())
_NAME_WORD = re.compile(r"[^\W\d_][^\W\d_'’.\-]*(?:['’.\-][^\W\d_]*)*\Z")
_WORDS = re.compile(r"[ \xa0+_\u3000]+")


class Field(NamedTuple):
    """A value, and the key that its label is."""

    key: str
    start: int
    value: str
    entities: frozenset[str]
    """What the label says that the value may be."""


@lru_cache(maxsize=8192)
def _told_by(label: str) -> frozenset[str]:
    """Return what a value behind a label may be; nothing where the label says too little."""
    keys = (label,)
    if names_a_thing(keys):
        return frozenset()
    told = (entities_told(keys) | entities_told((_A_NUMBER.sub("", label),))) & _TOLD
    if names_a_person(keys) or is_of_people(keys) or may_be_anybody(keys):
        told |= {"PERSON"}
    if not TELLS_PHONE.isdisjoint(label.lower().replace("_", " ").split()):
        told |= {"PHONE_NUMBER"}
    return told


@lru_cache(maxsize=8192)
def _key_of(label: str) -> str:
    """Return the key that a label is: "fisa nr" says what "fisa" says."""
    return label if entities_told((label,)) & _TOLD else _A_NUMBER.sub("", label)


def fields(text: str) -> Iterator[Field]:
    """Yield the values of a text that stand behind a label which says what they are."""
    separator = _SEPARATOR if text.isascii() else _SEPARATOR_IN_EAST_ASIA
    for match in separator.finditer(text):
        if label := _label_before(text, match.start()):
            yield from _behind(text, label, match.end())
    if "</" in text:
        for pattern in (_ELEMENT, _BESIDE):
            for match in pattern.finditer(text):
                label = match["label"].rpartition(":")[2].strip(_AROUND_LABELS)
                yield from _field(text, label, match.start("value"), match["value"])
    if "\n" in text:
        yield from _below(text)
        for match in _FORM.finditer(text) if "form-data" in text else ():
            yield from _field(text, match["label"], match.start("value"), match["value"])


def _label_before(text: str, at: int) -> str:
    """Return the label that ends at a place, if it says something; of a sentence, none."""
    window = text[max(0, at - _REACH) : at].rstrip(_AROUND_LABELS)
    label = _BOUNDARY.split(window)[-1].strip(_AROUND_LABELS)
    if not label or not label[-1].isalpha() or label.count(" ") > 3 or len(label) > _LONGEST_LABEL:
        return ""
    return label if _told_by(label) else ""


def _behind(text: str, label: str, at: int) -> Iterator[Field]:
    found = _VALUE.match(text, at)
    if found is None:
        return
    value = found["value"]
    if text[found.end() : found.end() + 1] == "=":
        value = value.rpartition(" ")[0]  # the next setting of the same line
    if label[-1] >= "\u3040" and text[at - 1] not in ":=：→|":
        value = value.partition(" ")[0]  # nothing but a space stands between them
    if QUERY_PARAMETER.search(text, max(0, at - _REACH), at):
        if _told_by(label) == {"AGE"}:
            return  # a query asks for many people's
        value = value.partition(" ")[0]
    if "'" in found["open"]:
        value = value.partition("'")[0]
    yield from _field(text, label, found.start("value"), value)
    end = found.end()
    of_people = "PERSON" in _told_by(label)
    for _ in range(_MOST_NAMES):
        more = (_MORE if of_people else _NEXT).match(text, end)
        if more is None:
            return
        goes_on = (
            _is_somebody(more["value"], sure=False) if of_people else not _is_said(more["value"])
        )
        if not goes_on:
            return
        yield from _field(text, label, more.start("value"), more["value"])
        end = more.end()


def _is_said(value: str) -> bool:
    """Whether a sentence goes on there, instead of a list of values."""
    return sum(is_plain(word.lower()) for word in _WORDS.split(value)) > 1


def _below(text: str) -> Iterator[Field]:
    """Yield what stands on the line under a label that has its line for itself."""
    at, label = 0, ""
    for line in text.split("\n"):
        if label or len(line) <= _LONGEST_LABEL:
            found = _LINE.match(line)
            if found is not None:
                said = found["said"]
                if label and said:
                    yield from _field(text, label, at + found.start("said"), said)
                label = said if 2 <= len(said) <= _LONGEST_LABEL and _told_by(said) else ""
        at += len(line) + 1


def _field(text: str, label: str, start: int, value: str) -> Iterator[Field]:
    told = _told_by(label)
    value = value.rstrip()
    if not told or len(value) < 2:
        return
    key = _key_of(label)
    if "PERSON" in told:
        read = value.replace("+", " ").replace("_", " ").rstrip(" .")
        sure = not may_be_anybody((label,)) and label.lower() not in _ALSO_OF_THINGS
        stop = start + len(value)
        if _is_somebody(read, sure=sure) and not _is_a_thing(text, start, stop):
            yield Field("full_name", start, read, frozenset({"PERSON"}))
        told -= {"PERSON"}
    if told and any(map(str.isdigit, value)):
        yield Field(key, start, value, told)


_OF_A_COMPANY = re.compile(r" ?[&+] ?[^\W\d_a-z]")
_PLUS = re.compile(r" \+ ")


def _is_a_thing(text: str, start: int, stop: int) -> bool:
    """Whether a company, a place or a program stands there, by what is around it too."""
    if _OF_A_COMPANY.match(text, stop) or _PLUS.search(text, start, stop):
        return True
    return is_a_thing(text, start, stop) or not no_company(text, start, stop)


@lru_cache(maxsize=8192)
def _is_somebody(value: str, *, sure: bool) -> bool:
    """Whether a value is written as a name is: without an everyday word of any language.

    Args:
        value: what stands behind a label.
        sure: whether nothing but somebody's name stands behind it; else a name must be one that lists have.
    """
    words = _WORDS.split(value)
    if has_a_form_before(words):
        return False
    if not 1 <= len(words) <= 6 or not all(map(_NAME_WORD.match, words)):
        return False
    if value.lower() in things() or all("PERSON" in _told_by(word) for word in words):
        return False
    if value.lower() == value.upper():  # a script without capitals
        return sure and 2 <= len(value) <= 24 and not names_nobody(value)
    own = [word.strip(".") for word in words if word.lower() not in _PARTICLES]
    own = [word for word in own if len(word) > 1]
    if not own:
        return False
    given = is_known(own[0].capitalize()) or is_known(own[0].split("-")[0].capitalize())
    if any(
        is_plain(w.lower()) and not (sure and is_known(w.capitalize()))
        for w in own[given and sure :]
    ):
        return False
    if not sure and not (given and own[0].split("-")[0].capitalize() in first_names()):
        return False
    known = any(is_known(word.capitalize()) for part in own for word in part.split("-"))
    if len(own) > 1 or len(words) > len(own):
        if not (sure or known):
            return False
        if value.islower():
            return not any(is_plain(word) for word in own)
        return value.isupper() or likely(" ".join(own)) is None
    return (sure or known) and own[0][0].isupper() and unlisted(own[0]) is None
