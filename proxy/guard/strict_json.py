"""JSON that every receiver reads alike, and words as lenient receivers compare them.

Two readers of one body may see two calls: the first of two equal keys or the last, ``METHOD`` as
``method``, 2^53 + 1 as 2^53. What could be read in two ways is no JSON here.
"""

import json
import math
import unicodedata
from decimal import Decimal
from functools import lru_cache
from typing import Any

from trajectory.canonical import JsonValue

MOST_DEPTH = 64
_MOST_DIGITS = 400
_INVISIBLE = {"Cf", "Cc", "Mn"}


class AmbiguousJsonError(ValueError):
    """Text that is no JSON, or that receivers may read differently; says why in fixed words."""


class ExactNumber(float):
    """A number with a fraction or exponent: the float that most receivers see, and what was written."""

    __slots__ = ("exact",)
    exact: Decimal

    def __new__(cls, text: str) -> "ExactNumber":
        """Read a number as it is written."""
        number = super().__new__(cls, text)
        number.exact = Decimal(text)
        return number


def parse_strictly(data: bytes | str) -> JsonValue:
    """Return what JSON says.

    Raises:
        AmbiguousJsonError: it is no JSON in UTF-8, or not all receivers would read the same.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        value: JsonValue = _DECODER.decode(text)
        if "\\u" in text:
            _check_surrogates(value)
    except AmbiguousJsonError:
        raise
    except UnicodeError:
        raise AmbiguousJsonError("no UTF-8") from None
    except RecursionError:
        raise AmbiguousJsonError("too deep") from None
    except ValueError:
        raise AmbiguousJsonError("no JSON") from None
    if text.count("[") + text.count("{") > MOST_DEPTH and _depth(value) > MOST_DEPTH:
        raise AmbiguousJsonError("too deep")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or len({folded(key) for key in found}) < len(pairs):
        raise AmbiguousJsonError("a key twice")
    return found


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS or math.isinf(float(text)):
        raise AmbiguousJsonError("a number too large")
    return int(text)


def _number(text: str) -> float:
    if len(text) > _MOST_DIGITS or math.isinf(number := ExactNumber(text)):
        raise AmbiguousJsonError("a number too large")
    return number


def _constant(_: str) -> float:
    raise AmbiguousJsonError("no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_whole, parse_float=_number, parse_constant=_constant
)


def _check_surrogates(value: JsonValue) -> None:
    """Refuse text that has no UTF-8: what a receiver makes of it is its own affair."""
    for text in texts_of(value):
        text.encode()


def texts_of(value: JsonValue) -> list[str]:
    """Return all texts in a value, keys too."""
    found: list[str] = []
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, list):
            rest += one
        elif isinstance(one, dict):
            found += one
            rest += one.values()
    return found


def _depth(value: JsonValue) -> int:
    level: list[JsonValue] = [value]
    depth = 0
    while level:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, list | dict)
            for inner in (one if isinstance(one, list) else one.values())
        ]
    return depth


@lru_cache(4096)
def folded(text: str) -> str:
    """Return a text as a lenient receiver may compare it: no case, width, accents or invisible marks."""
    if text.isascii():
        return text.lower() if text.isprintable() else _visible(text).lower()
    return _visible(unicodedata.normalize("NFKD", text.casefold())).casefold()


def _visible(text: str) -> str:
    return "".join(one for one in text if unicodedata.category(one) not in _INVISIBLE)
