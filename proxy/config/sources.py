"""Where secrets come from; none is ever written into settings."""

import os
from pathlib import Path
from typing import Self

from pydantic import model_validator

from proxy.config.base import ConfigModel
from trajectory.errors import ConfigurationError


class SecretSource(ConfigModel):
    """Where a secret comes from; it is never written into settings."""

    env: str | None = None
    """Name of the environment variable that holds it."""
    file: Path | None = None
    """File that holds it; a change takes effect within a second, without restart."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret comes from exactly one of: env, file")
        return self

    def secret(self) -> str:
        """Return the secret.

        Raises:
            ConfigurationError: the variable or the file is missing or empty.
        """
        if self.env is not None:
            secret = os.environ.get(self.env, "").strip()
            place = f"environment variable {self.env}"
        else:
            path = self.file or Path()
            place = f"file {path}"
            try:
                secret = path.read_text("utf-8").strip()
            except OSError as error:
                raise ConfigurationError(
                    f"credential: cannot read {place}: {error.strerror}"
                ) from None
        if not secret:
            raise ConfigurationError(f"credential: {place} is empty; put the key there")
        if not secret.isprintable():
            raise ConfigurationError(f"credential: {place} holds more than one printable line")
        return secret


class CredentialSource(SecretSource):
    """The provider's own key, and how it is put into a request."""

    header: str = "authorization"
    """Header that carries it: ``authorization``, ``x-api-key``, ``api-key``, ``x-goog-api-key`` …"""
    scheme: str | None = None
    """Word before it; by default ``Bearer`` in ``authorization`` and none elsewhere."""

    def header_value(self) -> str:
        """Return the header's value.

        Raises:
            ConfigurationError: the variable or the file is missing or empty.
        """
        secret = self.secret()
        scheme = self.scheme
        if scheme is None:
            scheme = "Bearer" if self.header.lower() == "authorization" else ""
        return f"{scheme} {secret}" if scheme else secret
