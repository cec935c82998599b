"""The gateway's settings; the app embeds :class:`GatewayConfig` in its own."""

from proxy.config.gateway import GatewayConfig, ListenAddress, refuse_clashes
from proxy.config.routes import ENDPOINT_PREFIX, Route, ToolOperation
from proxy.config.sources import CredentialSource, SecretSource
from proxy.config.spool import SpoolConfig
from proxy.config.upstreams import Upstream, UpstreamChoice

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
