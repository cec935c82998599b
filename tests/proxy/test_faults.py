"""Faults: what breaks off is captured as what it was, and the client sees what it would have seen."""

import contextlib
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, chunk, plain, stream
from trajectory.exchange import Exchange, ExchangeOutcome

OK = ExchangeOutcome.COMPLETE
UP = ExchangeOutcome.UPSTREAM_ABORT
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
BIG = 8 * 1024 * 1024


def faults(request: ReceivedRequest) -> Reply:
    """Answer as the path's last word says."""
    word = request.target.partition("?")[0].rpartition("/")[2]
    match word:
        case "cut-length":
            return Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"], close=True)
        case "cut-chunked":
            return Reply([CHUNKED + chunk(b"data: 1\n\n")], close=True)
        case "reset-chunked":
            return Reply([CHUNKED + chunk(b"data: 1\n\n"), 0.05], abort=True)
        case "cut-before-head":
            return Reply([b"HTTP/1.1 20"], close=True)
        case "close-at-once":
            return Reply([], close=True)
        case "reset-at-once":
            return Reply([], abort=True)
        case "garbage":
            return Reply([b"this is not HTTP: top-secret\r\n\r\n"], close=True)
        case "bad-chunk":
            return Reply([CHUNKED + b"zz\r\nnope\r\n"], close=True)
        case "until-close":
            return Reply([b"HTTP/1.1 200 OK\r\n\r\nall of it"], close=True)
        case "continue-first":
            head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            return Reply([head, 0.02, *plain(200, b"final").pieces])
        case "trailers":
            return Reply([CHUNKED + chunk(b"data: 1\n\n") + b"0\r\nX-Checksum: abc\r\n\r\n"])
        case "no-content":
            return Reply([b"HTTP/1.1 204 No Content\r\n\r\n"])
        case "not-modified":
            return Reply([b"HTTP/1.1 304 Not Modified\r\n\r\n"])
        case "empty":
            return plain(200, b"")
        case "head":
            return Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"])
        case "error-500":
            return as_json({"error": {"message": "boom"}}, 500)
        case "error-529":
            return as_json({"type": "error", "error": {"type": "overloaded_error"}}, 529)
        case "rate-429":
            return as_json({"error": {}}, 429, ("Retry-After", "7"))
        case "big":
            return plain(200, b"x" * BIG)
        case "big-stream":
            return stream([b"y" * 60_000] * 100, kind="application/octet-stream")
        case "slow-stream":
            return stream([b"data: 1\n\n", b"data: 2\n\n"] * 50, pause=0.05)
        case "no-close-header":
            reply = plain(200, b"ok", ("Connection", "close"))
            return Reply(reply.pieces, close=True)
        case "gzip-broken":
            return plain(200, b"\x1f\x8b\x08broken", ("Content-Encoding", "gzip"))
        case "silent":
            return Reply([], listen=True)
    return plain(200, request.body or b"ok")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(faults) as server:
        yield server


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="fast"),
        pytest.param(False, id="stock", marks=pytest.mark.slow),
    ],
)
def gateway(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    routes = [
        {"name": "up", "upstream": upstream.url},
        {"name": "dead", "upstream": "http://127.0.0.1:9"},
        {"name": "deadmessages", "upstream": "http://127.0.0.1:9", "shape": "anthropic"},
    ]
    settings = {"routes": routes, "fastpath": request.param}
    with GatewayProcess(tmp_path_factory.mktemp("faults"), settings) as running:
        yield running


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {gateway.key}", "accept-encoding": "identity"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("word", "status", "body", "outcome"),
    [
        ("until-close", 200, b"all of it", OK),
        ("continue-first", 200, b"final", OK),
        ("trailers", 200, b"data: 1\n\n", OK),
        ("no-content", 204, b"", OK),
        ("not-modified", 304, b"", OK),
        ("empty", 200, b"", OK),
        ("error-500", 500, b'{"error": {"message": "boom"}}', OK),
        ("error-529", 529, b'{"type": "error", "error": {"type": "overloaded_error"}}', OK),
        ("rate-429", 429, b'{"error": {}}', OK),
        ("big", 200, b"x" * BIG, OK),
        ("big-stream", 200, b"y" * 6_000_000, OK),
        ("no-close-header", 200, b"ok", OK),
    ],
)
def test_what_the_upstream_finishes_is_complete(
    gateway: GatewayProcess,
    client: httpx.Client,
    word: str,
    status: int,
    body: bytes,
    outcome: ExchangeOutcome,
) -> None:
    response = client.get(f"/up/{word}")
    assert (response.status_code, response.content) == (status, body)
    exchange = gateway.exchange()
    assert exchange.outcome is outcome
    assert exchange.response is not None
    assert (exchange.response.status, exchange.response.body) == (status, body)


def test_head_and_broken_encodings_pass(gateway: GatewayProcess, client: httpx.Client) -> None:
    assert client.head("/up/head").headers["content-length"] == "1234"
    assert gateway.exchange().outcome is OK
    with client.stream("GET", "/up/gzip-broken") as response:
        assert b"".join(response.iter_raw()) == b"\x1f\x8b\x08broken"
    assert gateway.exchange().outcome is OK


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("cut-length", b"part"),
        ("cut-chunked", b"data: 1\n\n"),
        ("reset-chunked", b"data: 1\n\n"),
        ("bad-chunk", b""),
    ],
)
def test_a_response_cut_off_is_cut_off_for_the_client_too(
    gateway: GatewayProcess, client: httpx.Client, word: str, kept: bytes
) -> None:
    got = b""
    with (  # noqa: PT012
        pytest.raises(httpx.RemoteProtocolError),
        client.stream("GET", f"/up/{word}") as response,
    ):
        for part in response.iter_raw():
            got += part
    assert got == kept
    exchange = gateway.exchange()
    assert exchange.outcome is UP
    assert exchange.response is not None
    assert exchange.response.body == kept


@pytest.mark.parametrize("word", ["cut-before-head", "close-at-once", "reset-at-once", "garbage"])
def test_no_response_is_a_502_in_the_providers_shape(
    gateway: GatewayProcess, client: httpx.Client, word: str
) -> None:
    response = client.post(f"/up/{word}", json={})
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_error"
    assert "top-secret" not in response.text
    exchange = gateway.exchange()
    assert exchange.outcome is UP
    assert exchange.response is None
    assert exchange.request.body == b"{}"


def test_an_upstream_that_is_down_is_a_502(gateway: GatewayProcess, client: httpx.Client) -> None:
    response = client.post("/dead/v1/chat/completions", json={})
    assert response.status_code == 502
    assert response.json()["error"]["type"] == "server_error"
    response = client.post("/deadmessages/v1/x", json={})
    assert response.status_code == 502
    told = response.json()
    assert told.pop("error").pop("message").startswith("Headrace: the upstream did not answer;")
    assert told == {"type": "error"}
    logged = gateway.log.read_text()
    assert logged.count("upstream 127.0.0.1:9 of dead, deadmessages cannot be reached: ") == 1
    first, second = gateway.exchanges(2)
    assert first.outcome is UP
    assert second.outcome is UP


def test_an_upstream_that_does_not_accept_ends_after_the_connect_time(tmp_path: Path) -> None:
    with socket.socket() as deaf, contextlib.ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        settings = {"routes": [{"name": "deaf", "upstream": url}], "connect_seconds": 0.3}
        with GatewayProcess(tmp_path, settings) as gateway:
            start = time.monotonic()
            headers = {"authorization": f"Bearer {gateway.key}"}
            response = httpx.post(f"{gateway.url}/deaf/v1", json={}, headers=headers, timeout=60)
            assert response.status_code == 502
            assert time.monotonic() - start > 0.2
            assert gateway.exchange().outcome is UP


@pytest.mark.parametrize("word", ["slow-stream", "silent", "big"])
def test_a_client_that_hangs_up_leaves_a_partial_exchange(
    gateway: GatewayProcess, upstream: Upstream, word: str
) -> None:
    port = int(gateway.url.rpartition(":")[2])
    before = upstream.broken
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(
            f"GET /up/{word} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n\r\n".encode()
        )
        if word != "silent":
            while b"\r\n\r\n" not in connection.recv(1024):
                pass
        time.sleep(0.2)
    exchange = gateway.exchange()
    if word == "big":
        assert exchange.outcome in (ExchangeOutcome.CLIENT_ABORT, OK)
    else:
        assert exchange.outcome is ExchangeOutcome.CLIENT_ABORT
        assert (exchange.response is None) == (word == "silent")
    if word == "slow-stream":
        deadline = time.monotonic() + 30
        while upstream.broken == before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert upstream.broken > before


def test_a_client_that_hangs_up_while_sending(gateway: GatewayProcess) -> None:
    port = int(gateway.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(
            f"POST /up/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
            "Content-Length: 1000\r\n\r\nhalf".encode()
        )
        time.sleep(0.2)
    exchange = gateway.exchange()
    assert exchange.outcome is ExchangeOutcome.CLIENT_ABORT
    assert exchange.request.body == b"half"


def test_expect_continue(gateway: GatewayProcess) -> None:
    port = int(gateway.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(
            f"POST /up/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
            "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n".encode()
        )
        assert connection.recv(1024).startswith(b"HTTP/1.1 100")
        connection.sendall(b"body")
        answer = b""
        while not answer.endswith(b"\r\n\r\nbody"):
            answer += connection.recv(1024)
    assert gateway.exchange().request.body == b"body"


def test_a_keep_alive_connection_carries_many_calls(
    gateway: GatewayProcess, client: httpx.Client, upstream: Upstream
) -> None:
    before = upstream.connections
    for number in range(20):
        assert client.post("/up/echo", content=b"%d" % number).content == b"%d" % number
    assert upstream.connections - before <= 1
    assert [e.request.body for e in gateway.exchanges(20)] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_finishes_streams_in_flight(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal that closes sends SIGHUP, and so does who wants its settings read again."""
    go_on = threading.Event()
    script = stream([b"data: 1\n\n", b"data: 2\n\n"], pause=go_on)
    with Upstream(lambda _: script) as upstream:
        routes = [{"name": "up", "upstream": upstream.url}]
        with GatewayProcess(tmp_path, {"routes": routes, "drain_seconds": 60}) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            url = f"{gateway.url}/up/stream"
            with httpx.stream("GET", url, headers=headers, timeout=60) as response:
                parts = response.iter_raw()
                assert next(parts) == b"data: 1\n\n"
                gateway.tell(number)
                while listens(gateway):
                    time.sleep(0.02)
                assert gateway.runs
                go_on.set()
                assert b"".join(parts) == b"data: 2\n\n"
            assert gateway.wait() == 0
            assert gateway.exchange().outcome is OK


def listens(gateway: GatewayProcess) -> bool:
    """Tell whether new connections are taken."""
    try:
        httpx.get(f"{gateway.url}/headrace/v1/health")
    except httpx.TransportError:
        return False
    return True


def _load(gateway: GatewayProcess, seen: list[bytes], stop: threading.Event) -> None:
    """Call until stopped; note each body that came back, with how far streams came."""
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as client:
        while not stop.is_set():
            name = os.urandom(8).hex().encode()
            try:
                answer = client.post("/up/echo", content=name)
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                seen.append(answer.content)


def _read_stream(gateway: GatewayProcess, got: bytearray) -> None:
    """Read one long stream; note each byte that came."""
    headers = {"authorization": f"Bearer {gateway.key}"}
    with (
        contextlib.suppress(httpx.HTTPError),
        httpx.stream("GET", f"{gateway.url}/up/slow-stream", headers=headers) as response,
    ):
        for part in response.iter_raw():
            got += part


def kill_and_compare(upstream: Upstream, home: Path, pause: float, *, at_least: int = 0) -> None:
    """Kill a loaded gateway; check that all bodies that clients received are in the spool.

    It is killed after a pause, and not before clients have received ``at_least`` answers.
    """
    routes = [{"name": "up", "upstream": upstream.url}]
    with GatewayProcess(
        home, {"routes": routes, "forward_port": None, "admin_port": None}
    ) as gateway:
        seen: list[bytes] = []
        got = bytearray()
        stop = threading.Event()
        threads = [threading.Thread(target=_load, args=(gateway, seen, stop)) for _ in range(4)]
        threads.append(threading.Thread(target=_read_stream, args=(gateway, got)))
        for thread in threads:
            thread.start()
        time.sleep(pause)
        deadline = time.monotonic() + 60
        while len(seen) < at_least:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        gateway.stop(signal.SIGKILL)
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        records = gateway.records(10**6, seconds=0.3)
        bodies = {
            e.response.body for e in records if isinstance(e, Exchange) and e.response is not None
        }
        assert set(seen) <= bodies
        lost = [
            e.response.body
            for e in records
            if isinstance(e, Exchange)
            and e.response is not None
            and e.outcome is ExchangeOutcome.LOST_END
        ]
        assert not got or any(body.startswith(bytes(got)) for body in lost)
        ids = [e.exchange_id for e in records if isinstance(e, Exchange)]
        assert len(ids) == len(set(ids))


def test_kill_9_after_the_head_of_an_answer_keeps_the_call(
    upstream: Upstream, tmp_path: Path
) -> None:
    routes = [{"name": "up", "upstream": upstream.url}]
    with GatewayProcess(
        tmp_path, {"routes": routes, "forward_port": None, "admin_port": None}
    ) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}"}
        with httpx.stream("GET", f"{gateway.url}/up/head", headers=headers) as answer:
            gateway.stop(signal.SIGKILL)
            assert answer.status_code == 200
        (exchange,) = gateway.records(1)
        assert isinstance(exchange, Exchange)
        assert exchange.outcome is ExchangeOutcome.LOST_END
        assert exchange.response is not None
        assert exchange.response.status == 200


def test_kill_9_loses_nothing_that_a_client_received(upstream: Upstream, tmp_path: Path) -> None:
    kill_and_compare(upstream, tmp_path, 0.3, at_least=20)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("turn", range(30))
def test_kill_9_at_random_moments(upstream: Upstream, tmp_path: Path, turn: int) -> None:
    kill_and_compare(upstream, tmp_path, secrets.SystemRandom().uniform(0.03, 1.0))


class TestFullSpool:
    """A spool without room: bodies go first, then what each route says happens; all is counted."""

    @staticmethod
    def fill(gateway: GatewayProcess, client: httpx.Client, route: str) -> httpx.Response:
        body = b"z" * 400_000
        for _ in range(4):
            client.post(f"/{route}/echo", content=body)
        deadline = time.monotonic() + 60
        while "spool alarm" not in gateway.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return client.post(f"/{route}/echo", content=b"more")

    @pytest.mark.parametrize("route", ["shed", "open", "closed"])
    def test_policy(self, upstream: Upstream, tmp_path: Path, route: str) -> None:
        settings = {
            "routes": [
                {"name": "shed", "upstream": upstream.url},
                {"name": "open", "upstream": upstream.url},
                {"name": "closed", "upstream": upstream.url, "without_capture": "refuse"},
            ],
            "spool": {
                "max_bytes": 2**21 if route == "shed" else 2**20,
                "shed_at": 0.5 if route == "shed" else 1.0,
                "alarm_at": 0.5,
            },
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            with httpx.Client(base_url=gateway.url, headers=headers) as client:
                response = self.fill(gateway, client, route)
                if route == "closed":
                    assert response.status_code == 503
                    assert response.json()["error"]["code"] == "overloaded"
                    assert not httpx.get(f"{gateway.admin}/ready").is_success
                else:
                    assert response.content == b"more"
                text = httpx.get(f"{gateway.admin}/metrics").text
            kept = [e for e in gateway.records(10, seconds=0.3) if isinstance(e, Exchange)]
        assert "headrace_spool_alarm 1.0" in text
        assert "full; is the governor running?" in gateway.log.read_text()
        bare = [e for e in kept if e.capture_note == "spool-full"]
        if route == "closed":
            assert 'refusals_total{reason="spool_full"}' in text
        elif route == "shed":
            assert 'uncaptured_total{reason="spool-full"}' in text
            assert bare[-1].request.body == b""
            assert bare[-1].outcome is OK
        else:
            assert 'uncaptured_total{reason="spool-full"}' in text
            assert len(kept) < 5
