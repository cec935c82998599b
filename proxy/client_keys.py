"""Client keys as values: whose calls they are, what they grant, open and may use up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity

KEY_PREFIX = "hr_"
PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl", "share")
ROLES = ("gateway", "lake", "tokens")
"""What a key opens: calls through the gateway, reading the lake, reading its token ids too."""
ALL_TENANTS = "*"
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""How readers of partitioned tables write that there is no value."""
"""Tenant of a key that reads the whole lake; it opens no gateway."""
UNKNOWN_CLIENT = ClientIdentity("-", "-", "-", "-")
"""Stands for a caller whose key is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may use up; None is without limit."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    """Input and output together, from midnight to midnight UTC."""
    steps_per_session: int | None = None
    """Calls of model routes in one session that the client names."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and (type(value) is not int or value < 0):
                raise ConfigurationError(
                    f"{limit.name.replace('_', ' ')} must be a whole number from 0 on"
                )


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A key as the registry knows it."""

    key_id: str
    secret_hash: str
    """BLAKE2b-256 of the secret, which is 160 random bits: a slow hash would add nothing."""
    tenant_id: str
    app_id: str
    environment: str
    purposes: tuple[str, ...]
    created_at: str
    revoked_at: str | None = None
    limits: Limits = NO_LIMITS
    previous_hash: str | None = None
    """Hash of the secret before the last rotation; it is accepted until ``previous_until``."""
    previous_until: float = 0.0
    """Seconds since 1970."""
    roles: tuple[str, ...] = ("gateway",)
    """What the key opens, of ``ROLES``."""

    @property
    def identity(self) -> ClientIdentity:
        """Return who calls with this key."""
        return ClientIdentity(
            self.tenant_id, self.app_id, self.environment, self.key_id, self.purposes
        )


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key; its secret is shown once and kept nowhere."""

    key: ClientKey
    secret: str
    """The whole key, ``hr_<key_id>_<secret>``, as a client sends it."""

    def __repr__(self) -> str:
        return f"CreatedKey({self.key.key_id})"


def key_of(row: Mapping[str, Any]) -> ClientKey:
    """Return a key from its row in the registry's file."""
    limits = Limits(**row.get("limits", {}))
    roles = tuple(row.get("roles", ("gateway",)))
    lists = {"purposes": tuple(row["purposes"]), "roles": roles}
    return ClientKey(**{**row, **lists, "limits": limits})


def check_roles(roles: Sequence[str], tenant: str) -> None:
    """Refuse roles that do not exist or do not go together.

    Raises:
        ConfigurationError: they are wrong; the text says which are valid.
    """
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise ConfigurationError(
            f"unknown role {(unknown or [''])[0]!r}. Valid roles: {', '.join(ROLES)}."
        )
    if "tokens" in roles and "lake" not in roles:
        raise ConfigurationError("the role tokens adds to the role lake; give both")
    if tenant == NO_PARTITION:
        raise ConfigurationError(f"{tenant!r} means no tenant to Delta readers; name another")
    if tenant == ALL_TENANTS and "gateway" in roles:
        raise ConfigurationError(
            f"a key of the gateway belongs to one tenant; {ALL_TENANTS!r} is for the role lake"
        )


def hash_of(secret: str) -> str:
    """Return the hash under which a secret is kept."""
    return blake2b(secret.encode("utf-8", "surrogateescape"), digest_size=32).hexdigest()
