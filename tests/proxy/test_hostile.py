"""Requests that mean harm, or nothing at all: refused as the gateway refuses, or harmless upstream."""

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.proxy.gateway_process import LISTENER, GatewayProcess
from tests.support.tls import Tls
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def gateway(
    upstream: Upstream, secure: Upstream, tls: Tls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    credential = {"env": "PROVIDER_KEY"}
    settings: dict[str, object] = {
        "routes": [
            {"name": "up", "upstream": upstream.url, "credential": credential},
            {"name": "own", "upstream": upstream.url},
            {"name": "deep", "upstream": f"{upstream.url}/base", "credential": credential},
            {"name": "shop", "model": "shop", "credential": credential},
            {"name": "secure", "upstream": secure.url, "credential": credential},
            {
                "name": "numbered",
                "upstream": f"https://127.0.0.1:{secure.port}",
                "credential": credential,
            },
        ],
        "upstream_ca": str(tls.roots),
        "capture": False,
    }
    home = tmp_path_factory.mktemp("hostile")
    served = {"label": "shop@0001", "url": f"{upstream.url}/served"}
    (home / "serving.json").write_text(json.dumps({"models": {"shop": {"live": served}}}))
    settings["serving"] = str(home / "serving.json")
    with GatewayProcess(home, settings, {"PROVIDER_KEY": "sk-provider"}) as running:
        yield running


def answer(connection: socket.socket, raw: bytes) -> bytes:
    """Say something; return the head and as much of the body as came with it."""
    connection.settimeout(60)
    with suppress(ConnectionError):  # it may be refused before it has been sent whole
        connection.sendall(raw)
    got = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in got and (part := connection.recv(65536)):
            got += part
    return got


def ask(gateway: GatewayProcess, head: str, body: bytes = b"") -> bytes:
    """Send a request's head as it stands, with the client key."""
    port = int(gateway.url.rpartition(":")[2])
    raw = head.replace("\n", "\r\n") + f"Authorization: Bearer {gateway.key}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        return answer(connection, raw.encode("latin-1") + body)


def intercepted(gateway: GatewayProcess, target: str, name: str | None, head: str) -> bytes:
    """Ask through the intercepting proxy, with a greeting of our own."""
    context = ssl.create_default_context(cafile=gateway.bundle)
    context.check_hostname = name is not None
    with socket.create_connection(("127.0.0.1", gateway.forward_port), 60) as plain:
        connect = f"CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Bearer {gateway.key}\r\n\r\n"
        assert b" 200 " in answer(plain, connect.encode())
        with context.wrap_socket(plain, server_hostname=name) as connection:
            return answer(connection, (head.replace("\n", "\r\n") + "\r\n").encode())


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param("Content-Length: 5\nContent-Length: 6\n", id="two-lengths"),
        pytest.param("Content-Length: 5, 5\n", id="lengths-in-one"),
        pytest.param("Content-Length: +5\n", id="length-with-sign"),
        pytest.param("Content-Length: 5\nTransfer-Encoding: chunked\n", id="length-and-chunks"),
        pytest.param("Transfer-Encoding: chunked, identity\n", id="not-chunked-last"),
        pytest.param("Transfer-Encoding : chunked\n", id="space-before-colon"),
        pytest.param("nonsense\n", id="no-colon"),
        pytest.param(": x\n", id="no-name"),
        pytest.param("X-A: 1\n Transfer-Encoding: chunked\n", id="folded"),
        pytest.param("X-A: 1\rTransfer-Encoding: chunked\n", id="lone-return"),
        pytest.param("X-A: 1\x002\n", id="nul"),
        pytest.param("X-A: 1\x0b2\n", id="control-character"),
        pytest.param("Transfer-Encoding: \x0bchunked\n", id="tab-before-chunked"),
        pytest.param("Transfer-Encoding: gzip, chunked\n", id="coded-chunks"),
        pytest.param("Transfer-Encoding: chunked, chunked\n", id="chunked-twice"),
        pytest.param("Transfer-Encoding:\n", id="no-encoding"),
        pytest.param("Content-Length: \x0c5\n", id="feed-before-length"),
    ],
)
def test_ambiguous_heads_are_refused_in_our_own_words(
    gateway: GatewayProcess, upstream: Upstream, lines: str
) -> None:
    before = len(upstream.seen)
    got = ask(gateway, f"POST /up/echo HTTP/1.1\nHost: x\n{lines}", b"hello")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b'"message": "Headrace: ' in got
    assert b"mitmproxy" not in got
    assert len(upstream.seen) == before


@pytest.mark.parametrize(
    "first",
    [
        "GET /up/a b HTTP/1.1",
        "GET /up/a\x00b HTTP/1.1",
        "GET /up/a\x1fb HTTP/1.1",
        "GET /up/a?b\x7f HTTP/1.1",
        "GET /up/echo#/x HTTP/1.1",
        "GET\x0b/up/echo HTTP/1.1",
        "GET /up/echo\tHTTP/1.1",
        "GET /up/echo HTTP/3.0",
        "PRI * HTTP/2.0\n\nSM",
    ],
)
def test_other_first_lines_are_refused(gateway: GatewayProcess, first: str) -> None:
    got = ask(gateway, f"{first}\nHost: x\n")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"mitmproxy" not in got


def test_a_tls_greeting_that_does_not_end_is_cut_off(
    gateway: GatewayProcess, secure: Upstream
) -> None:
    """Each read would look through all of it again, while every other client waits."""
    connect = (
        f"CONNECT localhost:{secure.port} HTTP/1.1\r\nProxy-Authorization: Bearer {gateway.key}"
    )
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff".ljust(16384, b"\0")
    with socket.create_connection(("127.0.0.1", gateway.forward_port), 60) as connection:
        assert b" 200 " in answer(connection, f"{connect}\r\n\r\n".encode())
        assert answer(connection, record * 128) == b""
    health = ask(gateway, "GET /headrace/v1/health HTTP/1.1\nHost: x\n")
    assert health.startswith(b"HTTP/1.1 200 ")


def test_a_head_that_does_not_end_is_named(gateway: GatewayProcess) -> None:
    got = ask(gateway, "GET /up/echo HTTP/1.1\nX-A: " + "v" * 70_000 + "\n")
    assert got.startswith(b"HTTP/1.1 431 ")
    assert b"64 KiB" in got


def test_empty_lines_before_a_request_are_skipped(gateway: GatewayProcess) -> None:
    assert ask(gateway, "\n\nGET /up/echo HTTP/1.1\nHost: x\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("GET http://evil.example/up/echo HTTP/1.1\nHost: x\n", id="absolute"),
        pytest.param("GET /up/echo HTTP/1.1\nHost: x\nHost: evil.example\n", id="two-hosts"),
        pytest.param("GET /up/echo HTTP/1.1\n", id="no-host"),
    ],
)
def test_the_upstream_alone_is_named(
    gateway: GatewayProcess, upstream: Upstream, head: str
) -> None:
    """Beside a provider's key no other host may stand: fronts would hand the key to it."""
    if LISTENER.get() == "plain":
        assert ask(gateway, head).startswith(b"HTTP/1.1 400 ")
        return
    assert ask(gateway, head).startswith(b"HTTP/1.1 200 ")
    seen = upstream.seen[-1]
    assert seen.target == "/echo"
    assert seen.header("authorization") == "Bearer sk-provider"
    hosts = [value for name, value in seen.headers if name.lower() == "host"]
    assert hosts == [f"localhost:{upstream.port}"]


@pytest.mark.parametrize(
    "path",
    [
        "/deep/../echo",
        "/deep/%2e%2E/echo",
        "/deep/.%2e/",
        "/deep/x/..",
        "/deep/x%2f..%2f..%2fadmin",
        "/deep/%2F..%2f..%2fadmin",
        "/deep/x%252f%252e%252e/admin",
        "/deep/x\\..\\..\\admin",
        "/deep/x%5C..%5c..%5cadmin",
        "/deep/x/..;y/admin",
        "/deep/x/..%00/admin",
        "/deep/x%c0%af..%c0%afadmin",
        "/s/run-7/deep/x%2f..%2fadmin",
        "/deep/s/run-7/x%2f..%2fadmin",
    ],
)
def test_no_path_leads_out_of_an_upstreams(
    gateway: GatewayProcess, upstream: Upstream, path: str
) -> None:
    before = len(upstream.seen)
    assert ask(gateway, f"GET {path} HTTP/1.1\nHost: x\n").startswith(b"HTTP/1.1 404 ")
    assert len(upstream.seen) == before
    ask(gateway, "GET /deep/..x/%2e/a..b?q=/../ HTTP/1.1\nHost: x\n")
    assert upstream.seen[-1].target == "/base/..x/%2e/a..b?q=/../"


def test_no_path_leads_out_of_a_served_versions(
    gateway: GatewayProcess, upstream: Upstream
) -> None:
    deadline = time.monotonic() + 60
    while b" 503 " in ask(gateway, "GET /shop/echo HTTP/1.1\nHost: x\n"):
        assert time.monotonic() < deadline
    seen = upstream.seen[-1]
    assert (seen.target, seen.header("authorization")) == ("/served/echo", "Bearer sk-provider")
    before = len(upstream.seen)
    for path in ("/shop/../echo", "/shop/x%2f..%2f..%2fecho"):
        assert ask(gateway, f"GET {path} HTTP/1.1\nHost: x\n").startswith(b"HTTP/1.1 404 ")
    assert len(upstream.seen) == before


def test_the_key_goes_only_to_the_host_that_has_proved_its_name(
    gateway: GatewayProcess, secure: Upstream
) -> None:
    target = f"localhost:{secure.port}"
    for head in (
        f"GET /echo HTTP/1.1\nHost: {target}\n",
        "GET /echo HTTP/1.1\nHost: evil.example\n",
        "GET https://evil.example/echo HTTP/1.1\nHost: evil.example\n",
    ):
        got = intercepted(gateway, target, "localhost", head)
        assert got.startswith(b"HTTP/1.1 200 ")
        seen = secure.seen[-1]
        assert seen.target == "/echo"
        assert (seen.header("host"), seen.header("authorization")) == (
            target,
            "Bearer sk-provider",
        )
    numbered = f"127.0.0.1:{secure.port}"
    for name, given in ((None, "Bearer sk-provider"), ("localhost", None)):
        got = intercepted(gateway, numbered, name, f"GET /echo HTTP/1.1\nHost: {numbered}\n")
        assert got.startswith(b"HTTP/1.1 200 ")
        assert secure.seen[-1].header("authorization") == given


def test_a_client_key_goes_no_further_whichever_one_let_the_request_in(
    gateway: GatewayProcess, upstream: Upstream
) -> None:
    """A route without a credential passes on what the client sends, but never a key of ours."""
    key = gateway.key
    head = (
        f"GET /own/echo?a=1&key={key}&b=2 HTTP/1.1\nHost: x\nX-Headrace-Key: {key}\n"
        f"X-API-Key: {key}\nX-Forwarded-Authorization: Bearer {key}\nX-Kept: hr_\n"
        f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{key}, v1\n"
    )
    assert ask(gateway, head).startswith(b"HTTP/1.1 200 ")
    seen = upstream.seen[-1]
    assert seen.target == "/echo?a=1&b=2"
    assert seen.header("sec-websocket-protocol") == "realtime, v1"
    assert [name for name, _ in seen.headers] == ["Host", "X-Kept", "Sec-WebSocket-Protocol"]
    for pair in (f"{key}:", f"user:{key}"):
        coded = base64.b64encode(pair.encode()).decode()
        for value in (f"Basic {coded}", f"basic  {coded.rstrip('=')}"):
            ask(
                gateway,
                f"GET /own/echo HTTP/1.1\nHost: x\nX-Headrace-Key: {key}\nX-Proxied: {value}\n",
            )
            assert upstream.seen[-1].header("x-proxied") is None
    ask(gateway, "GET /own/echo HTTP/1.1\nHost: x\nX-Proxied: Basic aHJfOnNlY3JldA==\n")
    assert upstream.seen[-1].header("x-proxied") == "Basic aHJfOnNlY3JldA=="
    ask(gateway, f"GET /own/echo?api%5Fkey={key[:3]}%{ord(key[3]):x}{key[4:]} HTTP/1.1\nHost: x\n")
    assert upstream.seen[-1].target == "/echo"
    twice = "".join(f"%25{ord(each):02x}" for each in key)
    ask(
        gateway, f"GET /own/echo?a=1&b={twice} HTTP/1.1\nHost: x\nX-{key}: 1\nX-Headrace-{key}: 1\n"
    )
    assert upstream.seen[-1].target == "/echo?a=1"
    assert [name for name, _ in upstream.seen[-1].headers] == ["Host"]


@pytest.mark.parametrize(
    "path",
    [
        "/own/{key}/echo",
        "/s/{key}/own/echo",
        "/own/s/{key}/echo",
        "/own/{odd}",
        "/own/{twice}",
        "/none/{key}",
    ],
)
def test_a_client_key_in_a_path_is_refused(
    gateway: GatewayProcess, upstream: Upstream, path: str
) -> None:
    before = len(upstream.seen)
    odd = gateway.key.replace("_", "%5f")
    path = path.format(key=gateway.key, odd=odd, twice=odd.replace("%", "%25"))
    assert ask(gateway, f"GET {path} HTTP/1.1\nHost: x\n").startswith(b"HTTP/1.1 404 ")
    assert len(upstream.seen) == before


@pytest.mark.parametrize(
    ("route", "passed"),
    [
        ("up", [b"X-Amz-Checksum-Crc32: AAAA"]),
        ("own", [b"Authorization: Bearer sk-own", b"X-Amz-Checksum-Crc32: AAAA", b"X-Any: y"]),
    ],
)
def test_beside_a_routes_key_no_trailers_pass_but_checksums(
    gateway: GatewayProcess, upstream: Upstream, route: str, passed: list[bytes]
) -> None:
    # llhttp reads no request whose trailers speak of its length.
    length = "" if LISTENER.get() == "plain" else "Content-Length: 3\n"
    trailers = (
        "Authorization: Bearer sk-own\nX-Amz-Checksum-Crc32: AAAA\nX-Any: y\nHost: evil.example\n"
        f"{length}X-Headrace-Key: {gateway.key}\nX-Other: Bearer {gateway.key}\n"
    ).replace("\n", "\r\n")
    for name in ("echo", "v1/chat/completions"):
        body = b'{"messages": []}'
        chunks = b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, trailers.encode())
        head = f"POST /{route}/{name} HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n"
        assert ask(gateway, head, chunks).startswith(b"HTTP/1.1 200 ")
        assert upstream.seen[-1].body == body
        assert upstream.seen[-1].trailers == passed


@pytest.mark.parametrize("offer", ["h2c", "H2C", "websocket, h2c", "h2c;x=1"])
def test_no_upstream_is_asked_to_speak_http2_past_the_gateway(
    gateway: GatewayProcess, upstream: Upstream, offer: str
) -> None:
    lines = f"Connection: Upgrade, HTTP2-Settings\nUpgrade: {offer}\nHTTP2-Settings: AAMAAABk\n"
    assert ask(gateway, f"GET /up/echo HTTP/1.1\nHost: x\n{lines}").startswith(b"HTTP/1.1 200 ")
    assert upstream.seen[-1].header("upgrade") is None
    assert upstream.seen[-1].header("http2-settings") is None
