"""Queries the gateway on this machine through its admin port."""

import json
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.serialization import Encoding

from headrace.app.installation import Address, addresses, default_routes
from headrace.app.settings import Settings
from proxy.certificate import read_certificate
from proxy.config import GatewayConfig
from trajectory.errors import ConfigurationError, WorkError

if TYPE_CHECKING:
    import httpx

_PAUSES = (0.0, 1.0, 4.0)
"""Seconds before each try of a call to a model."""
_PASSING = (408, 429, 500, 502, 503, 504)
"""Answers that may be others a little later."""


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
    import httpx

    try:
        # Feedback of no items is refused with 400, but a wrong key before that with 401.
        answer = post_feedback(config, key, [])
    except (httpx.HTTPError, ConfigurationError):
        return True
    return answer.status_code != 401


def post_feedback(config: GatewayConfig, key: str, items: list[dict[str, Any]]) -> "httpx.Response":
    """Send feedback to the gateway on this machine.

    Raises:
        ConfigurationError: its base-URL port is off, or its certificate cannot be read.
        httpx.TransportError: nobody answers there, or somebody with another certificate.
    """

    return _post(config, "/headrace/v1/feedback", key, items, {}, seconds=5)


def ask_model(config: GatewayConfig, route: str, key: str, model: str, prompt: str) -> str:
    """Return what the model behind a route of the running gateway says to a prompt (chat completions).

    The call is metered, limited and governed as any other. No copy of its words is kept
    (``x-headrace-capture: metadata``): they quote stored conversations, and an erasure there would not find
    them here.

    Raises:
        ConfigurationError: there is no such route, or the gateway's base-URL port is off.
        WorkError: nobody answers, or not with words, also when asked again.
    """
    import httpx

    prefix = next((one.prefix for one in config.routes if one.name == route), None)
    if prefix is None:
        known = ", ".join(one.name for one in config.routes) or "none"
        raise ConfigurationError(f"no route {route!r} (gateway.routes); there are: {known}")
    body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    said = ""
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            answer = _post(
                config,
                f"{prefix}/v1/chat/completions",
                key,
                body,
                {"x-headrace-capture": "metadata", "x-headrace-agent": "headrace-optimize"},
                seconds=600,
            )
        except httpx.TransportError as error:
            said = type(error).__name__
            continue
        if answer.status_code == 200:
            return _words(answer, route)
        said = f"HTTP {answer.status_code}"
        if answer.status_code not in _PASSING:
            break
    raise WorkError(f"the model {model!r} behind the route {route!r} did not answer ({said})")


def _words(answer: "httpx.Response", route: str) -> str:
    try:
        return str(answer.json()["choices"][0]["message"]["content"] or "")
    except (ValueError, LookupError, TypeError):
        raise WorkError(
            f"what answers behind the route {route!r} does not speak chat completions"
        ) from None


def _post(
    config: GatewayConfig,
    path: str,
    key: str,
    body: Any,
    headers: dict[str, str],
    *,
    seconds: float,
) -> "httpx.Response":
    import httpx

    listen = addresses(config).get("listen")
    if listen is None:
        raise ConfigurationError("the gateway's base-URL port is off (gateway.port).")
    scheme = "http" if config.certificate is None else "https"
    return httpx.post(
        f"{scheme}://{listen.for_clients}{path}",
        json=body,
        headers={"authorization": f"Bearer {key}", **headers},
        timeout=seconds,
        trust_env=False,
        verify=True if config.certificate is None else _exactly(config.certificate),
    )


def _exactly(certificate: Path) -> ssl.SSLContext:
    """Return a client's TLS that trusts this certificate alone, by whatever name it is reached."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    pem = read_certificate(certificate).public_bytes(Encoding.PEM)
    context.load_verify_locations(cadata=pem.decode("ascii"))
    return context


def as_it_runs(settings: Settings, config: GatewayConfig) -> GatewayConfig:
    """Return ``config`` with the default routes that the running gateway has.

    They depend on the provider's keys, which only the gateway's environment must hold: the agent's
    terminal has none. Routes that the settings name are the same everywhere.
    """
    running = None if settings.gateway.routes else routes_that_run(config)
    if running is None:
        return config
    return config.model_copy(update={"routes": default_routes(running)})
