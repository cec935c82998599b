"""Environment variables with which a client reaches the gateway, by base URL or proxy."""

import os
from pathlib import Path

from headrace.app.home import Home
from headrace.app.installation import Address, addresses, base_url
from proxy.clients.keys import PURPOSES, KeyRegistry
from proxy.config import GatewayConfig, Upstream
from proxy.config.gateway import LOOPBACK_HOSTS
from proxy.mitm.authority import TRUST_STORE_PASSWORD
from trajectory.files import locked, replace_file

LOCAL_TENANT = "local"
OWN_PURPOSES = tuple(purpose for purpose in PURPOSES if purpose != "share")
"""What somebody may do who learns from their own agents."""

_BASE_URLS = {
    "openai": (("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1"), "OPENAI_API_KEY"),
    "anthropic": (("ANTHROPIC_BASE_URL", ""), ("ANTHROPIC_API_BASE", ""), "ANTHROPIC_API_KEY"),
    "gemini": (("GOOGLE_GEMINI_BASE_URL", ""), None, "GEMINI_API_KEY"),
    "azure": (("AZURE_OPENAI_ENDPOINT", ""), None, "AZURE_OPENAI_API_KEY"),
}
"""Route → the variables that the provider's official clients read, and older ones (Aider, LiteLLM)."""

_BUNDLE_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "DENO_CERT", "CODEX_CA_CERTIFICATE"),
    *("GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "PIP_CERT", "NPM_CONFIG_CAFILE"),
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)


def local_client_key(home: Home, registry: KeyRegistry) -> str:
    """Return the client key of this machine's own user, made on first use.

    It belongs to the tenant ``local`` and grants every purpose but sharing: who runs
    ``headrace up`` on their own machine may learn from their own agents.
    """
    path = home.create().secrets / "client.key"
    key = _key_in(path, registry)
    if key is None:
        with locked(path.with_suffix(".lock"), wait=True):
            key = _key_in(path, registry)
            if key is None:
                created = registry.create(
                    tenant_id=LOCAL_TENANT, app_id="default", purposes=OWN_PURPOSES
                )
                key = created.secret
                replace_file(path, f"{key}\n".encode("ascii"))
    return key


def _key_in(path: Path, registry: KeyRegistry) -> str | None:
    """Return the key that a file holds; None where there is none, or nobody takes it any more."""
    if not path.exists():
        return None
    key = path.read_text(encoding="ascii", errors="replace").strip()
    return key if registry.authenticate(key) is not None else None


def base_url_environment(config: GatewayConfig, key: str) -> dict[str, str]:
    """Return the variables for base-URL mode: an address for each route, a key where clients know it.

    ``HEADRACE_KEY`` holds the key for all others: trace exporters, taps, clients of own routes.
    """
    gateway = base_url(config)
    if gateway is None:
        return {}
    variables: dict[str, str] = {}
    for route in config.routes:
        url = gateway + route.prefix
        if route.name in _BASE_URLS:
            *addresses_, key_variable = _BASE_URLS[route.name]
            variables |= {found[0]: url + found[1] for found in addresses_ if found is not None}
            variables[key_variable] = key
        else:
            variables[f"{route.name.upper().replace('-', '_')}_BASE_URL"] = url
    return {**variables, "HEADRACE_KEY": key} if variables else {}


def proxy_environment(config: GatewayConfig, key: str, bundle: Path) -> dict[str, str]:
    """Return the variables for the intercepting proxy: address with key, and whom to trust.

    ``bundle`` holds the system's roots and our own authority, so that tunnelled hosts work too;
    beside it lies the trust store that Java reads.
    """
    forward = addresses(config).get("forward")
    if forward is None:
        return {}
    url = f"http://headrace:{key}@{forward.for_clients}"
    direct = _direct_hosts(config)
    variables = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), url)
    variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(direct))
    variables |= dict.fromkeys(_BUNDLE_VARIABLES, str(bundle))
    variables["NODE_USE_ENV_PROXY"] = "1"
    variables["JAVA_TOOL_OPTIONS"] = _java_options(forward, key, bundle, direct)
    return variables


def _java_options(forward: Address, key: str, bundle: Path, direct: list[str]) -> str:
    """Return the options of every Java program: ours behind those that the environment holds."""
    host, _, port = forward.for_clients.rpartition(":")
    options = [
        *(f"-D{scheme}.proxyHost={host.strip('[]')}" for scheme in ("https", "http")),
        *(f"-D{scheme}.proxyPort={port}" for scheme in ("https", "http")),
        f"-Dhttp.nonProxyHosts={'|'.join(direct)}",
        "-Dhttps.proxyUser=headrace",
        f"-Dhttps.proxyPassword={key}",
        "-Djdk.http.auth.tunneling.disabledSchemes=",
        f"-Djavax.net.ssl.trustStore={bundle.with_suffix('.p12')}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD}",
    ]
    ours = {option.partition("=")[0] for option in options}
    already = os.environ.get("JAVA_TOOL_OPTIONS", "").split()
    kept = [option for option in already if option.partition("=")[0] not in ours]
    return " ".join([*kept, *options])


def _direct_hosts(config: GatewayConfig) -> list[str]:
    """Return what goes past the proxy: this machine, but for what a route leads to there, and
    whatever the environment excepts already."""
    routed = {
        Upstream.parse(choice.url).host for route in config.routes for choice in route.choices
    }
    already = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    names = [name for name in LOOPBACK_HOSTS if not routed.intersection(LOOPBACK_HOSTS)]
    return list(dict.fromkeys([*names, *filter(None, map(str.strip, already.split(",")))]))
