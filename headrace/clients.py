"""What a client needs in its environment to reach the gateway, in base-URL and in proxy mode."""

import os
from pathlib import Path

from headrace.home import Home
from headrace.installation import addresses
from proxy.config import GatewayConfig
from proxy.identity import PURPOSES, KeyRegistry

LOCAL_TENANT = "local"

_BASE_URLS = {
    "openai": ("OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY"),
}
"""Route → the variables that the provider's official clients read."""

_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CODEX_CA_CERTIFICATE",
)


def local_client_key(home: Home, registry: KeyRegistry) -> str:
    """Return the client key of this machine's own user, made on first use.

    It belongs to the tenant ``local`` and grants every purpose but sharing: who runs
    ``headrace up`` on their own machine may learn from their own agents.
    """
    path = home.create().secrets / "client.key"
    if path.exists():
        key = path.read_text(encoding="ascii").strip()
        if registry.authenticate(key) is not None:
            return key
    purposes = tuple(purpose for purpose in PURPOSES if purpose != "share")
    created = registry.create(tenant_id=LOCAL_TENANT, app_id="default", purposes=purposes)
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(created.secret + "\n")
    temporary.replace(path)
    return created.secret


def base_url_environment(config: GatewayConfig, key: str) -> dict[str, str]:
    """Return the variables for base-URL mode: one address and key per route that clients know."""
    listen = addresses(config).get("listen")
    if listen is None:
        return {}
    variables: dict[str, str] = {}
    for route in config.routes:
        url = f"http://{listen.for_clients}{route.prefix}"
        if route.name in _BASE_URLS:
            url_variable, suffix, key_variable = _BASE_URLS[route.name]
            variables[url_variable] = url + suffix
            variables[key_variable] = key
        else:
            variables[f"{route.name.upper().replace('-', '_')}_BASE_URL"] = url
    return variables


def proxy_environment(config: GatewayConfig, key: str, bundle: Path) -> dict[str, str]:
    """Return the variables for the intercepting proxy: address with key, and whom to trust.

    ``bundle`` holds the system's roots and our own authority, so that tunnelled hosts work too.
    """
    forward = addresses(config).get("forward")
    if forward is None:
        return {}
    url = f"http://headrace:{key}@{forward.for_clients}"
    variables = {"HTTPS_PROXY": url, "HTTP_PROXY": url, "https_proxy": url, "http_proxy": url}
    variables |= dict.fromkeys(_BUNDLE_VARIABLES, str(bundle))
    variables["NODE_USE_ENV_PROXY"] = "1"
    return variables
