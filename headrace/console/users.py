"""Who uses the console, which roles they have in whose data, and how a proxy tells who it is."""

import hmac
import ipaddress
import os
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from starlette.datastructures import Headers

from governance.audit import NOT_PEOPLE, PROCESS
from headrace.app.settings import ConsoleSettings, RoleGrant
from headrace.processes.supervisor import PROCESS_VARIABLE
from proxy.clients.keys import ALL_TENANTS
from trajectory.errors import ConfigurationError

VIEWER, REVIEWER, OPERATOR = "viewer", "reviewer", "operator"
PRIVACY, TRAINER, ADMIN = "privacy", "trainer", "admin"
ROLES = frozenset({VIEWER, REVIEWER, OPERATOR, PRIVACY, TRAINER, ADMIN})
SECRET_HEADER = "x-headrace-proxy-secret"  # noqa: S105 - the name of a header
SYSTEM, PROXY = "system", "proxy"
"""Who vouches for a name: this machine, or a trusted proxy; else it is the address of an identity provider."""
PROCESSES = frozenset({"governor", "schedule"})
"""Those that start commands of Headrace by themselves."""
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who signed in."""

    name: str
    roles: frozenset[tuple[str, str]]
    """Each role with the tenant in whose data it holds; ``*`` is every tenant's."""
    authority: str = SYSTEM
    """Who vouches for the name."""
    key: str = ""
    """What the authority tells people apart by, where that is not the name."""
    groups: frozenset[str] = frozenset()
    """As the authority named them."""

    @property
    def _known_by(self) -> tuple[str, str]:
        return self.authority, self.key or self.name

    @property
    def _told_by(self) -> str:
        return self.key or unicodedata.normalize("NFKC", self.name).casefold()

    def is_same(self, other: "User") -> bool:
        """Tell whether two are one person for certain."""
        return self._known_by == other._known_by

    def is_known_to_differ(self, other: "User") -> bool:
        """Tell whether two are two people: the same authority tells them apart, and not by how a name is typed.

        One person may have a name on this machine and another one at the identity provider. Directories take names
        in any case, and proxies pass them on as they were typed.
        """
        return self.authority == other.authority and self._told_by != other._told_by

    def granted(self, grants: Sequence[RoleGrant]) -> Self:
        """Return the user with the roles that the settings give to their groups now.

        Who runs Headrace on this machine has theirs without a group.
        """
        if self.authority == SYSTEM:
            return self
        held = {(one.role, one.tenant) for one in grants if one.group in self.groups}
        return replace(self, roles=frozenset(held))

    def tenants(self, roles: Collection[str]) -> tuple[str, ...]:
        """Return in whose data the user has one of these roles, every tenant's first."""
        return tuple(sorted({tenant for role, tenant in self.roles if role in roles}))

    def may(self, roles: Collection[str], tenant: str) -> bool:
        """Tell whether the user has one of these roles in a tenant's data."""
        return not {tenant, ALL_TENANTS}.isdisjoint(self.tenants(roles))

    def to_json(self) -> dict[str, Any]:
        """Return the user as a session keeps it."""
        return {
            "name": self.name,
            "roles": sorted(map(list, self.roles)),
            "authority": self.authority,
            "key": self.key,
            "groups": sorted(self.groups),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return the user that :meth:`to_json` wrote."""
        return cls(
            kept["name"],
            frozenset((role, tenant) for role, tenant in kept["roles"]),
            kept["authority"],
            kept["key"],
            frozenset(kept["groups"]),
        )


def local_user(name: str) -> User:
    """Return the user who runs Headrace on this machine, whom its files obey in any case."""
    return User(name, frozenset({(ADMIN, ALL_TENANTS)}))


def system_user() -> User:
    """Return who runs this process, as the system knows it and no environment variable says."""
    import pwd

    try:
        return local_user(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return local_user(f"uid-{os.getuid()}")


def process_user() -> User | None:
    """Return the process of Headrace that this one works for, if it was started by one.

    It may do what the user of this machine may, and is that person where two are wanted. The log tells them apart.
    """
    name = os.environ.get(PROCESS_VARIABLE)
    if name not in PROCESSES:
        return None
    person = system_user()
    return replace(person, name=f"{PROCESS}{name}", key=person.name)


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a person in a log."""
    return (
        bool(text)
        and len(text) <= _LONGEST_NAME
        and text.isprintable()
        and not text.startswith(NOT_PEOPLE)
    )


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

    def user(self, address: str, headers: Headers) -> User | None:
        """Return whom a request's headers name; None where no trusted proxy sent it, or one is there twice."""
        named = (SECRET_HEADER, self._settings.user_header, self._settings.groups_header)
        if any(len(headers.getlist(one)) > 1 for one in named):
            return None
        given = headers.get(SECRET_HEADER, "").encode("utf-8", "surrogateescape")
        is_right = hmac.compare_digest(given, self._secret)
        if not (is_right and self._secret and self._trusts(address)):
            return None
        name = _as_sent(headers.get(self._settings.user_header, "")).strip()
        if not is_name(name):
            return None
        listed = _as_sent(headers.get(self._settings.groups_header, "")).split(",")
        groups = frozenset(one.strip() for one in listed if one.strip())
        return User(name, frozenset(), PROXY, groups=groups).granted(self._settings.groups)

    def _trusts(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self._networks)


def _as_sent(value: str) -> str:
    """Return a header's text, which was read as Latin-1: most proxies send UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
