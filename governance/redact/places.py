"""Key paths in reports: a key is shown when all of its words are everyday ones, else ``*`` stands for it.

Clients use names, mail addresses and numbers as keys, and no detector finds all of them.
"""

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from governance.names.words import ambiguous_names, common, first_names, last_names

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,39}")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MOST_DIGITS = 2
_WORDS = """
    anyof base64 bic dob fax iban imei imsi ip logprobs mac mcp mrn npi oneof participant plz postcode
    schema ssn swift temperature udi uri uuid vin
    """
_FIELD_WORDS = frozenset(_WORDS.split())
"""Words of fields that nobody writes in everyday texts."""


class HiddenKey(str):
    """A key that reports do not show. For all else, detectors too, it is the key that it is."""

    __slots__ = ()


class AnswerKey(str):
    """What a message answers, as its text's key for detectors; reports show ``text``."""

    __slots__ = ()


@lru_cache(maxsize=4096)
def as_step(key: str) -> str:
    """Return a key of an object as a step of a key path."""
    return key if _is_everyday(key) else HiddenKey(key)


def shown(path: Iterable[str]) -> str:
    """Return a key path as reports show it."""
    return "/" + "/".join([_SHOWN.get(type(step), step) for step in path])


_SHOWN: dict[type, str] = {HiddenKey: "*", AnswerKey: "text"}


def _is_everyday(key: str) -> bool:
    if _KEY.fullmatch(key) is None:
        return False
    words = [word.lower() for word in _PARTS.findall(key)]
    return all(len(word) == 1 or word in _words() or _is_small(word) for word in words)


def _is_small(word: str) -> bool:
    return len(word) <= _MOST_DIGITS and word.isdigit()


@cache
def _words() -> frozenset[str]:
    names = {name.lower() for name in (*first_names(), *last_names(), *ambiguous_names())}
    return (common() - names) | _FIELD_WORDS
