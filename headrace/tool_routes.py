"""Plain HTTP tools as the settings name them: the operations of each tool route."""

from collections.abc import Sequence
from typing import cast

import yaml

from proxy.config import Route, Upstream
from trajectory.canonical import JsonObject
from trajectory.dialects.http_tools import HttpTools
from trajectory.errors import ConfigurationError
from trajectory.operations import Operation, operation, read_openapi


def http_tools(routes: Sequence[Route]) -> HttpTools:
    """Return the dialect that reads calls of these routes' operations.

    Raises:
        ConfigurationError: an OpenAPI document cannot be read.
    """
    operations = {
        route.name: found for route in routes if (found := _operations(route)) or route.openapi
    }
    bases = {
        route.name: tuple({Upstream.parse(choice.url).path for choice in route.choices})
        for route in routes
        if route.name in operations
    }
    return HttpTools(operations, bases)


def _operations(route: Route) -> list[Operation]:
    found = [operation(item.name, item.method, item.path) for item in route.operations]
    if route.openapi is None:
        return found
    place = f"gateway.routes, {route.name}: openapi: {route.openapi}"
    try:
        document = yaml.safe_load(route.openapi.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{place}: {error.strerror}; give the document's path") from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise ConfigurationError(f"{place}: neither JSON nor YAML") from None
    try:
        listed = read_openapi(cast(JsonObject, document if isinstance(document, dict) else {}))
    except ValueError as error:
        raise ConfigurationError(f"{place}: {error}") from None
    return [*found, *listed]
