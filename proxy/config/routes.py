"""Routes: path prefixes of the base-URL gateway, and how calls of each are treated."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from proxy.config.base import ConfigModel
from proxy.config.sources import CredentialSource
from proxy.config.upstreams import Upstream, UpstreamChoice
from trajectory.operations import operation

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
    credential: CredentialSource | None = None
    """The provider's key; without one the client's own credential goes upstream (forward mode)."""
    connect_seconds: float | None = Field(default=None, gt=0)
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
