"""Queries the gateway on this machine through its admin port."""

import json
import time
from typing import Any

from headrace.app.installation import Address, addresses, default_routes
from headrace.app.settings import Settings
from proxy.config import GatewayConfig
from trajectory.errors import ConfigurationError, WorkError

_KEYS_ARE_READ_SECONDS = 1.0
"""A gateway takes a new key within half a second."""


def ask(place: Address, page: str) -> Any:
    """Return the JSON of a page of the admin port.

    Raises:
        WorkError: nobody answers there, or no gateway.
    """
    import httpx

    try:
        answer = httpx.get(f"http://{place.for_clients}/{page}", timeout=5, trust_env=False)
        return json.loads(answer.content)
    except (httpx.HTTPError, ValueError) as error:
        raise WorkError(
            f"no gateway answers at {place.for_clients} ({type(error).__name__}); is it running?"
        ) from None


def admin_address(config: GatewayConfig) -> Address:
    """Return where the first worker's admin port is.

    Raises:
        ConfigurationError: it is off.
    """
    place = addresses(config).get("admin")
    if place is None:
        raise ConfigurationError("gateway.admin_port is off; what a gateway knows is served there")
    return place


def routes_that_run(config: GatewayConfig) -> frozenset[str] | None:
    """Return the names of the running gateway's routes; None when none answers."""
    try:
        routes = ask(admin_address(config), "routes")
    except (ConfigurationError, WorkError):
        return None
    return frozenset(map(str, routes)) if isinstance(routes, dict) else None


def knows_key(config: GatewayConfig, key: str) -> bool:
    """Tell whether the running gateway takes ``key``; True when none answers, since it may one day."""
    listen = addresses(config).get("listen")
    if listen is None or not _is_refused(listen, key):
        return True
    time.sleep(_KEYS_ARE_READ_SECONDS)
    return not _is_refused(listen, key)


def _is_refused(listen: Address, key: str) -> bool:
    import httpx

    try:
        # Feedback of no items is refused with 400, but a wrong key before that with 401.
        answer = httpx.post(
            f"http://{listen.for_clients}/headrace/v1/feedback",
            content=b"[]",
            headers={"authorization": f"Bearer {key}"},
            timeout=5,
            trust_env=False,
        )
    except httpx.HTTPError:
        return False
    return answer.status_code == 401


def as_it_runs(settings: Settings, config: GatewayConfig) -> GatewayConfig:
    """Return ``config`` with the default routes that the running gateway has.

    They depend on the provider's keys, which only the gateway's environment must hold: the agent's
    terminal has none. Routes that the settings name are the same everywhere.
    """
    running = None if settings.gateway.routes else routes_that_run(config)
    if running is None:
        return config
    return config.model_copy(update={"routes": default_routes(running)})
