"""Values sealed so that a permitted person can open them again: AES-SIV, one key per use.

``<PERSON~k.t>``: ``k`` says whose key sealed it (the digits of the subject's name, or
``0`` for the installation's key), ``t`` is the sealed value. Equal values of one scope give equal
marks, so that joins and dialogue stay coherent.
"""

import base64
import binascii
import re
from hashlib import blake2b
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trajectory.errors import IntegrityError

SEALED = re.compile(r"<([A-Z][A-Z0-9_]{1,40})~([0-9a-f]{32}|0)\.([A-Za-z0-9_\-]{20,4000})>")
INSTALLATION = "0"
_TAG = 8
"""Bytes before the value that depend on the scope: marks of two scopes do not agree."""


class SealedValue(NamedTuple):
    """A mark taken apart."""

    entity: str
    subject: str | None
    """Whose key opens it; None for the installation's."""
    token: str


def seal(key: bytes, entity: str, value: str, scope: str, subject: str | None) -> str:
    """Return the mark that stands for a value."""
    tag = blake2b(scope.encode("utf-8", "surrogatepass"), key=key, digest_size=_TAG).digest()
    plain = tag + value.encode("utf-8", "surrogatepass")
    sealed = _cipher(key).encrypt(plain, [entity.encode()])
    whose = subject.removeprefix("subject_") if subject else INSTALLATION
    return f"<{entity}~{whose}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}>"


def parsed(mark: str) -> SealedValue | None:
    """Return a mark's parts, or None when this is not one."""
    match = SEALED.fullmatch(mark.strip())
    if match is None:
        return None
    subject = None if match[2] == INSTALLATION else f"subject_{match[2]}"
    return SealedValue(match[1], subject, match[3])


def unseal(key: bytes, mark: SealedValue) -> str:
    """Return the value that was sealed.

    Raises:
        IntegrityError: the key is another one, or the mark was changed.
    """
    try:
        sealed = base64.urlsafe_b64decode(mark.token + "=" * (-len(mark.token) % 4))
        plain = _cipher(key).decrypt(sealed, [mark.entity.encode()])
        return plain[_TAG:].decode("utf-8", "surrogatepass")
    except (InvalidTag, binascii.Error, ValueError):
        raise IntegrityError(
            "the mark does not open: it was changed, or made with a key that is gone."
        ) from None


def _cipher(key: bytes) -> AESSIV:
    derived = HKDF(algorithm=SHA256(), length=64, salt=None, info=b"headrace/reversible")
    return AESSIV(derived.derive(key))
