"""Seals what travels through an engine, so that its memory, disks and network hold ciphertext only."""

import os
import pickle
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trajectory.errors import ConfigurationError

_NONCE_BYTES = 12


class Seal:
    """Encrypts and authenticates Python values (AES-256-GCM).

    A value is bound to the label that it was sealed with: an answer cannot be passed off as the
    answer to another request. What has been authenticated is ours, so it may be unpickled.
    """

    def __init__(self, key: bytes) -> None:
        """Work with a 32-byte key, which never travels itself."""
        self._cipher = AESGCM(key)

    def close(self, value: Any, label: str) -> bytes:
        """Return ``value`` sealed under ``label``."""
        nonce = os.urandom(_NONCE_BYTES)
        data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return nonce + self._cipher.encrypt(nonce, data, label.encode())

    def open(self, sealed: bytes, label: str) -> Any:
        """Return the value that was sealed under ``label``.

        Raises:
            ConfigurationError: it was sealed with another key, or under another label.
        """
        try:
            data = self._cipher.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode()
            )
        except InvalidTag:
            raise ConfigurationError(
                "the engine's worker and the governing process have different master keys; give "
                "every node the same one (HEADRACE_MASTER_KEY, or the home's secrets folder)"
            ) from None
        return pickle.loads(data)  # noqa: S301 - authenticated above
