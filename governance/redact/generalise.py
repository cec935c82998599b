"""Generalisation: a value becomes a wider one that many people share."""

import re
from datetime import date
from typing import Literal

SMALL_ZIP_AREAS = frozenset(
    [
        "036",
        "059",
        "063",
        "102",
        "203",
        "556",
        "692",
        "790",
        "821",
        "823",
        "830",
        "831",
        "878",
        "879",
        "884",
        "890",
        "893",
    ]
)
"""First three digits of US postcodes where at most 20,000 people live (Census 2000), as the
Department of Health's guidance on de-identification lists them; they become 000."""

OLDEST_AGE = 89
"""Ages above this, and birth years that tell one, stand for very few people."""

_YEAR = re.compile(r"(?<!\d)(1[89]\d\d|20\d\d)(?!\d)")
_ZIP = re.compile(r"(\d{3})\d{0,2}(?:-\d{0,4})?\Z")

type Ages = Literal["decade", "over_89"]


def generalised(entity: str, value: str, *, ages: Ages, today: date) -> str | None:
    """Return the wider form of a value; None when it has none and only the type may stay.

    Args:
        entity: one that policy can generalise.
        value: the value as the view shows it.
        ages: ``decade`` gives ``60-69``; ``over_89`` leaves ages up to 89 as they are. Both give
            ``90+`` for all above.
        today: decides which birth years tell an age over 89.
    """
    if entity == "AGE":
        return _age(value, ages)
    if entity == "POSTCODE":
        return _postcode(value)
    year = _YEAR.search(value)
    if year is None:
        return None
    if entity == "DATE_OF_BIRTH" and today.year - int(year[1]) > OLDEST_AGE:
        return None
    return year[1]


def _age(value: str, ages: Ages) -> str | None:
    if not value.isdigit():
        return None
    age = int(value)
    if age > OLDEST_AGE:
        return "90+"
    return value if ages == "over_89" else f"{age // 10 * 10}-{age // 10 * 10 + 9}"


def _postcode(value: str) -> str | None:
    """Return the first three digits of a US postcode; others have no list of small areas."""
    code = _ZIP.match(value.strip())
    if code is None or len(value.strip().partition("-")[0]) not in (3, 5):
        return None
    return "000" if code[1] in SMALL_ZIP_AREAS else code[1]
