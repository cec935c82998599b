"""An attempt to sign in at an identity provider: what ties the answer to who went there, and how it fails."""

import secrets
from dataclasses import dataclass
from typing import Self

from trajectory.errors import WorkError


class SignInError(WorkError):
    """Somebody could not be signed in; the text says what to do."""


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """Somebody went to the provider, and is to come back."""

    state: str
    """Comes back with the answer; the browser has it as a cookie too."""
    nonce: str
    """Stands in the ID token of this attempt alone."""
    verifier: str
    """What the code's challenge was made of (PKCE): only who has it can use the code."""

    @classmethod
    def new(cls) -> Self:
        """Return a fresh one."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))
