"""The gateway's settings; the app embeds :class:`GatewayConfig` in its own."""

from proxy.config.gateway import GatewayConfig, ListenAddress, SpoolConfig, refuse_clashes
from proxy.config.routes import (
    ENDPOINT_PREFIX,
    CredentialSource,
    Route,
    SecretSource,
    ToolOperation,
    Upstream,
    UpstreamChoice,
)

__all__ = [
    "ENDPOINT_PREFIX",
    "CredentialSource",
    "GatewayConfig",
    "ListenAddress",
    "Route",
    "SecretSource",
    "SpoolConfig",
    "ToolOperation",
    "Upstream",
    "UpstreamChoice",
    "refuse_clashes",
]
