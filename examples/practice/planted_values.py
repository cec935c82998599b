"""Personal data and secrets that are planted in prompts, each made from a seed and a slot.

Names and phone numbers come from a permutation of their whole space, so that two slots of one
seed never share a value. Numbers are from ranges reserved for fiction, cards begin with issuers'
test prefixes and satisfy Luhn, mail domains are reserved for examples.
"""

import hashlib
import random
import unicodedata
from dataclasses import dataclass, field
from math import gcd

from examples.practice.names import FAMILY, GIVEN

_AREAS = """
201 202 203 206 207 208 212 213 214 215 216 217 219 225 228 229 231 239 240 248 251 252 253
254 256 260 262 267 269 270 276 281 301 302 303 304 305 307 308 309 310 312 313 314 315 316
317 318 319 320 402 404 405 406 407 408 410 412 413 415
"""
_AREA_CODES = tuple(_AREAS.split())
_CARD_PREFIXES = (("411111", 16), ("424242", 16), ("555555", 16), ("510510", 16), ("378282", 15))
_KEY_ALPHABET = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_DOMAINS = ("example.com", "example.org", "example.net")
_HOSTS = ("", "mail.", "post.", "office.", "inbox.", "team.")


@dataclass(frozen=True, slots=True)
class PlantedValue:
    """One planted value."""

    kind: str
    """person | email | phone | card | api_key"""
    value: str = field(repr=False)
    """Exactly as it stands in the text."""
    context: str
    """How it was put into the text (``signature``, ``label`` …): says where detection is weak."""


def generator(*parts: object) -> random.Random:
    """Return a random generator that depends on the parts alone (never on the process)."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - reproducible, not secret


def permuted(seed: int, what: str, slot: int, size: int) -> int:
    """Map a slot to a place in ``range(size)``; different slots below size get different places."""
    draw = generator(seed, what)
    step = draw.randrange(1, size)
    while gcd(step, size) != 1:
        step = draw.randrange(1, size)
    return (slot * step + draw.randrange(size)) % size


def person(seed: int, slot: int) -> str:
    """Return a full name; unique for the slot."""
    index = permuted(seed, "person", slot, len(GIVEN) * len(FAMILY))
    return f"{GIVEN[index % len(GIVEN)]} {FAMILY[index // len(GIVEN)]}"


def email(draw: random.Random, name: str) -> str:
    """Return a mail address made from a name and random digits."""
    plain = unicodedata.normalize("NFKD", name.replace("Ł", "L").replace("ø", "o"))
    given, family = plain.encode("ascii", "ignore").decode().lower().split()
    local = draw.choice((f"{given}.{family}", f"{given[0]}{family}", f"{family}_{given}"))
    host = draw.choice(_HOSTS) + draw.choice(_DOMAINS)
    return f"{local}{draw.randrange(1000, 10000)}@{host}"


def phone(seed: int, slot: int, draw: random.Random) -> str:
    """Return a phone number from a range reserved for fiction; its digits are unique for the slot."""
    american, french = len(_AREA_CODES) * 100, 10_000
    index = permuted(seed, "phone", slot, american + french + 1_000)
    if index < american:
        area, line = _AREA_CODES[index // 100], f"01{index % 100:02d}"
        shape = draw.choice(("+1 {} 555 {}", "({}) 555-{}", "{}-555-{}", "+1-{}-555-{}"))
        return shape.format(area, line)
    index -= american
    if index < french:
        return f"+33 1 99 00 {index // 100:02d} {index % 100:02d}"
    return f"+44 20 7946 0{index - french:03d}"


def luhn_digit(digits: str) -> str:
    """Return the check digit that makes ``digits`` + it satisfy Luhn."""
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return str(-total % 10)


def card(draw: random.Random) -> str:
    """Return a card number that satisfies Luhn, written in one of three ways."""
    prefix, length = draw.choice(_CARD_PREFIXES)
    body = prefix + "".join(str(draw.randrange(10)) for _ in range(length - len(prefix) - 1))
    digits = body + luhn_digit(body)
    separator = draw.choice((" ", "-", ""))
    cuts = (4, 8, 12) if length == 16 else (4, 10)
    groups = [digits[a:b] for a, b in zip((0, *cuts), (*cuts, length), strict=True)]
    return separator.join(groups)


def api_key(draw: random.Random) -> str:
    """Return a secret that looks like a provider's key."""
    prefix = draw.choice(("sk-", "sk-", "sk-proj-", "ghp_"))
    length = 36 if prefix == "ghp_" else draw.randrange(32, 44)
    return prefix + "".join(draw.choice(_KEY_ALPHABET) for _ in range(length))
