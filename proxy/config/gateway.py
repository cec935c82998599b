"""One gateway: its ports, its routes, whom it opens, and where captures rest."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from proxy.config.routes import ConfigModel, Route, SecretSource
from proxy.config.webhooks import Webhook


class SpoolConfig(ConfigModel):
    """Where captures rest until they are governed, and what happens when there is no room."""

    directory: Path = Path("spool")
    """Folder of the spool; the app sets it inside its home."""
    segment_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    """A segment file is closed when it has reached this size."""
    segment_seconds: float = Field(default=3600.0, gt=0, le=604_800)
    """A segment file that has been open so long is closed. Its governed part can then be deleted before the file
    has reached its size."""
    max_age_hours: float = Field(default=336.0, ge=1, le=87_600)
    """Closed segments that nobody governed for so long after their last record are deleted, counted
    (``headrace_spool_expired_segments_total``) and noted in the audit log."""
    max_bytes: int = Field(default=8 * 1024**3, ge=1024 * 1024)
    """Bound of the whole spool; at it, each route's ``without_capture`` decides."""
    max_files: int = Field(default=4096, ge=16)
    """Bound of its segment files; it acts like ``max_bytes``."""
    alarm_at: float = Field(default=0.7, gt=0, le=1)
    """Share of the bounds from which ``headrace_spool_alarm`` is 1 and the log says so."""
    shed_at: float = Field(default=0.9, gt=0, le=1)
    """Share of the bounds from which bodies are left out and metadata is kept, on routes that
    ``pass`` without capture."""
    sync_seconds: float = Field(default=0.2, gt=0, le=10)
    """How long records may wait for their common ``fdatasync``."""
    slow_seconds: float = Field(default=1.0, gt=0, le=604_800)
    """A disk that takes longer for a write or a sync counts as failing. Writing then stops for a second, twice as
    long each time again, half a minute at most."""
    key_file: Path | None = None
    """Keys that seal the spool, 64 hexadecimal digits on each line, newest first; the app names
    ``secrets/spool.key``. Without the file the key comes from the master key."""

    @model_validator(mode="after")
    def _watermarks(self) -> Self:
        if self.alarm_at > self.shed_at:
            raise ValueError("alarm_at must not lie above shed_at")
        return self


_LAST_PORT = 65535

type Port = Annotated[int, Field(ge=0, le=_LAST_PORT)]

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names of this machine that no other machine has."""


_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


class ListenAddress(NamedTuple):
    """Where something listens, and the setting that says so."""

    setting: str
    host: str
    port: int | None

    def meets(self, other: "ListenAddress") -> bool:
        """Tell whether both cannot listen at once."""
        hosts = {self.host, other.host}
        return (
            bool(self.port)
            and self.port == other.port
            and (
                len(hosts) == 1
                or not hosts.isdisjoint(_ALL_ADDRESSES)
                or hosts <= {*LOOPBACK_HOSTS}
            )
        )


def refuse_clashes(places: Iterable[ListenAddress]) -> None:
    """Refuse settings by which two things would listen at one place.

    Raises:
        ValueError: they do, or a port is none.
    """
    for one, other in combinations(places, 2):
        if one.meets(other):
            raise ValueError(f"{one.setting} and {other.setting} are both {one.port}; change one")
        if (other.port or 0) > _LAST_PORT:
            raise ValueError(f"{other.setting} would be {other.port}, beyond {_LAST_PORT}")


class GatewayConfig(ConfigModel):
    """Everything that one gateway needs to know."""

    host: str = "127.0.0.1"
    """Address of the base-URL gateway."""
    port: Port | None = 8484
    """Its port; 0 takes a free one, null switches it off."""
    certificate: Path | None = None
    """A PEM file with a certificate of your own, its chain behind it: the base-URL port then speaks
    TLS alone, 1.2 or newer. A renewed file counts within a second."""
    certificate_key: Path | None = None
    """Its private key, which only the gateway's user and group may read."""
    listener: Literal["plain", "mitmproxy"] = "plain"
    """What serves the base-URL port: ``plain`` takes a sixth of the CPU and is stricter about
    HTTP/1. It hands connections with HTTP/2 or WebSocket on to mitmproxy, and with TLS too unless
    there is a ``certificate``."""
    forward_host: str = "127.0.0.1"
    """Address of the forward proxy."""
    forward_port: Port | None = 8485
    """Its port; 0 takes a free one, null switches it off."""
    forward_key: SecretSource | None = None
    """The client key that stands for clients of the forward proxy that present none, as most Java
    programs; only where the proxy listens for this machine alone."""
    transparent_host: str = "localhost"
    """Address to which iptables redirects a sidecar's connections; ``localhost`` is 127.0.0.1 and,
    where this machine has it, ::1 (ip6tables)."""
    transparent_port: Port | None = None
    """Its port; null (the default) switches transparent mode off."""
    transparent_key: SecretSource | None = None
    """The client key that stands for everybody who is redirected there."""
    admin_host: str = "127.0.0.1"
    """Address of health and metrics."""
    admin_port: Port | None = 8486
    """Their port; 0 takes a free one, null switches them off."""
    routes: tuple[Route, ...] = ()
    """Where requests lead; the longest prefix that fits wins."""
    webhooks: tuple[Webhook, ...] = ()
    """Signed events of other systems that become feedback."""
    intercept_hosts: tuple[str, ...] = ()
    """Hosts that the forward proxy opens: ``host``, ``host:port`` or ``*.domain``."""
    intercept_route_hosts: bool = True
    """Open the hosts of all routes too."""
    authority: Path = Path("ca")
    """Folder of the certificate authority (made by ``proxy.mitm.authority``)."""
    upstream_ca: Path | None = None
    """Certificates to trust upstream instead of the system's."""
    keys: Path = Path("keys.json")
    """The registry of client keys."""
    limits: Path = Path("limits.sqlite")
    """Where what limited keys have used is counted; made when a key has a limit."""
    prices: Path | None = None
    """A price table of your own (a document of kind ``Prices``), for costs and for keys with a budget of
    money; without it the table that Headrace ships."""
    serving: Path = Path("serving.json")
    """Where the app publishes which versions of registered models answer, for routes with a model."""
    artifacts: Path = Path("artifacts")
    """The registry of artefacts, for routes with ``evolve``."""
    capture: bool = True
    """Off: pass everything, keep nothing."""
    spool: SpoolConfig = SpoolConfig()
    """The spool."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the ports; the admin port counts up by one for each."""
    calls: int = Field(default=4096, ge=1)
    """Calls in flight in one worker; further ones get 503 with Retry-After."""
    calls_per_key: int = Field(default=1024, ge=1)
    """Calls of one client key in flight in one worker; further ones get 429 with Retry-After."""
    body_bytes: int = Field(default=512 * 1024 * 1024, ge=1024)
    """Bytes that the body of a request may have; a longer one gets 413."""
    connect_seconds: float = Field(default=10.0, gt=0, le=604_800)
    """How long a connection to an upstream may take, its TLS handshake included."""
    idle_seconds: int = Field(default=7200, ge=60, le=604_800)
    """How long a connection may stay silent; model calls may think for an hour."""
    drain_seconds: float = Field(default=30.0, ge=0, le=604_800)
    """How long SIGTERM waits for calls in flight."""
    traces: str = ""
    """OTLP/HTTP address for traces of the gateway itself, like ``http://collector:4318/v1/traces``;
    empty is off. Spans carry names, times and counts, never content."""
    probe_at_start: bool = False
    """Ask the upstreams of ``capture: tokens`` routes at the start whether they give token ids."""
    fastpath: bool = True
    """Use the overrides of ``proxy.mitm.fastpath`` where the mitmproxy version fits."""

    @field_validator("routes")
    @classmethod
    def _distinct(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        for what in ("name", "prefix"):
            seen: set[str] = set()
            for route in routes:
                value = getattr(route, what)
                if value in seen:
                    raise ValueError(f"two routes have the {what} {value!r}")
                seen.add(value)
        return routes

    @field_validator("webhooks")
    @classmethod
    def _told_apart(cls, webhooks: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
        names = [webhook.name for webhook in webhooks]
        if len(names) != len(set(names)):
            raise ValueError("two webhooks have the same name")
        return webhooks

    @model_validator(mode="after")
    def _transparent(self) -> Self:
        if self.transparent_port is not None and self.transparent_key is None:
            raise ValueError(
                "transparent_port needs transparent_key: redirected clients present no key"
            )
        return self

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.forward_key is not None and self.forward_host not in LOOPBACK_HOSTS:
            raise ValueError(
                "forward_key would let everybody in who reaches forward_host "
                f"{self.forward_host!r}; it must be one of {', '.join(LOOPBACK_HOSTS)}"
            )
        return self

    @model_validator(mode="after")
    def _certificate(self) -> Self:
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key belong together; give both or none")
        return self

    @property
    def places(self) -> tuple[ListenAddress, ...]:
        """Return where it listens, the admin ports of all workers too; not where any port will do."""
        named = [
            ListenAddress("gateway.port", self.host, self.port),
            ListenAddress("gateway.forward_port", self.forward_host, self.forward_port),
            ListenAddress("gateway.transparent_port", self.transparent_host, self.transparent_port),
            ListenAddress("gateway.admin_port", self.admin_host, self.admin_port),
        ]
        if self.admin_port:
            named += [
                ListenAddress(
                    f"gateway.admin_port (worker {index})", self.admin_host, self.admin_port + index
                )
                for index in range(1, self.workers)
            ]
        return tuple(place for place in named if place.port)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        refuse_clashes(self.places)
        return self

    @field_validator("intercept_hosts")
    @classmethod
    def _sound_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not host or "/" in host or "*" in host.removeprefix("*."):
                raise ValueError(f"{host!r} is not host, host:port or *.domain")
        return tuple(host.lower() for host in hosts)
