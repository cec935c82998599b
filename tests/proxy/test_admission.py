"""Admission's finer points: opt-out, durable routes, WebSocket."""

import base64
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proxy.clients.keys import KeyRegistry
from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, plain, stream
from trajectory.dialects.websocket import read_messages
from trajectory.exchange import Exchange, ExchangeOutcome
from trajectory.files import replace_file

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def answers(request: ReceivedRequest) -> Reply:
    """Echo, stream, or greet over a WebSocket and close it."""
    if request.target == "/ws":
        key = (request.header("sec-websocket-key") or "").encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324 - RFC 6455
        head = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        frames = b"".join(b"\x81\x05hell%d" % number for number in range(3)) + b"\x88\x02\x03\xe8"
        return Reply([head, 0.05, frames, 0.3], close=True)
    if request.target == "/stream":
        return stream([b"data: 1\n\n", b"data: 2\n\n"])
    return plain(200, request.body)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with Upstream(answers) as upstream:
        routes = [
            {"name": "up", "upstream": upstream.url},
            {"name": "safe", "upstream": upstream.url, "durability": "durable"},
            {"name": "quick", "upstream": upstream.url, "durability": "batch"},
            {"name": "kept", "upstream": upstream.url, "without_capture": "refuse"},
        ]
        with GatewayProcess(tmp_path_factory.mktemp("admission"), {"routes": routes}) as running:
            yield running


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(base_url=gateway.url, headers=headers) as client:
        yield client


def test_a_client_may_opt_out_in_two_levels(gateway: GatewayProcess, client: httpx.Client) -> None:
    bare = client.post("/up/x", content=b"private", headers={"x-headrace-capture": "metadata"})
    assert bare.content == b"private"
    exchange = gateway.exchange()
    assert exchange.capture_note == "opt-out"
    assert exchange.request.body == b""
    assert exchange.response is not None
    assert (exchange.response.status, exchange.response.body) == (200, b"")
    for name, value in (("x-headrace-capture", "none"), ("cf-aig-collect-log", "false")):
        assert client.post("/up/x", content=b"private", headers={name: value}).is_success
    assert gateway.records(1, seconds=0.2) == []
    assert 'uncaptured_total{reason="opt-out"} 3' in httpx.get(f"{gateway.admin}/metrics").text


def test_a_key_whose_tenant_no_folder_can_have_works_and_is_not_captured(
    gateway: GatewayProcess, client: httpx.Client, tmp_path: Path
) -> None:
    """Such keys were made before their names were refused; a route that must capture refuses them."""
    other = KeyRegistry.load(tmp_path / "keys.json")
    made = other.create(tenant_id="long", app_id="old")
    rows = json.loads((tmp_path / "keys.json").read_text())["keys"]
    file = gateway.home / "keys.json"
    document = json.loads(file.read_text())
    document["keys"] += [{**row, "tenant_id": "\u6f22" * 30} for row in rows]
    replace_file(file, json.dumps(document).encode())
    old = {"authorization": f"Bearer {made.secret}"}
    while not client.post("/up/x", content=b"private", headers=old).is_success:
        time.sleep(0.1)  # a running gateway sees new keys within half a second
    assert client.post("/kept/x", content=b"private", headers=old).status_code == 401
    assert client.post("/up/x", content=b"last").is_success
    kept: list[Exchange] = []
    while not kept or kept[-1].request.body != b"last":
        kept += [one for one in gateway.records() if isinstance(one, Exchange)]
    assert {one.client.tenant_id for one in kept} <= {"-", "acme"}
    assert 'uncaptured_total{reason="tenant"} 1' in httpx.get(f"{gateway.admin}/metrics").text


@pytest.mark.parametrize("method", ["TRACE", "trace", "TRACK"])
def test_no_upstream_is_asked_to_reflect_a_request_with_its_key(
    gateway: GatewayProcess, client: httpx.Client, method: str
) -> None:
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2])), 5) as raw:
        head = f"{method} /up/x HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {gateway.key}\r\n\r\n"
        raw.sendall(head.encode())
        assert raw.recv(65536).split()[1] in (b"400", b"404")
    assert client.request("TRACE", "/up/x").status_code in (400, 404)


def test_a_durable_route_answers_whole(gateway: GatewayProcess, client: httpx.Client) -> None:
    assert client.post("/safe/x", content=b"body").content == b"body"
    assert client.post("/safe/stream").content == b"data: 1\n\ndata: 2\n\n"
    whole, streamed = gateway.exchanges(2)
    for exchange in (whole, streamed):
        assert exchange.outcome is ExchangeOutcome.COMPLETE
    assert whole.response is not None
    assert whole.response.body == b"body"


def test_a_batch_route_is_captured_a_moment_later(
    gateway: GatewayProcess, client: httpx.Client
) -> None:
    for number in range(5):
        assert client.post("/quick/x", content=b"%d" % number).content == b"%d" % number
    assert client.post("/quick/stream").content == b"data: 1\n\ndata: 2\n\n"
    exchanges = gateway.exchanges(6)
    assert {e.outcome for e in exchanges} == {ExchangeOutcome.COMPLETE}
    assert [e.request.body for e in exchanges[:5]] == [b"%d" % number for number in range(5)]


def test_a_websocket_passes_and_is_captured(gateway: GatewayProcess) -> None:
    port = int(gateway.url.rpartition(":")[2])
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(
            f"GET /up/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        got = b""
        while part := connection.recv(65536):
            got += part
    assert got.startswith(b"HTTP/1.1 101")
    assert b"hell0" in got
    assert b"hell2" in got
    exchange = gateway.exchange()
    assert exchange.response is not None
    assert exchange.response.status == 101
    messages = read_messages(exchange.request.body, exchange.response.body)
    assert [message.content for message in messages] == [b"hell0", b"hell1", b"hell2"]
    assert not any(message.from_client for message in messages)
    assert [message.number for message in messages] == [0, 1, 2]


@pytest.mark.parametrize("version", ["", "Sec-WebSocket-Version: 8\r\n"])
def test_a_connection_that_becomes_something_else_ends(
    gateway: GatewayProcess, version: str
) -> None:
    port = int(gateway.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(
            f"GET /up/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\n{version}\r\n".encode()
        )
        got = b""
        while part := connection.recv(65536):
            got += part
    assert got.startswith(b"HTTP/1.1 502")
    assert b"hell" not in got
    assert gateway.exchange().outcome is ExchangeOutcome.UPSTREAM_ABORT


def test_what_no_record_can_hold_is_refused_where_capture_is_mandatory(
    gateway: GatewayProcess,
) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    head = f"/kept/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(b"M" * 70_000 + f" {head}Content-Length: 0\r\n\r\n".encode())
        # Sent on, the upstream would hang up over such a line, and the answer would be a 502.
        assert client.recv(65536).split(b" ", 2)[1] == b"431"


def test_a_path_that_is_known_opens_nothing_by_itself(
    gateway: GatewayProcess, client: httpx.Client
) -> None:
    other = gateway.registry.create(tenant_id="acme", app_id="other")
    theirs = {"authorization": f"Bearer {other.secret}"}
    for _ in range(2):
        assert client.post("/up/known", content=b"mine").content == b"mine"
        assert client.post("/up/known", headers={"authorization": "Bearer x"}).status_code == 401
    until = time.monotonic() + 30
    while not client.post("/up/known", headers=theirs).is_success:
        assert time.monotonic() < until
        time.sleep(0.05)
    gateway.registry.revoke(other.key.key_id)
    time.sleep(0.6)  # a running gateway follows within half a second
    assert client.post("/up/known", headers=theirs).status_code == 401
    assert client.post("/up/known", content=b"mine").content == b"mine"
    gateway.records(10**6, seconds=0.2)
