"""Realistic stand-ins that belong to nobody: reserved domains, numbers and addresses, drawn names.

Each is drawn from a key and the value, so that one value keeps one stand-in within its scope. The ranges are
small: RFC 2606, RFC 5737, the 555-01xx lines, social security numbers of area 000. Two values may share a
stand-in, so no join on them is certain.
"""

from collections.abc import Sequence
from functools import cache

from governance.names.words import hand_written_first_names, last_names

_AREAS = ("202", "212", "213", "303", "305", "312", "404", "415", "503", "512", "602", "617", "702")


@cache
def _sorted(kind: str) -> tuple[str, ...]:
    names = hand_written_first_names() if kind == "first" else last_names()
    return tuple(sorted(name for name in names if name.isascii() and name.isalpha()))


def _pick(options: Sequence[str], number: int) -> str:
    return options[number % len(options)]


def surrogate(entity: str, word: str) -> str | None:
    """Return the stand-in that a keyed word (hexadecimal) draws; None for types that have none."""
    number = int(word, 16)
    first = _pick(_sorted("first"), number)
    last = _pick(_sorted("last"), number >> 24)
    tail = word[-6:]
    match entity:
        case "PERSON":
            return f"{first} {last}"
        case "EMAIL_ADDRESS":
            return f"{first}.{last}.{tail}@mail.invalid".lower()
        case "USERNAME":
            return f"{first}{last[0]}_{tail}".lower()
        case "PHONE_NUMBER":
            return f"{_pick(_AREAS, number)}-555-01{(number >> 16) % 100:02d}"
        case "IP_ADDRESS":
            return f"192.0.2.{1 + number % 254}"
        case "US_SSN":
            return f"000-{1 + number % 99:02d}-{1 + (number >> 8) % 9999:04d}"
        case "PERSONAL_URL":
            return f"https://{first}-{last}-{tail}.invalid/".lower()
        case _:
            return None
