"""Refusals come at the head: nothing of the body is kept or waited for, and every client hears why."""

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress

import httpx
import psutil
import pytest

from proxy.clients.keys import KeyLimits
from tests.proxy.gateway_process import GatewayProcess
from tests.proxy.test_memory import growth
from tests.support.provider import provider
from tests.support.upstream import Upstream
from trajectory.exchange import Exchange

LARGE = b"x" * (9 * 1024 * 1024)
WRONG = {"authorization": "Bearer hr_000000000000_wrong"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(provider) as server:
        yield server


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "stock"])
def gateway(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    routes = [{"name": "up", "upstream": upstream.url}]
    settings = {"routes": routes, "fastpath": request.param}
    with GatewayProcess(tmp_path_factory.mktemp("refusals"), settings) as running:
        yield running


@contextmanager
def opened(gateway: GatewayProcess) -> Iterator[socket.socket]:
    """Connect to the base-URL port."""
    port = int(gateway.url.rpartition(":")[2])
    with closing(socket.create_connection(("127.0.0.1", port), 60)) as connection:
        yield connection


def told(connection: socket.socket) -> bytes:
    """Return one answer of the gateway's own: its head and its body."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = connection.recv(65536)
        assert part, got
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("path", "lines", "status"),
    [
        ("/up/v1/messages", "Content-Length: 8000000", b"401"),
        ("/up/v1/messages", "Content-Length: 800000000", b"401"),
        ("/up/v1/messages", "Transfer-Encoding: chunked", b"401"),
        ("/up/v1/messages", "Content-Length: 8000000\r\nExpect: 100-continue", b"401"),
        ("/nothing", "Content-Length: 8000000", b"404"),
        ("/headrace/v1/feedback", "Content-Length: 8000000", b"401"),
        ("/headrace/v1/feedback", "Transfer-Encoding: chunked", b"401"),
        ("/headrace/v1/nothing", "Content-Length: 8000000", b"404"),
        ("/headrace/v1/health", "Content-Length: 8000000", b"200"),
        ("/v1/traces", "Content-Length: 8000000", b"401"),
    ],
)
def test_the_answer_comes_before_the_body(
    gateway: GatewayProcess, upstream: Upstream, path: str, lines: str, status: bytes
) -> None:
    before = len(upstream.seen)
    with opened(gateway) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n".encode())
        assert told(connection).startswith(b"HTTP/1.1 " + status)
    assert len(upstream.seen) == before


@pytest.mark.parametrize(
    ("path", "lines", "status"),
    [
        ("/headrace/v1/feedback", "Content-Length: 8000000", b"413"),
        ("/headrace/v1/feedback", "Transfer-Encoding: chunked", b"411"),
        ("/v1/traces", "Content-Length: 80000000", b"413"),
        ("/v1/traces", "Transfer-Encoding: chunked", b"411"),
    ],
)
def test_what_the_gateways_own_api_cannot_hold_is_named(
    gateway: GatewayProcess, path: str, lines: str, status: bytes
) -> None:
    with opened(gateway) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n{lines}\r\n\r\n".encode())
        assert told(connection).startswith(b"HTTP/1.1 " + status)


def pieces() -> Iterable[bytes]:
    """A body without a length."""
    yield from [LARGE[:100_000]] * 90


@pytest.mark.parametrize("content", [b"{}", LARGE, pieces], ids=["small", "large", "chunked"])
def test_every_client_hears_why(gateway: GatewayProcess, content: object) -> None:
    limits = KeyLimits(requests_per_minute=0)
    limited = gateway.registry.create(tenant_id="acme", app_id="limited", limits=limits).secret
    time.sleep(0.6)
    for headers, status, kind in (
        (WRONG, 401, "authentication_error"),
        ({"authorization": f"Bearer {limited}"}, 429, "rate_limit_error"),
    ):
        body = content() if callable(content) else content
        answer = httpx.post(f"{gateway.url}/up/v1/messages", content=body, headers=headers)
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == kind
        assert ("retry-after" in answer.headers) is (status == 429)
    body = content() if callable(content) else content
    proxied = f"http://127.0.0.1:{gateway.forward_port}"
    with httpx.Client(proxy=proxied) as client:
        assert client.post("http://127.0.0.1:9/x", content=body).status_code == 407


def test_a_connection_outlives_a_refused_body(gateway: GatewayProcess) -> None:
    head = "POST /up/echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n"
    with opened(gateway) as connection:
        for _ in range(3):
            connection.sendall((head % (500_000, "")).encode() + LARGE[:500_000])
            assert told(connection).startswith(b"HTTP/1.1 401 ")
            key = f"Authorization: Bearer {gateway.key}\r\n"
            connection.sendall((head % (5, key)).encode() + b"hello")
            assert told(connection).endswith(b"hello")


def test_without_a_key_nothing_is_kept_in_memory(gateway: GatewayProcess) -> None:
    head = "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n"
    process = psutil.Process(gateway.pid)
    connections = []
    with growth(process) as peak:
        for number in range(30):
            port = int(gateway.url.rpartition(":")[2])
            connection = socket.create_connection(("127.0.0.1", port), 60)
            path = ("/up/x", "/headrace/v1/feedback")[number % 2]
            connection.sendall((head % path).encode() + LARGE[:8_388_000])
            connections.append(connection)
        for connection in connections:
            assert told(connection).startswith(b"HTTP/1.1 401 ")
    for connection in connections:
        connection.close()
    assert peak[0] < 60


@pytest.mark.parametrize(
    "begin", [b"5;", b"5\r\nhello\r\n0\r\nX-Trailer: "], ids=["chunk", "trailer"]
)
@pytest.mark.parametrize("known", [True, False])
def test_a_line_between_chunks_has_a_bound(
    gateway: GatewayProcess, begin: bytes, known: bool
) -> None:
    key = f"Authorization: Bearer {gateway.key}\r\n" if known else ""
    head = f"POST /up/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{key}\r\n"
    with opened(gateway) as connection, growth(psutil.Process(gateway.pid)) as peak:
        sent = 0
        with suppress(ConnectionError):
            connection.sendall(head.encode() + begin)
            for _ in range(60):
                connection.sendall(LARGE[:1_000_000])
                sent += 1
    assert sent < 60
    assert peak[0] < 40


def test_a_body_without_an_end_is_cut_off(gateway: GatewayProcess) -> None:
    with opened(gateway) as connection:
        connection.sendall(b"POST /up/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000000\r\n\r\n")
        assert b"connection: close" in told(connection).lower()
        sent = 0
        with suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(LARGE[:1_000_000])
                sent += 1
    assert sent < 1000


def test_a_look_whether_anybody_is_there_leaves_no_line(gateway: GatewayProcess) -> None:
    """Claude Code asks ``HEAD /anthropic`` without its key whenever it starts."""
    assert httpx.head(f"{gateway.url}/up").status_code == 401
    assert httpx.options(f"{gateway.url}/up").status_code == 401
    assert httpx.get(f"{gateway.url}/up/last").status_code == 401
    refused: list[tuple[str, str]] = []
    while ("GET", "/up/last") not in refused:
        records = gateway.records(1)
        assert records
        refused += [(r.request.method, r.request.path) for r in records if isinstance(r, Exchange)]
    assert {method for method, _ in refused} == {"POST", "GET"}


def test_a_refused_request_is_kept_without_any_client_key(gateway: GatewayProcess) -> None:
    odd = {"x-odd": f"see {gateway.key}", "authorization": "Bearer sk-own"}
    assert httpx.get(f"{gateway.url}/up/odd", headers=odd).status_code == 401
    found: list[Exchange] = []
    while not found:
        records = gateway.records(1)
        assert records
        found = [r for r in records if isinstance(r, Exchange) and r.request.path == "/up/odd"]
    headers = dict(found[0].request.headers)
    assert "x-odd" not in headers
    assert headers["authorization"].startswith("fp:")


def test_nothing_is_kept_of_a_refused_path_that_holds_a_client_key(gateway: GatewayProcess) -> None:
    assert httpx.get(f"{gateway.url}/up/{gateway.key}").status_code == 404
    with httpx.Client(proxy=f"http://127.0.0.1:{gateway.forward_port}") as client:
        assert client.get(f"http://127.0.0.1:9/{gateway.key}").status_code == 404
    assert httpx.get(f"{gateway.url}/up/afterwards").status_code == 401
    paths: list[str] = []
    while "/up/afterwards" not in paths:
        records = gateway.records(1)
        assert records
        paths += [r.request.path for r in records if isinstance(r, Exchange)]
    assert gateway.key not in str(paths)


def test_no_header_of_our_own_keeps_a_client_key(gateway: GatewayProcess) -> None:
    named = {"x-headrace-session": gateway.key, "x-headrace-user": f"by {gateway.key}"}
    known = {"x-headrace-key": gateway.key, "x-headrace-task": "t-1"}
    assert httpx.get(f"{gateway.url}/up/echo?named", headers=named | known).status_code == 200
    found: list[Exchange] = []
    while not found:
        records = gateway.records(1)
        assert records
        found = [r for r in records if isinstance(r, Exchange) and r.request.query == "named"]
    headers = dict(found[0].request.headers)
    assert headers["x-headrace-task"] == "t-1"
    assert gateway.key not in str(headers)
