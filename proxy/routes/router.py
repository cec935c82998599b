"""The router: finds the route of a request by its prefix or its host."""

import logging
import time

from proxy.artifacts.shelf import Shelf
from proxy.config import GatewayConfig
from proxy.guard.route import CallGuard
from proxy.inline.route import InlineTerms, RouteInline
from proxy.routes.model_versions import Publication
from proxy.routes.paths import lies_below
from proxy.routes.pins import FILE_NAME, Pins
from proxy.routes.route import PreparedRoute
from proxy.routes.target import Target
from proxy.telemetry.counters import Counters
from trajectory.errors import ConfigurationError

NO_ROUTE = "-"

_log = logging.getLogger(__name__)
_SHUN_SECONDS = 10.0

type Address = tuple[str, int]


class Router:
    """Finds the plan of a request."""

    def __init__(self, config: GatewayConfig) -> None:
        self.pins = Pins(config.serving.with_name(FILE_NAME))
        named = {name for route in config.routes if route.evolve for name in route.evolve.artifacts}
        self.shelf = Shelf(config.artifacts, named)
        plans = [PreparedRoute.of(route, self.pins, self.shelf) for route in config.routes]
        self.plans = sorted(plans, key=lambda plan: -len(plan.prefix))
        self._hosts: dict[Address, list[tuple[PreparedRoute, Target]]] = {}
        for plan in plans:
            for target in plan.targets:
                address = target.upstream.host, target.upstream.port
                self._hosts.setdefault(address, []).append((plan, target))
        for found in self._hosts.values():
            found.sort(key=lambda each: -len(each[1].upstream.path))
        self.other = PreparedRoute(NO_ROUTE, b"", ())
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

    def pseudonymise(self, terms: InlineTerms, counters: Counters) -> RouteInline:
        """Put surrogates into the requests of the routes that policy names.

        Raises:
            ConfigurationError: there is no such route, or its calls cannot be read.
        """
        inline, plans = RouteInline(terms, counters), {plan.name: plan for plan in self.plans}
        for name in terms.routes:
            plan = plans.get(name)
            if plan is None:
                known = ", ".join(sorted(plans)) or "none"
                raise ConfigurationError(
                    f"Redaction policy, inline.routes: no route {name}. Routes: {known}"
                )
            if plan.kind != "model":
                raise ConfigurationError(
                    f"Redaction policy, inline.routes: {name} is no route of a model; leave it out"
                )
            plan.inline = inline
        return inline

    def follow(self) -> None:
        """Have each route let go of artefacts that serve no longer: an erasure may have taken them."""
        for plan in self.plans:
            if plan.artifacts is not None:
                plan.artifacts.follow()

    def judge_calls(self, guard: CallGuard) -> None:
        """Judge the tool calls of the routes that documents of kind Action name."""
        for plan in self.plans:
            if guard.guards(plan.name):
                plan.guard = guard
            if guard.guards_answers(plan.name):
                plan.answers = guard

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

    def by_path(self, path: bytes) -> PreparedRoute | None:
        """Return the route whose prefix the path has, longest prefix first."""
        for plan in self.plans:
            prefix = plan.prefix
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in (b"/", b"?", b""):
                return plan
        return None

    def by_host(self, host: str, port: int, path: bytes) -> tuple[PreparedRoute, Target | None]:
        """Return the route that leads to this host and path, else the plan for what no route has.

        Of several the one with the longest path counts, of equal ones the first.
        """
        for plan, target in self._hosts.get((host.lower().rstrip("."), port), ()):
            if lies_below(path, target.upstream.path.encode()):
                return plan, target
        return self.other, None

    def intercepts(self, host: str, port: int) -> bool:
        """Tell whether the forward proxy opens connections to this host."""
        host = host.lower().rstrip(".")
        if (host, port) in self._exact or (host, None) in self._exact:
            return True
        return any(
            host.endswith(suffix) and only in (None, port) for suffix, only in self._suffixes
        )


_SILENT_SECONDS = 60.0
"""For so long after a line about an upstream there is no other."""
_LONGEST_TEXT = 200


class Reachability:
    """Notes which upstreams can be reached: the others are passed over a while, and the log says why."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._told: dict[Address, float] = {}
        """When the log said last that an upstream cannot be reached."""

    def note(self, address: Address, *, well: bool, why: str = "") -> None:
        """Note how an attempt to reach an upstream ended."""
        self._router.reached(address, well=well)
        if not well:
            self._tell(address, why)
        elif self._told and self._told.pop(address, None) is not None:
            _log.warning("upstream %s:%d is reached again", *address)

    def _tell(self, address: Address, why: str) -> None:
        """Say in the log that a route's upstream cannot be reached; what it sent is no part."""
        names = self._router.routes_to(address)
        now = time.monotonic()
        if not names or now < self._told.get(address, -_SILENT_SECONDS) + _SILENT_SECONDS:
            return
        self._told[address] = now
        text = "".join(each if each.isprintable() else " " for each in why[:_LONGEST_TEXT])
        _log.warning("upstream %s:%d of %s cannot be reached: %s", *address, ", ".join(names), text)
