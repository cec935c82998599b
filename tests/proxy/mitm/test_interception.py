"""Which connections are opened: told from CONNECT or from the TLS greeting, all else tunnelled."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config import GatewayConfig
from proxy.routes.router import Router
from proxy.telemetry.counters import Counters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy.proxy import layers
    from mitmproxy.proxy.layers.http import HttpStream
    from mitmproxy.proxy.mode_specs import ProxyMode

    from proxy.mitm.interception import Interception, Tunnels

HOSTS = {"intercept_hosts": ["api.example", "*.shop.example:8443"]}


def tunnels() -> tuple[Tunnels, Counters]:
    counters = Counters()
    router = Router(GatewayConfig.model_validate(HOSTS))
    return Tunnels(router, counters, lambda _: False), counters


def context(mode: str, address: tuple[str, int], *, sni: str | None = None) -> Any:
    client = SimpleNamespace(proxy_mode=ProxyMode.parse(mode), sni=sni)
    return SimpleNamespace(
        client=client,
        server=SimpleNamespace(address=address),
        layers=[HttpStream.__new__(HttpStream)],
        options=None,
        fork=lambda: None,
    )


@pytest.mark.parametrize(
    ("host", "port", "opened"),
    [
        ("api.example", 443, True),
        ("API.example.", 443, True),
        ("not-api.example", 443, False),
        ("api.example.evil", 443, False),
        ("a.shop.example", 8443, True),
        ("a.shop.example", 443, False),
        ("shop.example", 8443, False),
    ],
)
def test_a_tunnel_is_opened_by_its_whole_name(host: str, port: int, opened: bool) -> None:
    decides, counters = tunnels()
    choice = SimpleNamespace(context=context("regular", (host, port)), layer=None)
    decides.next_layer(choice)  # type: ignore[arg-type]
    assert (choice.layer is None) is opened
    if not opened:
        assert isinstance(choice.layer, layers.TCPLayer)
    assert counters.tunnels == (0 if opened else 1)


@pytest.mark.parametrize(
    ("sni", "opened"), [("api.example", True), ("other.example", False), (None, False)]
)
def test_a_redirected_connection_is_opened_by_the_greeting(sni: str | None, opened: bool) -> None:
    decides, counters = tunnels()
    hello = SimpleNamespace(
        context=context("transparent", ("192.0.2.7", 443)),
        client_hello=SimpleNamespace(sni=sni),
        ignore_connection=False,
    )
    decides.tls_clienthello(hello)  # type: ignore[arg-type]
    assert hello.ignore_connection is not opened
    assert counters.tunnels == (0 if opened else 1)
    names = [host for host, _ in counters.inventory.entries]
    assert names == ([] if opened else [sni or "192.0.2.7"])


def test_the_base_url_gateway_decides_nothing_here() -> None:
    decides, counters = tunnels()
    choice = SimpleNamespace(
        context=context("reverse:http://x:80", ("other.example", 443)), layer=None
    )
    decides.next_layer(choice)  # type: ignore[arg-type]
    hello = SimpleNamespace(context=choice.context, client_hello=None, ignore_connection=False)
    decides.tls_clienthello(hello)  # type: ignore[arg-type]
    assert choice.layer is None
    assert not hello.ignore_connection
    assert counters.tunnels == 0


def test_failed_handshakes_are_counted_by_sound_names_and_bounded() -> None:
    counters = Counters()
    guard = Interception(None, counters, http2=False)
    for number in range(300):
        told = context("regular", ("x", 1), sni=f"host{number}.example")
        guard.tls_failed_client(SimpleNamespace(context=told))  # type: ignore[arg-type]
    guard.tls_failed_client(SimpleNamespace(context=context("regular", ("x", 1), sni='"}\n')))  # type: ignore[arg-type]
    assert len(counters.tls_failures) == 201
    assert counters.tls_failures["others"] == 101
    assert not any('"' in name for name in counters.tls_failures)
