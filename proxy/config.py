"""The gateway's settings; the app embeds :class:`GatewayConfig` in its own."""

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trajectory.errors import ConfigurationError

type Port = Annotated[int, Field(ge=0, le=65535)]

ENDPOINT_PREFIX = "/headrace/"


class _Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )


class Upstream(NamedTuple):
    """Where a route leads, taken apart."""

    scheme: str
    host: str
    port: int
    path: str
    """Put before the path that the client asked for; no slash at its end."""

    @property
    def authority(self) -> str:
        """Return ``host`` or ``host:port``, as a Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        standard = 443 if self.scheme == "https" else 80
        return host if self.port == standard else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return ``scheme://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Take a URL apart.

        Raises:
            ValueError: it is not an http or https URL with a host, or has a query.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http:// or https:// URL with a host")
        if parts.query or parts.fragment or parts.username:
            raise ValueError(f"{parts.hostname}: an upstream URL has no query, fragment or user")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


class CredentialSource(_Settings):
    """Where the provider's own key comes from, and how it is put into a request."""

    env: str | None = None
    """Name of the environment variable that holds it."""
    file: Path | None = None
    """File that holds it; read when the gateway starts."""
    header: str = "authorization"
    """Header that carries it: ``authorization``, ``x-api-key``, ``api-key``, ``x-goog-api-key`` …"""
    scheme: str | None = None
    """Word before it; by default ``Bearer`` in ``authorization`` and none elsewhere."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a credential comes from exactly one of: env, file")
        return self

    def header_value(self) -> str:
        """Return the header's value.

        Raises:
            ConfigurationError: the variable or the file is missing or empty.
        """
        if self.env is not None:
            secret = os.environ.get(self.env, "").strip()
            place = f"environment variable {self.env}"
        else:
            path = self.file or Path()
            place = f"file {path}"
            try:
                secret = path.read_text("utf-8").strip()
            except OSError as error:
                raise ConfigurationError(
                    f"credential: cannot read {place}: {error.strerror}"
                ) from None
        if not secret:
            raise ConfigurationError(f"credential: {place} is empty; put the provider's key there")
        if not secret.isprintable():
            raise ConfigurationError(f"credential: {place} holds more than one printable line")
        scheme = self.scheme
        if scheme is None:
            scheme = "Bearer" if self.header.lower() == "authorization" else ""
        return f"{scheme} {secret}" if scheme else secret


class Route(_Settings):
    """A path prefix of the base-URL gateway, and the upstream that it leads to."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    """Name in captures, metrics and policies."""
    prefix: str = ""
    """Path prefix, ``/<name>`` by default; it is taken off before the request goes upstream."""
    upstream: str
    """``http(s)://host[:port][/path]``; the path is put before the client's."""
    credential: CredentialSource | None = None
    """The provider's key; without one the client's own credential goes upstream (forward mode)."""
    capture: Literal["text", "tokens"] = "text"
    """``tokens`` asks an engine like vLLM for exact token ids and takes them out of the answer."""
    kind: Literal["model", "tool"] = "model"
    """What answers there: a model API, or tools (MCP and other HTTP tools)."""
    shape: Literal["auto", "openai", "anthropic", "google", "jsonrpc"] = "auto"
    """In whose shape the gateway's own errors are answered; ``auto`` looks at the request."""
    durability: Literal["journal", "durable"] = "journal"
    """``durable`` holds back the end of each response until its record is on the disk."""

    @model_validator(mode="before")
    @classmethod
    def _default_prefix(cls, value: object) -> object:
        if isinstance(value, dict) and not value.get("prefix") and "name" in value:
            return {**value, "prefix": f"/{value['name']}"}
        return value

    @field_validator("prefix")
    @classmethod
    def _sound_prefix(cls, value: str) -> str:
        value = value.rstrip("/")
        if not value.startswith("/") or "//" in value:
            raise ValueError("a prefix begins with one slash, like /openai")
        if (value + "/").startswith((ENDPOINT_PREFIX, "/s/")):
            raise ValueError("the prefixes /headrace and /s belong to the gateway")
        return value

    @field_validator("upstream")
    @classmethod
    def _sound_upstream(cls, value: str) -> str:
        Upstream.parse(value)
        return value

    @property
    def target(self) -> Upstream:
        """Return the upstream, taken apart."""
        return Upstream.parse(self.upstream)


class SpoolConfig(_Settings):
    """Where captures rest until they are governed, and what happens when there is no room."""

    directory: Path = Path("spool")
    """Folder of the spool; the app sets it inside its home."""
    segment_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    """A segment file is closed when it has reached this size."""
    max_bytes: int = Field(default=8 * 1024**3, ge=1024 * 1024)
    """Bound of the whole spool; beyond it ``when_full`` decides."""
    when_full: Literal["refuse", "shed", "pass"] = "shed"
    """``refuse`` new requests with a 503; ``shed`` bodies and keep metadata; ``pass`` uncaptured."""
    sync_seconds: float = Field(default=0.2, gt=0, le=10)
    """How long records may wait for their common ``fdatasync``."""


class GatewayConfig(_Settings):
    """Everything that one gateway needs to know."""

    host: str = "127.0.0.1"
    """Address of the base-URL gateway."""
    port: Port | None = 8484
    """Its port; 0 takes a free one, None switches it off."""
    forward_host: str = "127.0.0.1"
    """Address of the forward proxy."""
    forward_port: Port | None = 8485
    """Its port; 0 takes a free one, None switches it off."""
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
    capture: bool = True
    """Off: pass everything, keep nothing."""
    spool: SpoolConfig = SpoolConfig()
    """The spool."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the ports; the admin port counts up by one for each."""
    connect_seconds: float = Field(default=10.0, gt=0)
    """How long a connection to an upstream may take."""
    idle_seconds: int = Field(default=7200, ge=60)
    """How long a connection may stay silent; model calls may think for an hour."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long SIGTERM waits for calls in flight."""
    purposes_header: str = "x-headrace-purposes"
    """Header by which a client narrows the purposes of one call; it is kept in the capture."""
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

    @field_validator("intercept_hosts")
    @classmethod
    def _sound_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not host or "/" in host or "*" in host.removeprefix("*."):
                raise ValueError(f"{host!r} is not host, host:port or *.domain")
        return tuple(host.lower() for host in hosts)
