"""Routes as the hot path needs them: matched by prefix or by host, requests rewritten once."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import log

from proxy.config import GatewayConfig, Route, Upstream
from proxy.credentials import PROVIDER_HEADERS, RawFields
from proxy.serving import Publication, Serving
from proxy.spool import records
from proxy.target import Target
from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity

NO_ROUTE = "-"

_log = logging.getLogger(__name__)
_OWN = b"x-headrace-"
_HOP = frozenset({b"proxy-authorization", b"proxy-connection", b"http2-settings"})
_SHUN_SECONDS = 10.0
_UNSOUND_ANSWERS = 3
_LOWERED_SECONDS = 600

type Address = tuple[str, int]


@dataclass(slots=True)
class Plan:
    """One route, prepared."""

    name: str
    prefix: bytes
    targets: tuple[Target, ...]
    """None at all: wherever the client wanted to go (an intercepted host without a route)."""
    kind: str = "model"
    shape: str = "auto"
    tokens: bool = False
    durability: str = "journal"
    mandatory: bool = False
    """Calls that cannot be captured are refused."""
    step_header: bool = False
    below: bool = False
    """Its upstreams begin below their root, and clients must stay there."""
    serving: Serving | None = None
    """What answers where the route names a registered model; there are no targets then."""
    _lowered_until: float = 0.0
    _unsound: int = 0
    """Answers in a row without the token ids that were asked for."""
    _origins: dict[tuple[str, str, tuple[bytes, str, int], str], tuple[ClientIdentity, bytes]] = (
        field(default_factory=dict, repr=False)
    )

    @classmethod
    def of(cls, route: Route) -> "Plan":
        """Prepare a route; its credentials are read now.

        Raises:
            ConfigurationError: a credential's source is missing or empty.
        """
        try:
            targets = tuple(Target.of(choice) for choice in route.choices)
        except ConfigurationError as error:
            raise ConfigurationError(f"route {route.name}: {error}") from None
        return cls(
            name=route.name,
            prefix=route.prefix.encode(),
            targets=targets,
            kind=route.kind,
            shape=route.shape,
            tokens=route.capture == "tokens",
            durability=route.durability,
            mandatory=route.without_capture == "refuse",
            step_header=route.step_header,
            below=any(Upstream.parse(choice.url).path for choice in route.choices),
            serving=Serving(route) if route.model else None,
        )

    @property
    def asks_tokens(self) -> bool:
        """Whether token ids are asked for now; an engine that does not give them is left alone."""
        return self.tokens and time.monotonic() >= self._lowered_until

    @property
    def level(self) -> str:
        """What a full capture of this route holds: ``tokens`` or ``text``."""
        return "tokens" if self.asks_tokens else "text"

    def note_tokens(self, *, sound: bool) -> None:
        """Note an answer; after three in a row that are not sound the level is lowered a while."""
        self._unsound = 0 if sound else self._unsound + 1
        if self._unsound >= _UNSOUND_ANSWERS:
            self.lower()

    def lower(self) -> None:
        """Capture text only for ten minutes: better less than something guessed."""
        self._unsound = 0
        self._lowered_until = time.monotonic() + _LOWERED_SECONDS
        _log.warning(
            "route %s: the upstream gives no token ids that fit its usage; capturing text for "
            "%d minutes (`headrace gateway probe %s` says more)",
            self.name,
            _LOWERED_SECONDS // 60,
            self.name,
        )

    def target(self, stick: bytes) -> Target:
        """Return the upstream for a session or a connection: the same as long as it can be reached."""
        if len(self.targets) == 1:
            return self.targets[0]
        now = time.monotonic()
        able = [target for target in self.targets if target.weight and target.shunned_until <= now]
        return max(able or self.targets, key=lambda target: _draw(target, stick))

    def other(self, tried: Sequence[Target]) -> Target | None:
        """Return an upstream that was not tried and could be reached when last tried."""
        now = time.monotonic()
        able = [
            target
            for target in self.targets
            if target.weight
            and target.shunned_until <= now
            and not any(target is each for each in tried)
        ]
        return max(able, key=lambda target: target.weight, default=None)

    def origin(
        self, client: ClientIdentity, mode: str, upstream: tuple[bytes, str, int], served: str = ""
    ) -> bytes:
        """Return the packed origin of an exchange, made once for each client, mode and version."""
        key = (client.key_id, mode, upstream, served)
        known = self._origins.get(key)
        if known is not None and known[0] is client:
            return known[1]
        if len(self._origins) > 4096:
            self._origins.clear()
        scheme, host, port = upstream
        origin = f"{scheme.decode()}://{host}:{port}"
        packed = records.pack_origin(
            client, route=self.name, mode=mode, upstream=origin, served=served
        )
        self._origins[key] = (client, packed)
        return packed


def _draw(target: Target, stick: bytes) -> float:
    """Return a target's lot for a session (weighted rendezvous): adding one moves only its share."""
    lot = blake2b(stick, digest_size=8, key=target.upstream.origin.encode()[:64]).digest()
    return target.weight / -log((int.from_bytes(lot) + 1) / (2**64 + 2))


class Router:
    """Finds the plan of a request."""

    def __init__(self, config: GatewayConfig) -> None:
        plans = [Plan.of(route) for route in config.routes]
        self.plans = sorted(plans, key=lambda plan: -len(plan.prefix))
        self._hosts: dict[Address, list[tuple[Plan, Target]]] = {}
        for plan in plans:
            for target in plan.targets:
                address = target.upstream.host, target.upstream.port
                self._hosts.setdefault(address, []).append((plan, target))
        self.other = Plan(NO_ROUTE, b"", ())
        self.publication = Publication(
            config.serving, [plan.serving for plan in plans if plan.serving is not None]
        )
        self._connect_seconds = config.connect_seconds
        self._exact: set[tuple[str, int | None]] = set()
        self._suffixes: list[tuple[str, int | None]] = []
        for pattern in config.intercept_hosts:
            self._add_pattern(pattern)
        if config.intercept_route_hosts:
            self._exact |= set(self._hosts)

    def refresh_credentials(self) -> None:
        """Read the credentials again that come from files; what cannot be read stays as it was."""
        for plan in self.plans:
            for target in plan.targets:
                if target.source is None or target.source.file is None:
                    continue
                try:
                    if target.refresh():
                        _log.info("route %s has another credential", plan.name)
                except ConfigurationError:
                    continue

    def connect_seconds(self, address: Address) -> float:
        """Return how long a connection to this address may take."""
        limits = [
            target.connect_seconds
            for _, target in self._hosts.get(address, ())
            if target.connect_seconds is not None
        ]
        return max(limits, default=self._connect_seconds)

    def routes_to(self, address: Address) -> list[str]:
        """Return the names of the routes whose upstreams are at this address."""
        return list(dict.fromkeys(plan.name for plan, _ in self._hosts.get(address, ())))

    def reached(self, address: Address, *, well: bool) -> None:
        """Note whether an upstream could be reached; one that could not is passed over a while."""
        until = 0.0 if well else time.monotonic() + _SHUN_SECONDS
        for _, target in self._hosts.get(address, ()):
            target.shunned_until = until
        for plan in self.plans:
            for target in plan.serving.targets() if plan.serving is not None else ():
                if address == (target.upstream.host, target.upstream.port):
                    target.shunned_until = until

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
        for plan in self.plans:
            prefix = plan.prefix
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in (b"/", b"?", b""):
                return plan
        return None

    def by_host(self, host: str, port: int) -> tuple[Plan, Target | None]:
        """Return the route that leads to this host, else the plan for hosts without one."""
        found = self._hosts.get((host.lower(), port))
        return found[0] if found else (self.other, None)

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
        host: the upstream's authority, named once; None leaves what the client names.
        key_header: header that carries the Headrace key; it is taken off.
        credential: header of the provider's key; it replaces all credentials that providers take.
        added: headers for the capture only.
    """
    sent: list[tuple[bytes, bytes]] = []
    own: list[tuple[bytes, bytes]] = []
    placed, hosted = credential is None, host is None
    for name, value in fields:
        lower = name.lower()
        if lower in _HOP or (lower == b"upgrade" and value.lower() == b"h2c"):
            continue
        if lower == key_header or (
            credential is not None and (lower in PROVIDER_HEADERS or lower == credential[0].lower())
        ):
            if not placed and credential is not None:
                sent.append(credential)
                placed = True
        elif lower.startswith(_OWN):
            if lower != b"x-headrace-key":
                own.append((name, value))
        elif lower == b"host" and host is not None:
            if not hosted:
                sent.append((name, host))
                hosted = True
        else:
            sent.append((name, value))
    if not hosted and host is not None:
        sent.insert(0, (b"Host", host))
    if not placed and credential is not None:
        sent.append(credential)
    return Rewritten(tuple(sent), (*sent, *own, *added))
