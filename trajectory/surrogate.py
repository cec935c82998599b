"""Surrogates: what a provider sees in the place of personal data, made from a key and the value alone.

``EMAIL_xkdrwqpzmtbnhgcvfj``: the type, then consonants. No number and hardly a name can hide in
them, no character needs an escape, and models copy them whole. All have the same length, so none is
the beginning of another. Equal values of one scope have equal surrogates, in whatever process.
"""

import hmac
import re
from typing import NamedTuple

LENGTH = 24
"""Characters of every surrogate."""
_LETTERS = "bcdfghjklmnpqrstvwxz"
_LONGEST_WORD = 7
_WORDS = {
    "API_KEY": "SECRET",
    "BANK_ACCOUNT": "ACCOUNT",
    "CONNECTION_STRING": "SECRET",
    "CREDIT_CARD": "CARD",
    "CRYPTO": "WALLET",
    "DATE_OF_BIRTH": "BIRTH",
    "DEVICE_ID": "DEVICE",
    "EMAIL_ADDRESS": "EMAIL",
    "ENCODED_DATA": "DATA",
    "HEALTH_PLAN": "PLAN",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "IP",
    "JWT": "SECRET",
    "LICENSE_NUMBER": "LICENSE",
    "MAC_ADDRESS": "MAC",
    "MEDICAL_LICENSE": "LICENSE",
    "MEDICAL_RECORD": "RECORD",
    "NATIONAL_ID": "ID",
    "PASSWORD": "SECRET",
    "PERSONAL_URL": "URL",
    "PHONE_NUMBER": "PHONE",
    "POSTCODE": "POSTAL",
    "PRIVATE_KEY": "SECRET",
    "STREET_ADDRESS": "ADDRESS",
    "UK_NHS": "HEALTH",
    "URL_CREDENTIALS": "SECRET",
    "US_BANK_NUMBER": "ACCOUNT",
    "US_DRIVER_LICENSE": "LICENSE",
    "US_ITIN": "ID",
    "US_PASSPORT": "PASSPRT",
    "US_SSN": "ID",
    "USERNAME": "USER",
    "VEHICLE_ID": "VEHICLE",
}
"""Everyday words for entity types: beside the name of a secret models refuse to answer."""


def form_of(word: str) -> str:
    """Return the regular expression of surrogates that begin with a word."""
    return rf"{word}_[{_LETTERS}]{{{LENGTH - len(word) - 1}}}"


PATTERN = "|".join(
    rf"[A-Z]{{{size}}}_[{_LETTERS}]{{{LENGTH - size - 1}}}" for size in range(2, _LONGEST_WORD + 1)
)
"""Regular expression of everything that has the form of a surrogate."""
FORM = re.compile(PATTERN)
SIMILAR = re.compile(rf"(?<![A-Za-z0-9_])[A-Z]{{2,{_LONGEST_WORD}}}_[{_LETTERS}]{{8,}}")
"""What somebody may have meant for a surrogate: too long or too short ones too."""


class PseudonymisedText(NamedTuple):
    """A text as the provider may see it."""

    text: str
    issued: dict[str, str]
    """Surrogates, and the values that they stand for in this text."""
    entities: dict[str, str]
    """Types of these values, by their surrogates; a value from before may have none."""
    numbers: frozenset[str]
    """Surrogates that stand for bare numbers of JSON."""
    subjects: tuple[str, ...]
    """Whom the values name, as keyed pseudonyms."""


def scope_key(key: bytes, *scope: str) -> bytes:
    """Return the key of a scope: a tenant, and what narrows it down (a day, a conversation)."""
    return hmac.digest(key, _joined(scope), "sha256")


def surrogate(key: bytes, entity: str, value: str) -> str:
    """Return what stands for a value, exactly as it is written, within the scope of a key."""
    word = _word(entity)
    number = int.from_bytes(hmac.digest(key, _joined((entity, value)), "sha256"))
    letters = []
    for _ in range(LENGTH - len(word) - 1):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return f"{word}_{''.join(letters)}"


def _word(entity: str) -> str:
    word = _WORDS.get(entity) or re.sub(r"[^A-Z]", "", entity.upper())[:_LONGEST_WORD]
    return word if len(word) > 1 else "VALUE"


def _joined(parts: tuple[str, ...]) -> bytes:
    """Return texts as one, with their lengths, so that no two lists come out equal."""
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(8) + part for part in raw)
