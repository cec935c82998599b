"""One gateway: its ports, its routes, whom it opens, and what it keeps."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from proxy.config.base import Settings
from proxy.config.routes import Route
from proxy.config.sources import SecretSource
from proxy.config.spool import SpoolConfig

type Port = Annotated[int, Field(ge=0, le=65535)]

_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


class GatewayConfig(Settings):
    """Everything that one gateway needs to know."""

    host: str = "127.0.0.1"
    """Address of the base-URL gateway."""
    port: Port | None = 8484
    """Its port; 0 takes a free one, None switches it off."""
    forward_host: str = "127.0.0.1"
    """Address of the forward proxy."""
    forward_port: Port | None = 8485
    """Its port; 0 takes a free one, None switches it off."""
    forward_key: SecretSource | None = None
    """The client key that stands for clients of the forward proxy that present none, as most Java
    programs; only where the proxy listens for this machine alone."""
    transparent_host: str = "localhost"
    """Address to which iptables redirects a sidecar's connections; ``localhost`` is 127.0.0.1 and,
    where this machine has it, ::1 (ip6tables)."""
    transparent_port: Port | None = None
    """Its port; None (the default) switches transparent mode off."""
    transparent_key: SecretSource | None = None
    """The client key that stands for everybody who is redirected there."""
    admin_host: str = "127.0.0.1"
    """Address of health and metrics."""
    admin_port: Port | None = 8486
    """Their port; 0 takes a free one, None switches them off."""
    routes: tuple[Route, ...] = ()
    """Where requests lead; the longest prefix that fits wins."""
    intercept_hosts: tuple[str, ...] = ()
    """Hosts that the forward proxy opens: ``host``, ``host:port`` or ``*.domain``."""
    intercept_route_hosts: bool = True
    """Open the hosts of all routes too."""
    authority: Path = Path("ca")
    """Folder of the certificate authority (made by ``proxy.authority``)."""
    upstream_ca: Path | None = None
    """Certificates to trust upstream instead of the system's."""
    keys: Path = Path("keys.json")
    """The registry of client keys."""
    limits: Path = Path("limits.sqlite")
    """Where what limited keys have used is counted; made when a key has a limit."""
    serving: Path = Path("serving.json")
    """Where the app publishes which versions of registered models answer, for routes with a model."""
    capture: bool = True
    """Off: pass everything, keep nothing."""
    spool: SpoolConfig = SpoolConfig()
    """The spool."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the ports; the admin port counts up by one for each."""
    connect_seconds: float = Field(default=10.0, gt=0)
    """How long a connection to an upstream may take, its TLS handshake included."""
    idle_seconds: int = Field(default=7200, ge=60)
    """How long a connection may stay silent; model calls may think for an hour."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long SIGTERM waits for calls in flight."""
    traces: str = ""
    """OTLP/HTTP address for traces of the gateway itself, like ``http://collector:4318/v1/traces``;
    empty is off. Spans carry names, times and counts, never content."""
    probe_at_start: bool = False
    """Ask the upstreams of ``capture: tokens`` routes at the start whether they give token ids."""
    fastpath: bool = True
    """Use the overrides of ``proxy.fastpath`` where the mitmproxy version fits."""

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

    @model_validator(mode="after")
    def _transparent(self) -> Self:
        if self.transparent_port is not None and self.transparent_key is None:
            raise ValueError(
                "transparent_port needs transparent_key: redirected clients present no key"
            )
        return self

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.forward_key is not None and self.forward_host not in _THIS_MACHINE:
            raise ValueError(
                "forward_key would let everybody in who reaches forward_host "
                f"{self.forward_host!r}; it must be one of {', '.join(_THIS_MACHINE)}"
            )
        return self

    @field_validator("intercept_hosts")
    @classmethod
    def _sound_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not host or "/" in host or "*" in host.removeprefix("*."):
                raise ValueError(f"{host!r} is not host, host:port or *.domain")
        return tuple(host.lower() for host in hosts)
