"""HTTP/2 from clients of the base URL: offered through ALPN, strict, captured, held back when not read."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import httpx
import openai
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import GO_ON, provider
from tests.support.provider.answer import ANSWER
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory.exchange import ExchangeOutcome

LARGE = 8 * 1024 * 1024


def script(request: ReceivedRequest) -> Reply:
    if request.target == "/hints":
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        return Reply([hints, *as_json({"answer": 42}).pieces])
    if request.target == "/large":
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE
        sent.clear()
        return Reply([head, *(bytes(65536) for _ in range(LARGE // 65536)), sent])
    if request.target == "/closing":
        return Reply(
            [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"], close=True
        )
    if request.target == "/fields":
        return as_json(request.headers, 200, ("Connection", "x-hop"), ("X-Hop", "1"))
    return provider(request)


sent = threading.Event()
"""Never set while a test looks: the answer's end waits for it."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(script) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    routes = [
        {"name": "openai", "upstream": upstream.url},
        {"name": "away", "upstream": nobody},
    ]
    with GatewayProcess(tmp_path_factory.mktemp("http2"), {"routes": routes}) as running:
        yield running


def secure(gateway: GatewayProcess) -> str:
    """Return the base URL's address with TLS, by the name that the certificate has."""
    return gateway.url.replace("http://127.0.0.1", "https://localhost")


def trusting(gateway: GatewayProcess) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=gateway.bundle)


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(
        base_url=secure(gateway), verify=trusting(gateway), headers=headers, http2=True
    ) as found:
        yield found


def test_a_client_that_offers_it_gets_it(
    client: httpx.Client, gateway: GatewayProcess, upstream: Upstream
) -> None:
    answer = client.post("/openai/v1/chat/completions", json={"model": "m", "messages": []})
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER
    request = upstream.seen[-1]
    assert request.header("host") == upstream.url.removeprefix("http://")
    assert json.loads(request.body) == {"model": "m", "messages": []}
    exchange = gateway.exchange()
    assert (exchange.outcome, exchange.mode) == (ExchangeOutcome.COMPLETE, "base_url")
    assert exchange.request.body == request.body


def test_a_client_that_does_not_gets_http_1(gateway: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(verify=trusting(gateway), headers=headers) as found:
        answer = found.post(f"{secure(gateway)}/openai/echo", content=b"hello")
    assert (answer.http_version, answer.content) == ("HTTP/1.1", b"hello")
    assert gateway.exchange().outcome == ExchangeOutcome.COMPLETE


def test_the_openai_sdk_streams_many_answers_over_one_connection(gateway: GatewayProcess) -> None:
    async def ask(sdk: openai.AsyncOpenAI) -> str:
        messages: Any = [{"role": "user", "content": "hello"}]
        deltas = await sdk.chat.completions.create(model="m", messages=messages, stream=True)
        return "".join(
            [choice.delta.content or "" async for each in deltas for choice in each.choices]
        )

    async def main() -> list[str]:
        http_client = openai.DefaultAsyncHttpxClient(http2=True, verify=trusting(gateway))
        async with openai.AsyncOpenAI(
            base_url=f"{secure(gateway)}/openai/v1",
            api_key=gateway.key,
            http_client=http_client,
            max_retries=0,
        ) as sdk:
            return await asyncio.gather(*(ask(sdk) for _ in range(20)))

    assert asyncio.run(main()) == [ANSWER] * 20
    outcomes = {exchange.outcome for exchange in gateway.exchanges(20)}
    assert outcomes == {ExchangeOutcome.COMPLETE}


def test_calls_share_connections_upstream_one_after_the_other(
    client: httpx.Client, gateway: GatewayProcess, upstream: Upstream
) -> None:
    before = upstream.connections
    for size in range(5):
        assert client.post("/openai/echo", content=b"a" * size).content == b"a" * size
    assert upstream.connections == before + 1
    assert client.get("/openai/closing").status_code == 200  # on the same, which then ends
    assert upstream.connections == before + 1
    assert client.post("/openai/echo", content=b"b").content == b"b"
    assert upstream.connections == before + 2
    gateway.exchanges(7)


def test_many_calls_run_at_once(gateway: GatewayProcess, upstream: Upstream) -> None:
    GO_ON.clear()
    before = len(upstream.seen)
    with RawClient(gateway) as raw:
        streams = [raw.ask(path="/openai/slow") for _ in range(20)]
        for stream in streams:
            raw.h2.end_stream(stream)
        raw.send()
        deadline = time.monotonic() + 30
        while len(upstream.seen) < before + 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(upstream.seen) == before + 20
        GO_ON.set()
        left = set(streams)
        while left:
            events = raw.until(lambda event: isinstance(event, h2.events.StreamEnded))
            assert events
            left -= {e.stream_id for e in events if isinstance(e, h2.events.StreamEnded)}
    assert {each.outcome for each in gateway.exchanges(20)} == {ExchangeOutcome.COMPLETE}


def test_a_body_without_a_length_comes_whole(
    client: httpx.Client, gateway: GatewayProcess, upstream: Upstream
) -> None:
    pieces = [b"a" * 70_000, b"b", b"c" * 3]
    answer = client.post("/openai/echo", content=iter(pieces))
    assert answer.content == b"".join(pieces) == upstream.seen[-1].body
    assert upstream.seen[-1].header("transfer-encoding") == "chunked"
    assert gateway.exchange().request.body == b"".join(pieces)


def test_headers_of_one_connection_stay_on_it(
    client: httpx.Client, gateway: GatewayProcess
) -> None:
    answer = client.get("/openai/fields", headers=[("cookie", "a=1"), ("cookie", "b=2")])
    assert {"connection", "transfer-encoding"}.isdisjoint(answer.headers)
    told = [value for name, value in answer.json() if name.lower() == "cookie"]
    assert told == ["a=1; b=2"]
    gateway.exchanges(1)


def test_early_hints_do_not_break_the_connection(
    client: httpx.Client, gateway: GatewayProcess
) -> None:
    for _ in range(2):
        answer = client.get("/openai/hints")
        assert (answer.http_version, answer.json()) == ("HTTP/2", {"answer": 42})
    gateway.exchanges(2)


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/openai/v1/messages", "wrong", 401),
        ("/nowhere/v1/messages", None, 404),
        ("/away/v1/messages", None, 502),
    ],
)
def test_errors_have_the_shape_of_the_provider(
    client: httpx.Client, gateway: GatewayProcess, path: str, key: str | None, status: int
) -> None:
    headers = {"authorization": f"Bearer {key or gateway.key}", "anthropic-version": "2023-06-01"}
    answer = client.post(path, json={}, headers=headers)
    assert (answer.http_version, answer.status_code) == ("HTTP/2", status)
    assert answer.json().get("type") == ("error" if status != 404 else None)
    assert answer.json()["error"]["message"].startswith("Headrace")
    assert "mitmproxy" not in str(answer.headers)
    gateway.records(10, seconds=0.3)


class RawClient:
    """A client that says what it likes: no header of its own is looked at before it is sent."""

    def __init__(self, gateway: GatewayProcess) -> None:
        context = trusting(gateway)
        context.set_alpn_protocols(["h2"])
        port = int(gateway.url.rpartition(":")[2])
        plain_socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket = context.wrap_socket(plain_socket, server_hostname="localhost")
        assert self._socket.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self.h2.initiate_connection()
        self._key = gateway.key

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self) -> None:
        self._socket.sendall(self.h2.data_to_send())

    def ask(self, *changed: tuple[str, str | None], path: str = "/openai/echo") -> int:
        """Send a request's head; None takes a header off."""
        head: dict[str, str | None] = {
            ":method": "POST",
            ":scheme": "https",
            ":authority": "localhost",
            ":path": path,
            "authorization": f"Bearer {self._key}",
        }
        head |= dict(changed)
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(n, v) for n, v in head.items() if v is not None])
        self.send()
        return stream

    def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Read until an event is the wanted one, or the connection ends."""
        found: list[Any] = []
        while not any(map(wanted, found)):
            try:
                data = self._socket.recv(65536)
            except ConnectionError:
                break
            if not data:
                break
            found += self.h2.receive_data(data)
        return found


def status(events: list[Any]) -> bytes | None:
    heads = [each.headers for each in events if isinstance(each, h2.events.ResponseReceived)]
    return dict(heads[0])[b":status"] if heads else None


@pytest.mark.parametrize(
    "change",
    [
        (":path", "/openai/echo HTTP/1.1"),
        (":path", "/openai/echo\x7f"),
        (":path", "http://elsewhere/openai/echo"),
        (":path", "*"),
        (":method", "POST /openai/echo"),
        (":method", "CONNECT"),
        (":authority", None),
        ("host", "elsewhere"),
        ("content-length", "+5"),
        ("content-length", "5, 5"),
        ("transfer-encoding", "chunked"),
        ("x-more", "a\r\nx-injected: 1"),
        ("x-more", "a\x01b"),
        ("x more", "a"),
        ("X-Upper", "a"),
    ],
)
def test_a_head_that_others_may_read_otherwise_goes_nowhere(
    gateway: GatewayProcess, upstream: Upstream, change: tuple[str, str | None]
) -> None:
    before = len(upstream.seen)
    with RawClient(gateway) as raw:
        stream = raw.ask(change)
        raw.h2.send_data(stream, b"hello", end_stream=True)
        raw.send()
        ended = (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)
        events = raw.until(lambda event: isinstance(event, ended))
    assert status(events) in (None, b"400")
    assert len(upstream.seen) == before
    assert gateway.records(1, seconds=0.2) == []


def test_who_breaks_a_stream_off_has_aborted_it_and_the_others_go_on(
    gateway: GatewayProcess, upstream: Upstream
) -> None:
    GO_ON.clear()
    with RawClient(gateway) as raw:
        left = raw.ask(path="/openai/slow")
        raw.h2.end_stream(left)
        raw.send()
        raw.until(lambda event: isinstance(event, h2.events.DataReceived))
        raw.h2.reset_stream(left)
        raw.send()
        assert gateway.exchange().outcome == ExchangeOutcome.CLIENT_ABORT
        other = raw.ask()
        raw.h2.send_data(other, b"hello", end_stream=True)
        raw.send()
        events = raw.until(lambda event: isinstance(event, h2.events.StreamEnded))
        assert status(events) == b"200"
    GO_ON.set()
    assert gateway.exchange().outcome == ExchangeOutcome.COMPLETE


def test_who_breaks_off_stream_after_stream_is_cut_off(gateway: GatewayProcess) -> None:
    with RawClient(gateway) as raw:
        for _ in range(1001):
            raw.h2.reset_stream(raw.ask(("authorization", "Bearer none")))
            raw.send()
        events = raw.until(lambda event: isinstance(event, h2.events.ConnectionTerminated))
    assert isinstance(events[-1], h2.events.ConnectionTerminated)
    gateway.records(10**6, seconds=0.5)


def resident(gateway: GatewayProcess) -> int:
    return int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1]) * 4096


def test_who_reads_one_stream_slowly_slows_its_upstream_alone(
    gateway: GatewayProcess, upstream: Upstream
) -> None:
    with RawClient(gateway) as raw:
        slow = raw.ask(path="/openai/large")
        raw.h2.end_stream(slow)
        raw.send()
        raw.until(lambda event: isinstance(event, h2.events.DataReceived))
        before = resident(gateway)
        raw.h2.increment_flow_control_window(1024 * 1024)  # of the connection, for the others
        for _ in range(3):
            other = raw.ask()
            raw.h2.send_data(other, b"hello", end_stream=True)
            raw.send()
            raw.until(ends(other))
        assert resident(gateway) - before < LARGE // 4
        sent.set()
        received = 0
        deadline = time.monotonic() + 60
        while received < LARGE - 65535 and time.monotonic() < deadline:
            raw.h2.increment_flow_control_window(1024 * 1024)
            raw.h2.increment_flow_control_window(1024 * 1024, slow)
            raw.send()
            events = raw.until(lambda event: isinstance(event, h2.events.DataReceived))
            received += sum(len(e.data) for e in events if isinstance(e, h2.events.DataReceived))
    outcomes = [exchange.outcome for exchange in gateway.exchanges(4)]
    assert outcomes.count(ExchangeOutcome.COMPLETE) >= 3


def ends(stream: int) -> Callable[[Any], bool]:
    return lambda event: isinstance(event, h2.events.StreamEnded) and event.stream_id == stream
