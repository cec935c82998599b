"""A prepared route: how its calls are treated, and how much of them is recorded."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from math import log
from typing import NamedTuple, Protocol

from proxy.artifacts.shelf import RouteArtifacts, Shelf
from proxy.config import Route, Upstream
from proxy.guard.route import CallGuard
from proxy.inline.route import RouteInline
from proxy.routes.model_versions import ServedModel
from proxy.routes.pins import Pins
from proxy.routes.target import Target
from proxy.spool import records
from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity


class Level(IntEnum):
    """Capture level of an exchange."""

    METADATA = 0
    """Heads and end only."""
    FULL = 1


class Terms(Protocol):
    """Capture settings of a route."""

    @property
    def mandatory(self) -> bool:
        """Bodies are recorded as long as the spool takes anything."""

    @property
    def durability(self) -> str:
        """``journal``, ``durable``, or ``batch``: records may wait in memory for others."""


class UnroutedTerms(NamedTuple):
    """Terms of captures that belong to no route."""

    mandatory: bool = False
    durability: str = "journal"


JOURNAL = UnroutedTerms()


type _OriginKey = tuple[
    str, str, tuple[bytes, str, int], str, tuple[str, ...], tuple[str, ...] | None
]

_log = logging.getLogger(__name__)
_UNSOUND_ANSWERS = 3
_LOWERED_SECONDS = 600


@dataclass(slots=True)
class PreparedRoute:
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
    session_calls: bool = False
    """AReaL's clients start and end sessions below its prefix."""
    below: bool = False
    """Its upstreams begin below their root, and clients must stay there."""
    keyed: bool = False
    """The route adds its own provider key."""
    artifacts: RouteArtifacts | None = None
    """What is added to its model requests."""
    inline: RouteInline | None = None
    """Puts surrogates into its requests."""
    guard: CallGuard | None = None
    """Judges its tool calls before they are sent."""
    answers: CallGuard | None = None
    """Judges the tool calls in its model's answers."""
    serving: ServedModel | None = None
    """What answers where the route names a registered model; there are no targets then."""
    _lowered_until: dict[str, float] = field(default_factory=dict)
    """By dialect, until when token ids are not asked for."""
    _unsound: dict[str, int] = field(default_factory=dict)
    """By dialect, answers in a row without the token ids that were asked for."""
    _origins: dict[_OriginKey, tuple[ClientIdentity, bytes]] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def of(
        cls, route: Route, pins: Pins | None = None, shelf: Shelf | None = None
    ) -> "PreparedRoute":
        """Prepare a route; its credentials are read now.

        Args:
            route: its settings.
            pins: where it keeps which version answers a trajectory.
            shelf: the artefacts that are live.

        Raises:
            ConfigurationError: a credential's source is missing or empty.
        """
        try:
            targets = tuple(Target.of(choice) for choice in route.choices)
        except ConfigurationError as error:
            raise ConfigurationError(f"route {route.name}: {error}") from None
        sources = (route.credential, *(choice.credential for choice in route.choices))
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
            session_calls=route.session_calls,
            below=bool(route.model)
            or any(Upstream.parse(choice.url).path for choice in route.choices),
            keyed=any(source is not None for source in sources),
            serving=ServedModel(route, pins) if route.model else None,
            artifacts=RouteArtifacts(route, shelf) if route.evolve and shelf else None,
        )

    def asks_tokens(self, dialect: str) -> bool:
        """Tell whether token ids are asked for now; an engine that does not give them is left alone."""
        return self.tokens and time.monotonic() >= self._lowered_until.get(dialect, 0.0)

    @property
    def level(self) -> str:
        """What a full capture of this route holds: ``tokens`` or ``text``."""
        seen = {*self._unsound, *self._lowered_until} or {""}
        return "tokens" if any(map(self.asks_tokens, seen)) else "text"

    def note_tokens(self, dialect: str, *, sound: bool) -> None:
        """Note an answer; after three in a row that are not sound the level is lowered a while."""
        self._unsound[dialect] = 0 if sound else self._unsound.get(dialect, 0) + 1
        if self._unsound[dialect] >= _UNSOUND_ANSWERS:
            self.lower(dialect)

    def lower(self, dialect: str) -> None:
        """Capture text only for ten minutes: better less than something guessed."""
        self._unsound[dialect] = 0
        self._lowered_until[dialect] = time.monotonic() + _LOWERED_SECONDS
        _log.warning(
            "route %s: the upstream gives no token ids that fit its usage; capturing text of %s for "
            "%d minutes (`headrace gateway probe %s` says more)",
            self.name,
            dialect,
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
        self,
        client: ClientIdentity,
        mode: str,
        upstream: tuple[bytes, str, int],
        served: str = "",
        artifacts: tuple[str, ...] = (),
        subjects: tuple[str, ...] | None = None,
    ) -> bytes:
        """Return the packed origin of an exchange, made once for each client, mode and version."""
        key = (client.key_id, mode, upstream, served, artifacts, subjects)
        known = self._origins.get(key)
        if known is not None and known[0] is client:
            return known[1]
        if len(self._origins) > 4096:
            self._origins.clear()
        scheme, host, port = upstream
        origin = f"{scheme.decode()}://{host}:{port}"
        packed = records.pack_origin(
            client,
            route=self.name,
            mode=mode,
            upstream=origin,
            served=served,
            artifacts=artifacts,
            subjects=subjects,
        )
        self._origins[key] = (client, packed)
        return packed


def _draw(target: Target, stick: bytes) -> float:
    """Return a target's lot for a session (weighted rendezvous): adding one moves only its share."""
    lot = blake2b(stick, digest_size=8, key=target.upstream.origin.encode()[:64]).digest()
    return target.weight / -log((int.from_bytes(lot) + 1) / (2**64 + 2))
