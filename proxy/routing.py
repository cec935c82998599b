"""Routes as the hot path needs them: matched by prefix or by host, requests rewritten once."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.config import GatewayConfig, Route, Upstream
from proxy.credentials import CREDENTIAL_HEADERS, RawFields
from proxy.spool import records
from trajectory.exchange import ClientIdentity

NO_ROUTE = "-"

_OWN = b"x-headrace-"
_HOP = frozenset({b"proxy-authorization", b"proxy-connection", b"http2-settings"})
_SENT = CREDENTIAL_HEADERS - {b"cookie", b"set-cookie", b"x-amz-security-token"}


@dataclass(slots=True)
class Plan:
    """One route, prepared."""

    name: str
    prefix: bytes
    target: Upstream | None
    """None: wherever the client wanted to go (an intercepted host without a route)."""
    credential: tuple[bytes, bytes] | None = field(repr=False)
    kind: str = "model"
    shape: str = "auto"
    tokens: bool = False
    durable: bool = False
    authority: bytes = b""
    _origins: dict[tuple[ClientIdentity, str, str], bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, route: Route) -> "Plan":
        """Prepare a route; its credential is read now.

        Raises:
            ConfigurationError: the credential's source is missing or empty.
        """
        target = route.target
        credential = None
        if route.credential is not None:
            value = route.credential.header_value().encode()
            credential = (route.credential.header.encode(), value)
        return cls(
            name=route.name,
            prefix=route.prefix.encode(),
            target=target,
            credential=credential,
            kind=route.kind,
            shape=route.shape,
            tokens=route.capture == "tokens",
            durable=route.durability == "durable",
            authority=target.authority.encode("idna" if not target.host.isascii() else "ascii"),
        )

    def origin(self, client: ClientIdentity, mode: str, upstream: str) -> bytes:
        """Return the packed origin of an exchange, made once for each client and mode."""
        key = (client, mode, upstream)
        packed = self._origins.get(key)
        if packed is None:
            if len(self._origins) > 4096:
                self._origins.clear()
            packed = records.pack_origin(client, route=self.name, mode=mode, upstream=upstream)
            self._origins[key] = packed
        return packed


class Router:
    """Finds the plan of a request."""

    def __init__(self, config: GatewayConfig) -> None:
        plans = [Plan.of(route) for route in config.routes]
        self._plans = sorted(plans, key=lambda plan: -len(plan.prefix))
        self._hosts = {(p.target.host, p.target.port): p for p in plans if p.target is not None}
        self._other = Plan(NO_ROUTE, b"", None, None)
        self._exact: set[tuple[str, int | None]] = set()
        self._suffixes: list[tuple[str, int | None]] = []
        for pattern in config.intercept_hosts:
            self._add_pattern(pattern)
        if config.intercept_route_hosts:
            self._exact |= set(self._hosts)

    def _add_pattern(self, pattern: str) -> None:
        host, colon, tail = pattern.rpartition(":")
        port = int(tail) if colon and tail.isdecimal() else None
        host = (host if port is not None else pattern).strip("[]")
        if host.startswith("*."):
            self._suffixes.append((host[1:], port))
        else:
            self._exact.add((host, port))

    def by_path(self, path: bytes) -> Plan | None:
        """Return the route whose prefix the path has, longest prefix first."""
        for plan in self._plans:
            prefix = plan.prefix
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in (b"/", b"?", b""):
                return plan
        return None

    def by_host(self, host: str, port: int) -> Plan:
        """Return the route that leads to this host, else the plan for hosts without one."""
        return self._hosts.get((host.lower(), port), self._other)

    def intercepts(self, host: str, port: int) -> bool:
        """Tell whether the forward proxy opens connections to this host."""
        host = host.lower().rstrip(".")
        if (host, port) in self._exact or (host, None) in self._exact:
            return True
        return any(
            host.endswith(suffix) and only in (None, port) for suffix, only in self._suffixes
        )


def take_session(path: bytes) -> tuple[bytes, bytes | None]:
    """Take ``/s/<session>`` off the beginning of a path; return the rest and the session."""
    if not path.startswith(b"/s/"):
        return path, None
    session, slash, rest = path[3:].partition(b"/")
    if not slash or not session:
        return path, None
    return b"/" + rest, session


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A request's headers, once as they go upstream and once as they are kept."""

    sent: RawFields
    kept: RawFields
    """With Headrace's own headers, credentials not yet replaced."""


def rewrite_headers(
    fields: RawFields,
    *,
    host: bytes | None,
    key_header: bytes | None,
    credential: tuple[bytes, bytes] | None,
    added: Iterable[tuple[bytes, bytes]] = (),
) -> Rewritten:
    """Rewrite a request's headers: order and case stay, Headrace's own go no further.

    Args:
        fields: the client's headers.
        host: the upstream's authority; None leaves the client's.
        key_header: header that carries the Headrace key; it is taken off.
        credential: header of the provider's key; it replaces all credentials that providers take.
        added: headers for the capture only.
    """
    sent: list[tuple[bytes, bytes]] = []
    own: list[tuple[bytes, bytes]] = []
    placed = credential is None
    for name, value in fields:
        lower = name.lower()
        if lower in _HOP or (lower == b"upgrade" and value.lower() == b"h2c"):
            continue
        if lower == key_header or (credential is not None and lower in _SENT):
            if not placed and credential is not None:
                sent.append(credential)
                placed = True
        elif lower.startswith(_OWN):
            if lower != b"x-headrace-key":
                own.append((name, value))
        elif lower == b"host" and host is not None:
            sent.append((name, host))
        else:
            sent.append((name, value))
    if not placed and credential is not None:
        sent.append(credential)
    return Rewritten(tuple(sent), (*sent, *own, *added))
