"""The intercepting proxy: opens configured hosts, passes everything else on undecrypted."""

import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from proxy.clients.keys import KeyRegistry
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.provider.answer import ANSWER
from tests.support.tls import Tls
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def other(tls: Tls) -> Iterator[Upstream]:
    with Upstream(provider, tls=tls.context) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(
    secure: Upstream, tls: Tls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("forward")
    settings = {
        "routes": [{"name": "openai", "upstream": secure.url}],
        "upstream_ca": str(tls.roots),
    }
    with GatewayProcess(home, settings) as running:
        yield running


def test_sdk_through_the_proxy(proxy: GatewayProcess, secure: Upstream) -> None:
    context = ssl.create_default_context(cafile=proxy.bundle)
    http_client = openai.DefaultHttpxClient(proxy=proxy.forward, verify=context)
    with openai.OpenAI(
        base_url=f"{secure.url}/v1", api_key="sk-own", http_client=http_client, max_retries=0
    ) as client:
        messages: Any = [{"role": "user", "content": "hello"}]
        deltas = client.chat.completions.create(model="m", messages=messages, stream=True)
        assert "".join(c.delta.content or "" for d in deltas for c in d.choices) == ANSWER
    assert secure.seen[-1].header("authorization") == "Bearer sk-own"
    assert secure.seen[-1].header("proxy-authorization") is None
    exchange = proxy.exchange()
    assert (exchange.route, exchange.mode) == ("openai", "forward")
    assert exchange.upstream == f"https://localhost:{secure.port}"
    assert exchange.client.app_id == "tests"
    assert dict(exchange.request.headers)["authorization"].startswith("fp:")


def test_other_hosts_are_tunnelled_undecrypted(
    proxy: GatewayProcess, other: Upstream, tls: Tls
) -> None:
    context = ssl.create_default_context(cafile=str(tls.roots))
    with httpx.Client(proxy=proxy.forward, verify=context) as client:
        response = client.post(f"{other.url}/echo", content=b"private" * 600_000)
    assert response.content == b"private" * 600_000
    assert proxy.records(1, seconds=0.2) == []
    (row,) = httpx.get(f"{proxy.admin}/inventory").json()
    assert (row["host"], row["port"], row["connections"]) == ("localhost", other.port, 1)


def test_a_client_that_does_not_trust_the_authority_is_counted_by_name(
    proxy: GatewayProcess, secure: Upstream
) -> None:
    context = ssl.create_default_context()
    with (
        httpx.Client(proxy=proxy.forward, verify=context) as client,
        pytest.raises(httpx.ConnectError),
    ):
        client.get(f"{secure.url}/echo")
    text = httpx.get(f"{proxy.admin}/metrics").text
    assert 'headrace_tls_failures_total{sni="localhost"} 1' in text


def test_plain_http_is_forwarded(proxy: GatewayProcess, upstream: Upstream) -> None:
    with httpx.Client(proxy=proxy.forward) as client:
        assert client.post(f"{upstream.url}/echo", content=b"x").content == b"x"
    assert upstream.seen[-1].target == "/echo"
    assert upstream.seen[-1].header("proxy-authorization") is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("path", ["/metrics", "/inventory"])
def test_nobody_comes_to_the_admin_port_through_the_proxy(
    proxy: GatewayProcess, host: str, path: str
) -> None:
    admin = urlsplit(proxy.admin)
    with httpx.Client(proxy=proxy.forward) as client:
        answer = client.get(f"http://{host}:{admin.port}{path}")
    assert answer.status_code in (400, 502)
    assert "headrace_" not in answer.text
    way = urlsplit(proxy.forward)
    assert way.hostname is not None
    given = base64.b64encode(f"{way.username}:{way.password}".encode()).decode()
    with socket.create_connection((way.hostname, way.port), timeout=60) as tunnel:
        head = f"CONNECT {host}:{admin.port} HTTP/1.1\r\nhost: {host}:{admin.port}\r\n"
        tunnel.sendall(f"{head}proxy-authorization: Basic {given}\r\n\r\n".encode())
        got = tunnel.recv(65536)
        with contextlib.suppress(OSError):
            tunnel.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            got += b"".join(iter(lambda: tunnel.recv(65536), b""))
    assert b"headrace_" not in got
    assert b"[" not in got
    assert httpx.get(f"{proxy.admin}{path}").status_code == 200


def test_one_key_may_stand_for_who_presents_none(
    secure: Upstream, upstream: Upstream, tls: Tls, tmp_path: Path
) -> None:
    settings = {
        "routes": [{"name": "openai", "upstream": secure.url}],
        "upstream_ca": str(tls.roots),
        "forward_key": {"file": str(tmp_path / "client.key")},
    }
    registry = KeyRegistry.load(tmp_path / "keys.json")
    created = registry.create(tenant_id="acme", app_id="java")
    (tmp_path / "client.key").write_text(created.secret)
    with GatewayProcess(tmp_path, settings) as gateway:
        context = ssl.create_default_context(cafile=gateway.bundle)
        address = f"127.0.0.1:{gateway.forward_port}"
        with httpx.Client(proxy=f"http://{address}", verify=context) as client:
            assert client.post(f"{secure.url}/echo", content=b"x").content == b"x"
        with (
            httpx.Client(proxy=f"http://headrace:hr_no_key@{address}", verify=context) as client,
            pytest.raises(httpx.ProxyError, match="407"),
        ):
            client.post(f"{secure.url}/echo", content=b"x")
        exchange = gateway.exchange()
        rotated = registry.rotate(created.key.key_id, grace_seconds=0)
        (tmp_path / "client.key").write_text(rotated.secret)
        deadline = time.monotonic() + 60
        with httpx.Client(proxy=f"http://{address}") as client:
            while client.get(f"http://localhost:{upstream.port}/echo").status_code == 407:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    assert (exchange.client.app_id, exchange.request.body) == ("java", b"x")
    assert secure.seen[-1].header("proxy-authorization") is None


def test_without_a_key_nothing_passes(proxy: GatewayProcess, secure: Upstream) -> None:
    before = secure.connections
    address = f"http://127.0.0.1:{proxy.forward_port}"
    context = ssl.create_default_context(cafile=proxy.bundle)
    with (
        httpx.Client(proxy=address, verify=context) as client,
        pytest.raises(httpx.ProxyError, match="407"),
    ):
        client.post(f"{secure.url}/echo", content=b"x")
    with httpx.Client(proxy=address) as client:
        response = client.post(f"http://localhost:{secure.port}/echo", content=b"x")
    assert response.status_code == 407
    assert secure.connections == before
    proxy.records(1)


@pytest.mark.parametrize("given", [b"Basic \xff", b"Bearer \xff", b"Basic ", b"hr_", b""])
def test_no_tunnel_opens_without_a_key(
    proxy: GatewayProcess, upstream: Upstream, given: bytes
) -> None:
    """Whatever stands where the key belongs, nothing is connected: nobody learns which ports are open."""
    before, place = upstream.connections, f"localhost:{upstream.port}".encode()
    with socket.create_connection(("127.0.0.1", proxy.forward_port), timeout=60) as client:
        head = b"CONNECT %s HTTP/1.1\r\nhost: %s\r\nproxy-authorization: %s\r\n\r\n"
        client.sendall(head % (place, place, given))
        assert client.recv(65536).startswith(b"HTTP/1.1 407 ")
    assert upstream.connections == before


def test_host_and_path_choose_the_route(
    secure: Upstream, upstream: Upstream, tls: Tls, tmp_path: Path
) -> None:
    """Routes of one host share it by their paths; beyond those no route's key goes out."""
    settings = {
        "routes": [
            {"name": "a", "upstream": f"{secure.url}/team-a", "credential": {"env": "A"}},
            {"name": "b", "upstream": f"{secure.url}/team-b", "credential": {"env": "B"}},
            {"name": "deep", "upstream": f"{secure.url}/team-b/deep", "credential": {"env": "C"}},
            {"name": "plain", "upstream": f"{upstream.url}/team-b", "credential": {"env": "B"}},
        ],
        "upstream_ca": str(tls.roots),
    }
    own = "Bearer sk-own"
    cases = [
        (secure, "/team-a/v1", "a", "Bearer key-a"),
        (secure, "/team-b/v1?x=/team-a/", "b", "Bearer key-b"),
        (secure, "/team-b", "b", "Bearer key-b"),
        (secure, "/team-b/deep/er", "deep", "Bearer key-c"),
        (secure, "/team-b/deeper", "b", "Bearer key-b"),
        (secure, "/admin/keys", "-", own),
        (secure, "/team-bb/v1", "-", own),
        (secure, "/team-b/%2e%2e/admin", "-", own),
        (secure, "/team-b/x%2f..%2f..%2fteam-a", "-", own),
        (secure, "/team-a%2fv1", "-", own),
        (upstream, "/team-b/v1", "plain", "Bearer key-b"),
        (upstream, "/admin", "-", own),
    ]
    keys = {"A": "key-a", "B": "key-b", "C": "key-c"}
    with GatewayProcess(tmp_path, settings, keys) as gateway:
        context = ssl.create_default_context(cafile=gateway.bundle)
        with httpx.Client(proxy=gateway.forward, verify=context) as client:
            for server, path, _, given in cases:
                url = httpx.URL(server.url, raw_path=path.encode())
                client.post(url, content=b"x", headers={"authorization": own})
                assert server.seen[-1].target == path
                assert server.seen[-1].header("authorization") == given, path
        kept = [exchange.route for exchange in gateway.exchanges(len(cases))]
        assert kept == [route for _, _, route, _ in cases]
