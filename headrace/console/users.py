"""Who uses the console, which roles they have in whose data, and how a proxy tells who it is."""

import hmac
import ipaddress
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from headrace.app.settings import ConsoleSettings
from proxy.clients.keys import ALL_TENANTS
from trajectory.errors import ConfigurationError

VIEWER, REVIEWER, OPERATOR = "viewer", "reviewer", "operator"
PRIVACY, TRAINER, ADMIN = "privacy", "trainer", "admin"
ROLES = frozenset({VIEWER, REVIEWER, OPERATOR, PRIVACY, TRAINER, ADMIN})
SECRET_HEADER = "x-headrace-proxy-secret"  # noqa: S105 - the name of a header
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who signed in."""

    name: str
    roles: frozenset[tuple[str, str]]
    """Each role with the tenant in whose data it holds; ``*`` is every tenant's."""

    def tenants(self, roles: Collection[str]) -> tuple[str, ...]:
        """Return in whose data the user has one of these roles, every tenant's first."""
        return tuple(sorted({tenant for role, tenant in self.roles if role in roles}))

    def may(self, roles: Collection[str], tenant: str) -> bool:
        """Tell whether the user has one of these roles in a tenant's data."""
        return not {tenant, ALL_TENANTS}.isdisjoint(self.tenants(roles))

    def to_json(self) -> dict[str, Any]:
        """Return the user as a session keeps it."""
        return {"name": self.name, "roles": sorted(map(list, self.roles))}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return the user that :meth:`to_json` wrote."""
        return cls(kept["name"], frozenset((role, tenant) for role, tenant in kept["roles"]))


def local_user(name: str) -> User:
    """Return the user who runs Headrace on this machine, whom its files obey in any case."""
    return User(name, frozenset({(ADMIN, ALL_TENANTS)}))


class TrustedProxies:
    """Proxies in front of the console that sign people in and say who they are."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """Read which proxies are trusted.

        Raises:
            ConfigurationError: a part is missing or wrong.
        """
        self._settings = settings
        try:
            self._networks = [ipaddress.ip_network(one) for one in settings.proxies]
        except ValueError as error:
            raise ConfigurationError(f"console.proxies: {error}") from None
        self._secret = os.environ.get(settings.proxy_secret_env, "").encode()
        if self._networks and len(self._secret) < 16:
            raise ConfigurationError(
                "console.proxies are trusted by a secret too: name an environment variable in "
                "console.proxy_secret_env and put at least 16 characters into it"
            )

    def user(self, address: str, headers: Mapping[str, str]) -> User | None:
        """Return whom a request's headers name; None where no trusted proxy sent it."""
        given = headers.get(SECRET_HEADER, "").encode("utf-8", "surrogateescape")
        is_right = hmac.compare_digest(given, self._secret)
        if not (is_right and self._secret and self._trusts(address)):
            return None
        name = headers.get(self._settings.user_header, "").strip()
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            return None
        listed = headers.get(self._settings.groups_header, "").split(",")
        groups = {one.strip() for one in listed if one.strip()}
        held = {(one.role, one.tenant) for one in self._settings.groups if one.group in groups}
        return User(name, frozenset(held))

    def _trusts(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self._networks)
