"""An installation put together: the gateway's full configuration and its routes."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from headrace.app.home import Home
from headrace.app.master_key import Secrets, serving_key
from headrace.app.settings import Settings
from proxy.certificate import certified_names, read_certificate
from proxy.clients.keys import KEY_PREFIX
from proxy.config import CredentialSource, GatewayConfig, Route, Upstream
from proxy.spool import SpoolReader
from trajectory.canonical import JsonObject
from trajectory.dialects.http_tools import HttpTools
from trajectory.dialects.operations import Operation, operation, read_openapi
from trajectory.documents.source import read_data
from trajectory.errors import ConfigurationError
from trajectory.files import read_file


class Address(NamedTuple):
    """Address on which a program listens."""

    host: str
    port: int

    @property
    def for_clients(self) -> str:
        """``host:port`` as a client on this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class DefaultRoute(NamedTuple):
    """A route that exists without a word in the settings, when its provider's key is there."""

    name: str
    upstream: str
    variable: str
    header: str

    @property
    def why_off(self) -> str | None:
        """Why the route is off; None when the provider's key is in the environment."""
        key = os.environ.get(self.variable)
        if not key:
            return f"{self.variable} is not set"
        if key.startswith(KEY_PREFIX):
            return f"{self.variable} holds a client key of Headrace, not the provider's"
        return None


DEFAULT_ROUTES = (
    DefaultRoute("openai", "https://api.openai.com", "OPENAI_API_KEY", "authorization"),
    DefaultRoute("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "x-api-key"),
)


def gateway_config(settings: Settings, home: Home) -> GatewayConfig:
    """Return the gateway's configuration with its paths inside the home and default routes added.

    Without routes in the settings, each default route with its provider's key in the environment is on. The
    forward proxy then opens the hosts of all default routes. Routes with a registered model present the key of its
    server.
    """
    gateway = settings.gateway
    update: dict[str, object] = {
        "authority": _inside(home.authority, gateway.authority, Path("ca")),
        "keys": _inside(home.client_keys, gateway.keys, Path("keys.json")),
        "serving": _inside(home.serving, gateway.serving, Path("serving.json")),
        "artifacts": _inside(home.artifacts, gateway.artifacts, Path("artifacts")),
        "limits": _inside(home.root / "limits.sqlite", gateway.limits, Path("limits.sqlite")),
        "spool": gateway.spool.model_copy(
            update={
                "directory": _inside(home.spool, gateway.spool.directory, Path("spool")),
                "key_file": gateway.spool.key_file or home.secrets / "spool.key",
            }
        ),
    }
    if any(route.model for route in gateway.routes):
        key = CredentialSource(file=serving_key(home))
        update["routes"] = tuple(
            route.model_copy(update={"credential": route.credential or key})
            if route.model
            else route
            for route in gateway.routes
        )
    if not gateway.routes:
        on = {route.name for route in DEFAULT_ROUTES if route.why_off is None}
        update["routes"] = default_routes(on)
        hosts = tuple(route.upstream.removeprefix("https://") for route in DEFAULT_ROUTES)
        update["intercept_hosts"] = tuple(dict.fromkeys(gateway.intercept_hosts + hosts))
    return gateway.model_copy(update=update)


def default_routes(names: Collection[str]) -> tuple[Route, ...]:
    """Return the default routes of these names."""
    return tuple(
        Route(
            name=route.name,
            upstream=route.upstream,
            credential=CredentialSource(env=route.variable, header=route.header),
        )
        for route in DEFAULT_ROUTES
        if route.name in names
    )


def spool_reader(settings: Settings, home: Home, secrets: Secrets) -> SpoolReader:
    """Return a reader of the gateway's spool, with all keys that may have sealed it."""
    spool = gateway_config(settings, home).spool
    return SpoolReader(spool.directory, secrets.derive(b"spool"), key_file=spool.key_file)


def missing_default_routes(settings: Settings) -> tuple[DefaultRoute, ...]:
    """Return the default routes that are off because their provider's key is not there."""
    if settings.gateway.routes:
        return ()
    return tuple(route for route in DEFAULT_ROUTES if route.why_off is not None)


def addresses(config: GatewayConfig) -> dict[str, Address]:
    """Return where the gateway listens: ``listen``, ``forward``, ``transparent``, ``admin``, those that are on."""
    places = {
        "listen": (config.host, config.port),
        "forward": (config.forward_host, config.forward_port),
        "transparent": (config.transparent_host, config.transparent_port),
        "admin": (config.admin_host, config.admin_port),
    }
    return {name: Address(host, port) for name, (host, port) in places.items() if port is not None}


def base_url(config: GatewayConfig) -> str | None:
    """Return the base URL's scheme, host and port for clients of this machine; None where it is off.

    A client compares the host with the certificate, so it is a name of the certificate.
    """
    listen = addresses(config).get("listen")
    if listen is None:
        return None
    if config.certificate is None:
        return f"http://{listen.for_clients}"
    host, _, port = listen.for_clients.rpartition(":")
    names = certified_names(read_certificate(config.certificate))
    if names and host.strip("[]") not in names:
        host = f"[{names[0]}]" if ":" in names[0] else names[0]
    return f"https://{host}:{port}"


def _inside(default: Path, chosen: Path, untouched: Path) -> Path:
    return default if chosen == untouched else chosen


def http_tools(routes: Sequence[Route]) -> HttpTools:
    """Return the dialect that reads calls of these routes' operations.

    Raises:
        ConfigurationError: an OpenAPI document cannot be read.
    """
    operations = {
        route.name: found for route in routes if (found := operations_of(route)) or route.openapi
    }
    bases = {
        route.name: tuple({Upstream.parse(choice.url).path for choice in route.choices})
        for route in routes
        if route.name in operations
    }
    return HttpTools(operations, bases)


def operations_of(route: Route) -> list[Operation]:
    """Return what a plain HTTP tool can do.

    Raises:
        ConfigurationError: its OpenAPI document cannot be read.
    """
    found = [operation(item.name, item.method, item.path) for item in route.operations]
    if route.openapi is None:
        return found
    place = f"gateway.routes, {route.name}: openapi: {route.openapi}"
    try:
        document = read_data(read_file(route.openapi).decode())
        listed = read_openapi(cast(JsonObject, document if isinstance(document, dict) else {}))
    except OSError as error:
        raise ConfigurationError(f"{place}: {error.strerror}; give the document's path") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{place}: not UTF-8") from None
    except ValueError as error:
        raise ConfigurationError(f"{place}: {error}") from None
    return [*found, *listed]
