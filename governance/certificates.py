"""Erasure certificates: what was erased, signed with Ed25519, so that anybody can check it later.

The signing key is derived from the installation's master key; the public key stands in each
certificate and is printed by ``headrace audit public-key``, to be noted elsewhere. A certificate
names keyed pseudonyms, counts and the head of the audit log; no personal data.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from trajectory.canonical import JsonObject, JsonValue, canonical_json
from trajectory.errors import ConfigurationError, IntegrityError

KIND = "headrace/erasure-certificate/v1"
ANCHOR = "headrace/audit-anchor/v1"


class Certifier:
    """Signs certificates with a key derived from 32 secret bytes."""

    def __init__(self, seed: bytes) -> None:
        """Use the Ed25519 key with this seed."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public_key(self) -> str:
        """The public key, hexadecimal."""
        return self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def certificate(self, said: Mapping[str, JsonValue], *, kind: str = KIND) -> JsonObject:
        """Return a signed certificate that says this."""
        statement: JsonObject = {"kind": kind, **said}
        signature = self._key.sign(canonical_json(statement))
        return {
            "statement": statement,
            "public_key": self.public_key,
            "signature": signature.hex(),
        }


def verified(
    certificate: JsonValue, public_key: str | None = None, *, kind: str = KIND
) -> JsonObject:
    """Return what a certificate says when its signature holds.

    Args:
        certificate: the parsed certificate.
        public_key: the installation's key as it was noted elsewhere; without one, the key in the
            certificate is used, which only proves that nothing was changed since it was signed.
        kind: what it must be.

    Raises:
        IntegrityError: it was changed, or another installation signed it.
    """
    said = certificate if isinstance(certificate, dict) else {}
    statement, signature = said.get("statement"), said.get("signature")
    if not isinstance(statement, dict) or statement.get("kind") != kind:
        raise IntegrityError(f"this is no {kind} of Headrace.")
    own = said.get("public_key")
    if public_key is not None and own != public_key:
        raise IntegrityError("another installation signed this certificate: the keys differ.")
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(own)))
        key.verify(bytes.fromhex(str(signature)), canonical_json(statement))
    except (InvalidSignature, ValueError):
        raise IntegrityError(
            "the certificate's signature does not hold: it was changed after it was signed."
        ) from None
    return statement


def read_certificate(path: Path) -> JsonValue:
    """Return the JSON of a file.

    Raises:
        ConfigurationError: it cannot be read, or is not JSON.
    """
    try:
        value: JsonValue = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not a certificate ({type(error).__name__})") from None
    return value
