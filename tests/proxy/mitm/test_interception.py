"""Which connections are opened: told from CONNECT or from the TLS greeting, all else tunnelled."""

import ssl
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config import GatewayConfig
from proxy.routes.router import Router
from proxy.telemetry.counters import Counters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy.connection import ConnectionState
    from mitmproxy.options import Options
    from mitmproxy.proxy import commands, events, layers
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import NextLayer, NextLayerHook
    from mitmproxy.proxy.layers.http import HttpStream
    from mitmproxy.proxy.layers.tls import TlsClienthelloHook
    from mitmproxy.proxy.mode_specs import ProxyMode
    from mitmproxy.test import tflow

    from proxy.mitm import interception
    from proxy.mitm.interception import Interception, RawConnections, Tunnels

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


def greeting(name: str) -> bytes:
    """Return what a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


class Connections:
    """A client's connection and its server's, with the hooks answered as the gateway does."""

    def __init__(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended, self.now = False, 100.0
        monkeypatch.setattr(interception, "time", SimpleNamespace(monotonic=lambda: self.now))
        client = tflow.tclient_conn()
        client.proxy_mode = ProxyMode.parse(mode)
        client.state, client.tls = ConnectionState.OPEN, False
        self.context = Context(client, Options())
        self.context.server.address = ("192.0.2.7", 443)
        router = Router(GatewayConfig.model_validate(HOSTS))
        self.tunnels = Tunnels(router, Counters(), lambda _: self.ended)
        self.raw = RawConnections(lambda _: self.ended)
        self.next = NextLayer(self.context)
        self.sent: list[tuple[str, bytes]] = []
        self.closed: list[str] = []
        self._tell(events.Start())

    def says(self, data: bytes, *, server: bool = False) -> None:
        side = self.context.server if server else self.context.client
        self._tell(events.DataReceived(side, data))

    def _tell(self, event: events.Event) -> None:
        waiting = [event]
        while waiting:
            for command in self.next.handle_event(waiting.pop(0)):
                waiting += self._done(command)

    def _done(self, command: commands.Command) -> list[events.Event]:
        if isinstance(command, commands.SendData):
            self.sent.append((self._side(command.connection), command.data))
        elif isinstance(command, commands.CloseConnection):
            self.closed.append(self._side(command.connection))
        elif isinstance(command, commands.OpenConnection):
            command.connection.state = ConnectionState.OPEN
            command.connection.timestamp_start = 1.0
            return [events.OpenConnectionCompleted(command, None)]
        elif isinstance(command, NextLayerHook):
            self._choose(command.data)
            return [events.HookCompleted(command)]
        elif isinstance(command, TlsClienthelloHook):
            self.tunnels.tls_clienthello(command.data)
            return [events.HookCompleted(command)]
        return []

    def _choose(self, nextlayer: NextLayer) -> None:
        self.tunnels.next_layer(nextlayer)
        if nextlayer.layer is None:  # neither TLS nor HTTP, for stock code
            nextlayer.layer = layers.TCPLayer(self.context)
        self.raw.next_layer(nextlayer)

    def _side(self, one: object) -> str:
        return "client" if one is self.context.client else "server"


@pytest.mark.parametrize("first", [greeting("other.example"), b"\x00\x00\x00\x08\x04\xd2\x16\x2f"])
def test_a_redirected_tunnel_ends_with_its_key(
    first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunnel = Connections("transparent", monkeypatch)
    tunnel.says(first[:2])
    tunnel.says(first[2:])
    tunnel.says(b"hello", server=True)
    assert b"".join(data for side, data in tunnel.sent if side == "server") == first
    assert tunnel.sent[-1] == ("client", b"hello")
    tunnel.ended = True
    tunnel.now += 0.4  # keys are looked at twice a second
    tunnel.says(b"more")
    assert (tunnel.sent[-1], tunnel.closed) == (("server", b"more"), [])
    tunnel.now += 0.1
    tunnel.says(b"no more", server=True)
    assert tunnel.sent[-1] == ("server", b"more")
    assert sorted(tunnel.closed) == ["client", "server"]


def test_without_a_standing_key_nothing_of_a_redirected_tunnel_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tunnel = Connections("transparent", monkeypatch)
    tunnel.ended = True
    tunnel.says(greeting("other.example"))
    assert tunnel.sent == []
    assert sorted(tunnel.closed) == ["client", "server"]
