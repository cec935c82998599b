"""Official SDKs through the gateway: byte for byte what a direct call sends and gets, in both modes."""

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.calls.replay import CONFIGURED
from tests.interop.clients.drivers import BOTO_DRIVERS, HTTPX_DRIVERS, ROUTES, Driver, Wire
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.tls import Tls
from tests.support.upstream import ReceivedRequest, Upstream
from trajectory.call import CallKind
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange, ExchangeOutcome

pytestmark = pytest.mark.filterwarnings("ignore")

OWN_KEY = "sk-own"
_CREDENTIALS = {"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-headrace-key"}
_CHANGING = {"host", "x-amz-date", "amz-sdk-invocation-id", "amz-sdk-request"}
# urllib3 and undici say to a proxy what they would not say directly.
_HOP = {"connection", "proxy-connection"}
NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(provider) as server:
        yield server


@pytest.fixture(scope="module")
def secure(tls: Tls) -> Iterator[Upstream]:
    with Upstream(provider, tls=tls.context) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    routes = [{"name": name, "upstream": upstream.url} for name in ROUTES]
    with GatewayProcess(tmp_path_factory.mktemp("sdks"), {"routes": routes}) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(
    secure: Upstream, tls: Tls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    settings = {
        "routes": [{"name": "shop", "upstream": secure.url}],
        "upstream_ca": str(tls.roots),
    }
    with GatewayProcess(tmp_path_factory.mktemp("sdks-forward"), settings) as running:
        yield running


def sent(seen: list[ReceivedRequest]) -> list[Any]:
    """Return what a provider received, without what a gateway must change."""
    left_out = _CREDENTIALS | _CHANGING | _HOP
    return [
        (
            request.method,
            request.target,
            [(n, v) for n, v in request.headers if n.lower() not in left_out],
            request.body,
        )
        for request in seen
    ]


def drive(driver: Driver, wire: Wire, provider: Upstream) -> tuple[Any, list[Any], list[Any]]:
    """Return what the application saw, what the provider got and what came back."""
    provider.seen.clear()
    said = driver(wire)
    got = [(status, headers, body) for status, headers, body in wire.received]
    return said, sent(provider.seen), got


@pytest.mark.parametrize("name", [*HTTPX_DRIVERS, *BOTO_DRIVERS])
def test_at_a_base_url(name: str, gateway: GatewayProcess, upstream: Upstream) -> None:
    route, driver = {**HTTPX_DRIVERS, **BOTO_DRIVERS}[name]
    direct = drive(driver, Wire(upstream.url, OWN_KEY), upstream)
    through = drive(driver, Wire(f"{gateway.url}/{route}", gateway.key), upstream)
    assert through == direct
    assert (not direct[2]) is (name in BOTO_DRIVERS)
    assert not any(gateway.key in str(request.headers) for request in upstream.seen)
    for exchange in gateway.exchanges(len(upstream.seen)):
        assert_whole(exchange)


def assert_whole(exchange: Exchange) -> None:
    """The exchange was read to its end; some SDKs hang up at a stream's last word, before the body's end."""
    calls = read_calls(exchange, CONFIGURED)
    assert all(call.kind is not CallKind.OPAQUE for call in calls)
    if exchange.outcome is not ExchangeOutcome.COMPLETE:
        assert exchange.outcome is ExchangeOutcome.CLIENT_ABORT
        assert all(call.streamed and call.finish_reason is not None for call in calls)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HTTPX_DRIVERS, *BOTO_DRIVERS])
def test_behind_the_intercepting_proxy(
    name: str, proxy: GatewayProcess, secure: Upstream, tls: Tls
) -> None:
    _, driver = {**HTTPX_DRIVERS, **BOTO_DRIVERS}[name]
    own = ssl.create_default_context(cafile=str(tls.roots))
    theirs = ssl.create_default_context(cafile=proxy.bundle)
    direct = Wire(secure.url, OWN_KEY, verify=own, bundle=str(tls.roots))
    wire = Wire(secure.url, OWN_KEY, proxy=proxy.forward, verify=theirs, bundle=proxy.bundle)
    expected = drive(driver, direct, secure)
    assert drive(driver, wire, secure) == expected
    for request in secure.seen:
        assert request.header("proxy-authorization") is None
        if name in HTTPX_DRIVERS:
            assert OWN_KEY in str(request.headers)
    for exchange in proxy.exchanges(len(secure.seen)):
        assert exchange.mode == "forward"
        assert OWN_KEY not in str(exchange.request.headers)
        assert all(call.kind is not CallKind.OPAQUE for call in read_calls(exchange, CONFIGURED))


def test_a_refusal_is_an_error_that_each_sdk_knows(gateway: GatewayProcess) -> None:
    """Wrong keys, in the shape of each provider: typed errors, with the gateway's text."""
    import anthropic
    import openai
    from botocore.exceptions import ClientError
    from google.genai.errors import ClientError as GoogleError

    refused: dict[str, type[Exception]] = {
        "openai_chat": openai.AuthenticationError,
        "openai_responses": openai.AuthenticationError,
        "azure_chat": openai.AuthenticationError,
        "anthropic_messages": anthropic.AuthenticationError,
        "anthropic_vertex": anthropic.AuthenticationError,
        "gemini": GoogleError,
        "bedrock_converse": ClientError,
    }
    for name, error in refused.items():
        route, driver = {**HTTPX_DRIVERS, **BOTO_DRIVERS}[name]
        with pytest.raises(error, match="Headrace: missing, wrong or revoked client key") as told:
            driver(Wire(f"{gateway.url}/{route}", f"{gateway.key}x"))
        if name == "bedrock_converse":
            assert "UnrecognizedClientException" in str(told.value)
    gateway.exchanges(len(refused))


# Node.


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    folder = tmp_path_factory.mktemp("node")
    shutil.copytree(NODE, folder, dirs_exist_ok=True)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=110)
    return folder


def run_node(folder: Path, provider: Upstream, **wire: Any) -> tuple[Any, Any]:
    provider.seen.clear()
    done = subprocess.run(
        ["node", "drive.mjs", json.dumps(wire)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), sent(provider.seen)


@pytest.mark.slow
def test_node_s_sdks_in_both_modes(
    node: Path,
    gateway: GatewayProcess,
    upstream: Upstream,
    proxy: GatewayProcess,
    secure: Upstream,
    tls: Tls,
) -> None:
    own = {"openai": upstream.url, "anthropic": upstream.url}
    direct = run_node(node, upstream, url=own, key=OWN_KEY)
    urls = {name: f"{gateway.url}/{name}" for name in own}
    assert run_node(node, upstream, url=urls, key=gateway.key) == direct
    assert len(gateway.exchanges(8)) == 8
    far = dict.fromkeys(own, secure.url)
    direct = run_node(node, secure, url=far, key=OWN_KEY, ca=str(tls.roots))
    forward = run_node(node, secure, url=far, key=OWN_KEY, proxy=proxy.forward, ca=proxy.bundle)
    assert forward == direct
    assert all(
        request.header("authorization") or request.header("x-api-key") for request in secure.seen
    )
    assert {exchange.mode for exchange in proxy.exchanges(8)} == {"forward"}
