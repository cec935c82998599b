"""The gateway's settings; the app embeds :class:`GatewayConfig` in its own."""

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trajectory.errors import ConfigurationError
from trajectory.operations import operation

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


class SecretSource(_Settings):
    """Where a secret comes from; it is never written into settings."""

    env: str | None = None
    """Name of the environment variable that holds it."""
    file: Path | None = None
    """File that holds it; a change takes effect within a second, without restart."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret comes from exactly one of: env, file")
        return self

    def secret(self) -> str:
        """Return the secret.

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
            raise ConfigurationError(f"credential: {place} is empty; put the key there")
        if not secret.isprintable():
            raise ConfigurationError(f"credential: {place} holds more than one printable line")
        return secret


class CredentialSource(SecretSource):
    """The provider's own key, and how it is put into a request."""

    header: str = "authorization"
    """Header that carries it: ``authorization``, ``x-api-key``, ``api-key``, ``x-goog-api-key`` …"""
    scheme: str | None = None
    """Word before it; by default ``Bearer`` in ``authorization`` and none elsewhere."""

    def header_value(self) -> str:
        """Return the header's value.

        Raises:
            ConfigurationError: the variable or the file is missing or empty.
        """
        secret = self.secret()
        scheme = self.scheme
        if scheme is None:
            scheme = "Bearer" if self.header.lower() == "authorization" else ""
        return f"{scheme} {secret}" if scheme else secret


class UpstreamChoice(_Settings):
    """One of several upstreams of a route."""

    url: str
    """``http(s)://host[:port][/path]``."""
    weight: int = Field(default=1, ge=0, le=1000)
    """Its share of the sessions; 0 takes no new ones."""
    credential: CredentialSource | None = None
    """The provider's key there; without one the route's."""
    connect_seconds: float | None = Field(default=None, gt=0)
    """How long a connection to it may take, TLS included; without it the route's."""

    @field_validator("url")
    @classmethod
    def _sound_url(cls, value: str) -> str:
        Upstream.parse(value)
        return value


class ToolOperation(_Settings):
    """One operation of a plain HTTP tool."""

    name: str = Field(min_length=1, max_length=200)
    """The tool's name in steps."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "GET"
    """Its HTTP method."""
    path: str
    """``/orders/{order_id:integer}``: variables in braces, with a type where they are not text."""

    @model_validator(mode="after")
    def _sound_path(self) -> Self:
        operation(self.name, self.method, self.path)
        return self


class Route(_Settings):
    """A path prefix of the base-URL gateway, and the upstream that it leads to."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    """Name in captures, metrics and policies."""
    prefix: str = ""
    """Path prefix, ``/<name>`` by default; it is taken off before the request goes upstream."""
    upstream: str | tuple[UpstreamChoice, ...] = ()
    """``http(s)://host[:port][/path]``, the path is put before the client's; or several of them.

    A session keeps the upstream that it began with, and so does a client's connection where no
    session is named; one that cannot be reached gets nothing for ten seconds.
    """
    model: str = ""
    """A registered model instead of an upstream: the version that is promoted answers."""
    canary: float = Field(default=0.0, ge=0, le=1)
    """Share of the sessions that the version on trial as canary answers (``headrace train try``)."""
    shadow: float = Field(default=0.0, ge=0, le=1)
    """Share of the calls that are copied to the version on trial as shadow; nobody gets its answers."""
    credential: CredentialSource | None = None
    """The provider's key; without one the client's own credential goes upstream (forward mode)."""
    connect_seconds: float | None = Field(default=None, gt=0)
    """How long a connection upstream may take, TLS included; by default the gateway's."""
    capture: Literal["text", "tokens"] = "text"
    """``tokens`` asks an engine like vLLM for exact token ids and takes them out of the answer."""
    kind: Literal["model", "tool"] = "model"
    """What answers there: a model API, or tools (MCP and other HTTP tools)."""
    shape: Literal["auto", "openai", "anthropic", "google", "jsonrpc"] = "auto"
    """In whose shape the gateway's own errors are answered; ``auto`` looks at the request."""
    durability: Literal["journal", "durable", "batch"] = "journal"
    """What survives: ``journal`` a ``kill -9``; ``durable`` a power cut, by holding back the end of
    each response until its record is on the disk; ``batch`` neither, for the last 50 ms."""
    without_capture: Literal["pass", "refuse"] = "pass"
    """Calls that cannot be captured (spool full, disk failing or slow): ``pass`` them, or
    ``refuse`` them in the provider's own error shape."""
    operations: tuple[ToolOperation, ...] = ()
    """What a plain HTTP tool can do; a call of one becomes a tool step."""
    openapi: Path | None = None
    """OpenAPI document (JSON or YAML) whose operations are added."""
    step_header: bool = False
    """Add ``x-headrace-step`` to responses; feedback can name it as ``step_id``."""

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

    @model_validator(mode="after")
    def _tools_only(self) -> Self:
        if self.kind != "tool" and (self.operations or self.openapi):
            raise ValueError("operations and openapi belong to a route with kind: tool")
        return self

    @field_validator("upstream")
    @classmethod
    def _sound_upstream(
        cls, value: str | tuple[UpstreamChoice, ...]
    ) -> str | tuple[UpstreamChoice, ...]:
        if isinstance(value, str):
            Upstream.parse(value)
        elif value and not any(choice.weight for choice in value):
            raise ValueError("a route needs an upstream whose weight is above 0")
        return value

    @model_validator(mode="after")
    def _one_leads_on(self) -> Self:
        if bool(self.model) == bool(self.upstream):
            raise ValueError("a route leads to exactly one of: upstream, model")
        if not self.model and (self.canary or self.shadow):
            raise ValueError("canary and shadow belong to a route with a model")
        if self.model and self.kind != "model":
            raise ValueError("a route with a model has kind: model")
        return self

    @property
    def choices(self) -> tuple[UpstreamChoice, ...]:
        """Return all upstreams, each with what it takes from the route."""
        listed = self.upstream
        if isinstance(listed, str):
            listed = (UpstreamChoice(url=listed),)
        return tuple(
            choice.model_copy(
                update={
                    "credential": choice.credential or self.credential,
                    "connect_seconds": choice.connect_seconds or self.connect_seconds,
                }
            )
            for choice in listed
        )


class SpoolConfig(_Settings):
    """Where captures rest until they are governed, and what happens when there is no room."""

    directory: Path = Path("spool")
    """Folder of the spool; the app sets it inside its home."""
    segment_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    """A segment file is closed when it has reached this size."""
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
    slow_seconds: float = Field(default=1.0, gt=0)
    """A disk that takes longer for a write or a sync counts as failing: nothing is written for
    a second, twice as long each time it happens again, half a minute at most."""
    key_file: Path | None = None
    """Keys that seal the spool, 64 hexadecimal digits on each line, newest first; the app names
    ``secrets/spool.key``. Without the file the key comes from the master key."""

    @model_validator(mode="after")
    def _watermarks(self) -> Self:
        if self.alarm_at > self.shed_at:
            raise ValueError("alarm_at must not lie above shed_at")
        return self


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
    transparent_host: str = "127.0.0.1"
    """Address to which iptables redirects a sidecar's connections."""
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

    @field_validator("intercept_hosts")
    @classmethod
    def _sound_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not host or "/" in host or "*" in host.removeprefix("*."):
                raise ValueError(f"{host!r} is not host, host:port or *.domain")
        return tuple(host.lower() for host in hosts)
