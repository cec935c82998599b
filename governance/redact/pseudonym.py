"""Keyed stand-ins for values: pseudonyms in text, and names of data subjects in tables."""

import re
import unicodedata
from hashlib import blake2b

from governance.policy.redaction import SECRET_ENTITIES, Operator

_SPACES = re.compile(r"\s+")
_NOT_ALNUM = re.compile(r"[\W_]+")
_NUMBER_TYPES = """
    PHONE_NUMBER CREDIT_CARD US_SSN US_ITIN US_BANK_NUMBER US_PASSPORT BANK_ACCOUNT UK_NHS
    IBAN_CODE MAC_ADDRESS
    """
_NUMBERS = frozenset(_NUMBER_TYPES.split())
MARK = re.compile(r"<[A-Z][A-Z0-9_]{1,40}(?:_[0-9a-f]{6,32}|:[0-9a-f]{16})?>|\*{4}")
"""What redaction itself writes; it is never redacted again."""


def canonical_value(entity: str, value: str) -> str:
    """Return the form in which two spellings of one value agree."""
    folded = unicodedata.normalize("NFKC", value).casefold()
    if entity in _NUMBERS:
        return _NOT_ALNUM.sub("", folded)
    return _SPACES.sub(" ", folded).strip(" .,;:'\"")


def _keyed(key: bytes, size: int, *parts: str) -> str:
    data = b"\x1f".join(part.encode("utf-8", "surrogatepass") for part in parts)
    return blake2b(data, key=key, digest_size=size).hexdigest()


def subject_id(pseudonym_key: bytes, tenant_id: str, value: str) -> str:
    """Return the name under which governance rows keep a data subject (an e-mail, a name, a number).

    The same for every way to write the value in which case and spaces differ; phone numbers by
    their digits.
    """
    plain = canonical_value("PERSON", value)
    if plain and not any(char.isalpha() for char in plain):
        plain = _NOT_ALNUM.sub("", plain)
    return "subject_" + _keyed(pseudonym_key, 16, "subject", tenant_id, plain)


class Pseudonymizer:
    """Turns findings into what stands in their place."""

    def __init__(self, key: bytes, operators: dict[str, Operator], *, digits: int = 6) -> None:
        self._key = key
        self._operators = operators
        self._digits = digits

    def replacement(self, entity: str, value: str, scope: str) -> str | None:
        """Return what replaces a value; None when policy keeps it.

        Args:
            entity: the entity type.
            value: the value as the view shows it.
            scope: tenant, or tenant and trajectory; equal values agree within it.
        """
        operator = self._operators.get(entity, Operator.DROP)
        if operator is Operator.KEEP:
            return None
        if operator is Operator.MASK:
            return "****"
        if operator is Operator.DROP or entity in SECRET_ENTITIES:
            return f"<{entity}>"
        plain = canonical_value(entity, value)
        if operator is Operator.HASH:
            return f"<{entity}:{_keyed(self._key, 8, 'hash', entity, scope, plain)}>"
        word = _keyed(self._key, 16, "pseudonym", entity, scope, plain)[: self._digits]
        return f"<{entity}_{word}>"
