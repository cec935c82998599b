"""Upstreams: where a route leads."""

from typing import NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from proxy.config.base import ConfigModel
from proxy.config.sources import CredentialSource


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
    connect_seconds: float | None = Field(default=None, gt=0)
    """How long a connection to it may take, TLS included; without it the route's."""

    @field_validator("url")
    @classmethod
    def _sound_url(cls, value: str) -> str:
        Upstream.parse(value)
        return value
