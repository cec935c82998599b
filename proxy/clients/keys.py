"""Client keys: whose calls they are, what they open, and the registry that knows their hashes."""

import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self

from trajectory.errors import ConfigurationError
from trajectory.exchange import LONGEST_TENANT, NO_TENANT, ClientIdentity, has_folder
from trajectory.files import locked, make_folders, read_file, replace_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEY_PREFIX = "hr_"
PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl", "evolve", "share")
ROLES = ("gateway", "lake", "tokens")
"""What a key opens: calls through the gateway, reading the lake, reading its token ids too."""
ALL_TENANTS = "*"
"""Tenant of a key that reads the whole lake; it opens no gateway."""
UNKNOWN_CLIENT = ClientIdentity("-", "-", "-", "-")
"""Stands for a caller whose key is missing or wrong."""


_MOST_MONEY = 1_000_000_000
"""A budget of money; it is counted in billionths, in 64 bits."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of a key; None means no limit."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    """Input and output together, from midnight to midnight UTC."""
    steps_per_session: int | None = None
    """Calls of model routes in one session that the client names."""
    money_per_day: float | None = None
    """What models cost from midnight to midnight UTC, by the price table and in its currency."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None:
                continue
            if limit.name == "money_per_day":
                if not (isinstance(value, int | float) and 0 <= value <= _MOST_MONEY):
                    raise ConfigurationError(f"money per day must be from 0 to {_MOST_MONEY}")
            elif type(value) is not int or value < 0:
                raise ConfigurationError(
                    f"{limit.name.replace('_', ' ')} must be a whole number from 0 on"
                )

    @property
    def counts_usage(self) -> bool:
        """Whether what an answer takes has to be counted."""
        return self.tokens_per_day is not None or self.money_per_day is not None


NO_LIMITS = KeyLimits()


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
    limits: KeyLimits = NO_LIMITS
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


@dataclass(frozen=True, slots=True)
class _RegistryFile:
    """The file as it is written."""

    keys: tuple[ClientKey, ...]
    version: int = 1


@cache
def _format() -> "TypeAdapter[_RegistryFile]":
    from pydantic import TypeAdapter

    return TypeAdapter(_RegistryFile)


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
    if tenant == NO_TENANT:
        raise ConfigurationError(f"{tenant!r} means no tenant to Delta readers; name another")
    if tenant == ALL_TENANTS and "gateway" in roles:
        raise ConfigurationError(
            f"a key of the gateway belongs to one tenant; {ALL_TENANTS!r} is for the role lake"
        )


def hash_of(secret: str) -> str:
    """Return the hash under which a secret is kept."""
    return blake2b(secret.encode("utf-8", "surrogateescape"), digest_size=32).hexdigest()


def secret_of(presented: str) -> str:
    """Return the secret in a key as a client sends it."""
    return presented[len(KEY_PREFIX) :].partition("_")[2]


type Noted = Callable[[ClientKey], None]
"""Is told of a key before it counts: what cannot be written down is not done."""

_LOOK_SECONDS = 0.5


def _now() -> str:
    return datetime.now(UTC).isoformat()


class KeyRegistry:
    """The client keys of an installation, in one JSON file.

    A running gateway sees creations and revocations within half a second: the file is looked at
    again when its modification time changes. A file that cannot be read keeps the last good state.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: dict[str, ClientKey] = {}
        self._identities: dict[str, ClientIdentity] = {}
        """Made once for each key, so that one call's is the same object as the next one's."""
        self.limits: dict[str, KeyLimits] = {}
        """Limits by key id, of the keys that have any."""
        self._stamp: tuple[int, int] | None = None
        self._generation = 0
        self._looked = 0.0

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a registry; a file that is not there is an empty one.

        Raises:
            ConfigurationError: the file is not a key registry.
        """
        registry = cls(path)
        registry._read()
        return registry

    def _read(self) -> None:
        self._generation += 1
        try:
            info = self._path.stat()
            content = read_file(self._path)
        except FileNotFoundError:
            self._keys, self._identities, self._stamp, self.limits = {}, {}, None, {}
            return
        try:
            keys = _format().validate_json(content).keys
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(
                f"{self._path}: not a key registry ({type(error).__name__}); "
                "restore it, or move it away and create new keys with `headrace keys create`"
            ) from None
        self._keys = {key.key_id: key for key in keys}
        self._identities = {key.key_id: key.identity for key in keys}
        self.limits = {key.key_id: key.limits for key in keys if key.limits != NO_LIMITS}
        self._stamp = (info.st_mtime_ns, info.st_ino)

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        self._follow()

    def _follow(self) -> bool:
        """Read the file if it changed; tell whether it did."""
        try:
            info = self._path.stat()
            stamp: tuple[int, int] | None = (info.st_mtime_ns, info.st_ino)
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return False
        try:
            self._read()
        except ConfigurationError:
            self._stamp = stamp  # the same bytes are not read again
        except OSError:
            return False
        return True

    def authenticate(
        self, presented: str | None, *, role: str = "gateway"
    ) -> ClientIdentity | None:
        """Return who presents this key; None when it is missing, wrong, revoked or of other roles.

        A key that was made a moment ago opens at once: the file is read again before a key is refused.
        """
        self._refresh()
        if presented is None or not presented.startswith(KEY_PREFIX):
            return None
        key_id, _, secret = presented[len(KEY_PREFIX) :].partition("_")
        found = self._holder(key_id, secret, role)
        return self._holder(key_id, secret, role) if found is None and self._follow() else found

    def _holder(self, key_id: str, secret: str, role: str) -> ClientIdentity | None:
        key = self._keys.get(key_id)
        expected = key.secret_hash if key else hash_of("")
        given = hash_of(secret)
        matches = hmac.compare_digest(expected, given)
        if key is None or key.revoked_at is not None:
            return None
        if not matches and key.previous_hash is not None and time.time() < key.previous_until:
            matches = hmac.compare_digest(key.previous_hash, given)
        if not matches or role not in key.roles:
            return None
        return self._identities.get(key_id) or key.identity

    def generation(self) -> int:
        """Return a number that grows whenever any key may have changed."""
        self._refresh()
        return self._generation

    def generation_of(self, key_id: str) -> int | None:
        """Return that number; None for a key with an earlier secret, which ends by itself."""
        key = self._keys.get(key_id)
        return None if key is None or key.previous_hash is not None else self._generation

    def valid(self, key_id: str) -> bool:
        """Tell whether a key that was accepted before still is one."""
        self._refresh()
        key = self._keys.get(key_id)
        return key is not None and key.revoked_at is None

    def identity(self, key_id: str) -> ClientIdentity | None:
        """Return whose key of the gateway this is; None when there is none, or it is revoked."""
        self._refresh()
        key = self._keys.get(key_id)
        if key is None or key.revoked_at is not None or "gateway" not in key.roles:
            return None
        return self._identities.get(key_id) or key.identity

    def secrets_of(self, key_id: str) -> tuple[str, ...]:
        """Return the hashes of the secrets with which a key opens the gateway now."""
        if self.identity(key_id) is None:
            return ()
        key = self._keys[key_id]
        before = key.previous_hash if time.time() < key.previous_until else None
        return (key.secret_hash,) if before is None else (key.secret_hash, before)

    def list(self) -> tuple[ClientKey, ...]:
        """Return all keys, revoked ones too, oldest first."""
        self._read()
        return tuple(sorted(self._keys.values(), key=lambda key: key.created_at))

    def create(
        self,
        *,
        tenant_id: str,
        app_id: str,
        environment: str = "production",
        purposes: Sequence[str] = (),
        limits: KeyLimits = NO_LIMITS,
        roles: Sequence[str] = ("gateway",),
        noted: Noted | None = None,
    ) -> CreatedKey:
        """Create a key and write the registry; ``noted`` is told first.

        Raises:
            ConfigurationError: a purpose or role is unknown, or a name is empty or not printable.
        """
        check_roles(roles, tenant_id)
        unknown = sorted(set(purposes) - set(PURPOSES))
        if unknown:
            raise ConfigurationError(
                f"unknown purpose {unknown[0]!r}. Valid purposes: {', '.join(PURPOSES)}."
            )
        for what, text in (("tenant", tenant_id), ("app", app_id), ("environment", environment)):
            if not text or not text.isprintable() or text != text.strip():
                raise ConfigurationError(
                    f"the {what} of a key must be a printable name without blanks around it"
                )
        if not has_folder(tenant_id):
            raise ConfigurationError(
                f"the tenant's name is too long: it names folders of the lake, in which it may take "
                f"{LONGEST_TENANT} bytes (9 for a Chinese character). Give a shorter one"
            )
        key_id, secret = secrets.token_hex(6), secrets.token_hex(20)
        key = ClientKey(
            key_id=key_id,
            secret_hash=hash_of(secret),
            tenant_id=tenant_id,
            app_id=app_id,
            environment=environment,
            purposes=tuple(purposes),
            created_at=_now(),
            limits=limits,
            roles=tuple(roles),
        )
        with self._alone():
            self._read()
            if noted is not None:
                noted(key)
            self._keys[key_id] = key
            self._write()
        return CreatedKey(key, f"{KEY_PREFIX}{key_id}_{secret}")

    def revoke(self, key_id: str) -> ClientKey:
        """Revoke a key; a running gateway refuses it within half a second.

        Raises:
            ConfigurationError: there is no such key.
        """
        return self._change(key_id, lambda key: replace(key, revoked_at=_now()), revoked=True)

    def limit(self, key_id: str, limits: KeyLimits, *, noted: Noted | None = None) -> ClientKey:
        """Give a key other limits, once ``noted`` is told; a running gateway follows within half a second.

        Raises:
            ConfigurationError: there is no such key, or it is revoked.
        """
        return self._change(key_id, lambda key: replace(key, limits=limits), noted=noted)

    def rotate(
        self, key_id: str, *, grace_seconds: float = 3600.0, noted: Noted | None = None
    ) -> CreatedKey:
        """Give a key a new secret, once ``noted`` is told; the one before is accepted for ``grace_seconds`` more.

        Raises:
            ConfigurationError: there is no such key, or it is revoked.
        """
        secret = secrets.token_hex(20)
        until = time.time() + grace_seconds
        key = self._change(
            key_id,
            lambda key: replace(
                key,
                secret_hash=hash_of(secret),
                previous_hash=key.secret_hash,
                previous_until=until,
            ),
            noted=noted,
        )
        return CreatedKey(key, f"{KEY_PREFIX}{key_id}_{secret}")

    def _change(
        self,
        key_id: str,
        change: Callable[[ClientKey], ClientKey],
        *,
        revoked: bool = False,
        noted: Noted | None = None,
    ) -> ClientKey:
        with self._alone():
            self._read()
            key = self._keys.get(key_id)
            if key is None:
                raise ConfigurationError(f"no key {key_id!r}; see `headrace keys list`")
            if key.revoked_at is not None:
                if revoked:
                    return key
                raise ConfigurationError(f"key {key_id!r} is revoked; create a new one")
            key = change(key)
            if noted is not None:
                noted(key)
            self._keys[key_id] = key
            self._write()
        return key

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other writers of this file waiting, in whatever process they are."""
        make_folders(self._path.parent, mode=0o700)
        with locked(self._path.with_suffix(".lock"), wait=True):
            yield

    def _write(self) -> None:
        """Replace the file as a whole, readable by the owner only."""
        make_folders(self._path.parent, mode=0o700)
        rows = [asdict(key) for key in self._keys.values()]
        replace_file(self._path, json.dumps({"version": 1, "keys": rows}, indent=1).encode())
        self._read()
