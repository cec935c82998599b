"""Routes of the base-URL gateway, their upstreams, and where their secrets come from."""

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trajectory.dialects.operations import operation
from trajectory.documents.document import NAME_PATTERN
from trajectory.errors import ConfigurationError
from trajectory.files import read_file


class ConfigModel(BaseModel):
    """A part of the settings: frozen, nothing unknown in it, each field with its docstring."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )


class SecretSource(ConfigModel):
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
                secret = read_file(path).decode().strip()
            except OSError as error:
                raise ConfigurationError(
                    f"credential: cannot read {place}: {error.strerror}"
                ) from None
            except UnicodeDecodeError:
                raise ConfigurationError(f"credential: {place} holds no text") from None
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


class UpstreamChoice(ConfigModel):
    """One of several upstreams of a route."""

    url: str
    """``http(s)://host[:port][/path]``."""
    weight: int = Field(default=1, ge=0, le=1000)
    """Its share of the sessions; 0 takes no new ones."""
    credential: CredentialSource | None = None
    """The provider's key there; without one the route's."""
    connect_seconds: float | None = Field(default=None, gt=0, le=604_800)
    """How long a connection to it may take, TLS included; without it the route's."""

    @field_validator("url")
    @classmethod
    def _sound_url(cls, value: str) -> str:
        Upstream.parse(value)
        return value


ENDPOINT_PREFIX = "/headrace/"


class ToolOperation(ConfigModel):
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


class RouteEvolution(ConfigModel):
    """Artefacts that a route applies to model requests."""

    artifacts: tuple[str, ...] = Field(min_length=1, max_length=50)
    """Names in the registry; their live versions are applied, in this order."""
    tokens: int = Field(default=1000, ge=1, le=100_000)
    """Tokens that all of them add to one request at most; three bytes count as one."""
    canary: float = Field(default=0.0, ge=0, le=1)
    """Share of the sessions that get the version on trial as canary (``headrace artifact try``)."""
    milliseconds: float = Field(default=20.0, gt=0, le=1000)
    """CPU time that they may take for one request; beyond it the request goes on unchanged."""

    @field_validator("artifacts")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(NAME_PATTERN, name):
                raise ValueError(f"{name!r} is no name of an artefact")
        if len({*value}) < len(value):
            raise ValueError("an artefact is named twice")
        return value


class Route(ConfigModel):
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
    pin: Literal["none", "trajectory"] = "none"
    """``trajectory``: the version that began a trajectory answers it to its end, whatever is promoted."""
    pin_hours: float = Field(default=24.0, gt=0, le=720)
    """Silence after which a pinned trajectory counts as over."""
    credential: CredentialSource | None = None
    """The provider's key; without one the client's own credential goes upstream (forward mode)."""
    connect_seconds: float | None = Field(default=None, gt=0, le=604_800)
    """How long a connection upstream may take, TLS included; by default the gateway's."""
    capture: Literal["text", "tokens"] = "text"
    """``tokens`` asks an engine like vLLM for exact token ids and takes them out of the answer."""
    kind: Literal["model", "tool"] = "model"
    """What answers there: a model API, or tools (MCP and other HTTP tools)."""
    shape: Literal["auto", "openai", "anthropic", "google", "bedrock", "ollama", "jsonrpc"] = "auto"
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
    session_calls: bool = False
    """Answer ``rl/start_session``, ``rl/set_reward`` and ``rl/end_session`` of AReaL's clients here."""
    evolve: RouteEvolution | None = None
    """Artefacts (facts, procedures, edits of prompts and tools) that are added to model requests."""
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
        if not self.model and self.pin != "none":
            raise ValueError("pin belongs to a route with a model")
        if self.evolve is not None:
            if self.kind != "model":
                raise ValueError("evolve belongs to a route with kind: model")
            if self.capture == "tokens":
                raise ValueError(
                    "evolve and capture: tokens exclude each other: the ids of a prompt would hold "
                    "what was added"
                )
            if self.shadow:
                raise ValueError(
                    "evolve and shadow exclude each other: copies would lack artefacts"
                )
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
