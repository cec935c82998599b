"""Requests whose upstream cannot be reached go to another one; what was sent is never sent again."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.tls import Tls
from tests.support.upstream import ReceivedRequest, Reply, Upstream
from trajectory.exchange import Exchange

DEAD = [f"http://127.0.0.{number}:9" for number in range(2, 9)]
"""One for each test: a gateway passes over an upstream for a while once it could not be reached."""


@dataclass
class Deployment:
    """A gateway, and the upstream that is there."""

    gateway: GatewayProcess
    upstream: Upstream
    breaking: Upstream
    late: socket.socket
    """Bound, not listening yet."""
    session: str
    """That every route sends to its first upstream."""

    def kept(self) -> Exchange:
        return self.gateway.exchange()


def route(name: str, first: str, then: str, **more: object) -> dict[str, object]:
    """Return a route most of whose sessions begin at the first upstream."""
    choices = [
        {"url": first, "weight": 1000, "credential": {"env": "FIRST_KEY"}},
        {"url": f"{then}/base", "weight": 1, "credential": {"env": "OTHER_KEY"}},
    ]
    return {"name": name, "upstream": choices, **more}


@pytest.fixture(scope="module")
def place(tls: Tls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with (
        Upstream(lambda seen: provider(shortened(seen))) as up,
        Upstream(lambda _: Reply([], abort=True)) as breaking,
        Upstream(provider, tls=tls.context) as untrusted,
        socket.socket() as late,
    ):
        late.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        late.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{late.getsockname()[1]}"
        routes = [
            route("upload", DEAD[0], up.url),
            route("read", DEAD[1], up.url),
            route("expect", DEAD[2], up.url),
            route("tokens", DEAD[3], up.url, capture="tokens"),
            route("untrusted", untrusted.url, up.url),
            route("none", DEAD[4], DEAD[5]),
            route("breaking", breaking.url, up.url),
            route("late", address, up.url),
            {"name": "only-late", "upstream": address},
            {"name": "gone", "upstream": DEAD[6]},
        ]
        keys = {"FIRST_KEY": "sk-of-the-first", "OTHER_KEY": "sk-of-the-other"}
        settings = {"routes": routes, "forward_port": None}
        with GatewayProcess(tmp_path_factory.mktemp("sending"), settings, keys) as gateway:
            yield Deployment(gateway, up, breaking, late, gateway.session_at_the_first())


def shortened(seen: ReceivedRequest) -> ReceivedRequest:
    """Return the request as the provider takes it."""
    return ReceivedRequest(seen.method, seen.target.removeprefix("/base"), seen.headers, seen.body)


@pytest.fixture
def client(place: Deployment) -> Iterator[httpx.Client]:
    headers = {
        "authorization": f"Bearer {place.gateway.key}",
        "x-headrace-session": place.session,
    }
    with httpx.Client(base_url=place.gateway.url, headers=headers) as client:
        yield client


def elsewhere(place: Deployment) -> Exchange:
    """Return what was kept of a call that went to the other upstream."""
    request = place.upstream.seen[-1]
    assert request.header("authorization") == "Bearer sk-of-the-other"
    assert "sk-of-the-first" not in str(request)
    exchange = place.kept()
    assert (exchange.upstream, exchange.outcome.value) == (place.upstream.url, "complete")
    assert exchange.request.path.startswith("/base/")
    return exchange


def test_an_upload_goes_on_whole(place: Deployment, client: httpx.Client) -> None:
    pieces = [b"one ", b"two ", b"x" * 300_000]
    answer = client.post("/upload/echo", content=iter(pieces))
    assert answer.content == b"".join(pieces)
    assert elsewhere(place).request.body == b"".join(pieces)


def test_a_request_without_body(place: Deployment, client: httpx.Client) -> None:
    assert client.get("/read/nothing").status_code == 404
    assert elsewhere(place).request.method == "GET"


def test_a_request_that_waits_for_100(place: Deployment, client: httpx.Client) -> None:
    answer = client.post("/expect/echo", content=b"x", headers={"expect": "100-continue"})
    assert answer.content == b"x"
    assert elsewhere(place).request.body == b"x"
    assert place.upstream.seen[-1].header("expect") == "100-continue"


def test_a_request_that_asks_for_tokens(place: Deployment, client: httpx.Client) -> None:
    body = {"model": "m", "messages": []}
    assert client.post("/tokens/v1/chat/completions", json=body).status_code == 200
    exchange = elsewhere(place)
    assert json.loads(exchange.request.body)["return_token_ids"] is True
    request = place.upstream.seen[-1]
    assert request.body == exchange.request.body
    assert request.header("accept-encoding") == "identity"


def test_an_upstream_that_is_not_trusted_gets_nothing(
    place: Deployment, client: httpx.Client
) -> None:
    assert client.post("/untrusted/echo", content=b"x").content == b"x"
    elsewhere(place)


def test_none_is_left(place: Deployment, client: httpx.Client) -> None:
    assert client.post("/none/echo", content=b"x").status_code == 502
    assert place.kept().outcome.value == "upstream_abort"


def test_what_was_sent_is_not_sent_again(place: Deployment, client: httpx.Client) -> None:
    before = len(place.upstream.seen)
    assert client.post("/breaking/echo", content=b"x").status_code == 502
    assert place.breaking.seen[-1].body == b"x"
    assert len(place.breaking.seen) == 1
    assert len(place.upstream.seen) == before
    assert place.kept().outcome.value == "upstream_abort"


def test_an_upstream_that_came_back_is_reached_on_the_same_connection(
    place: Deployment, client: httpx.Client
) -> None:
    assert client.post("/late/echo", content=b"x").content == b"x"
    elsewhere(place)
    place.late.listen()
    place.late.settimeout(60)
    with contextlib.suppress(httpx.TimeoutException):
        client.post("/only-late/echo", content=b"x", timeout=0.5)
    accepted, _ = place.late.accept()
    with accepted:
        assert accepted.recv(100).startswith(b"POST /echo")
    place.kept()


def send_all(gateway: GatewayProcess, path: str, size: int) -> int:
    """Send a whole request before anything of its response is read; return the response's status."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {gateway.key}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    port = int(gateway.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        with contextlib.suppress(ConnectionError):  # it may be cut off; a blocked one times out
            client.sendall(head.encode() + b"x" * size)
        return int(client.recv(64).split()[1])


LARGE = 24 * 1024 * 1024
"""More than the sockets' buffers hold."""


def test_who_sends_all_first_hears_that_nobody_is_there(place: Deployment) -> None:
    assert send_all(place.gateway, "/gone/echo", LARGE) == 502


def test_who_sends_all_first_hears_a_response_that_came_early(place: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as early:

        def refuse() -> None:
            taken, _ = early.accept()
            with taken:
                taken.recv(65536)
                time.sleep(0.3)  # until the gateway's buffers are full too
                taken.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

        address = f"http://127.0.0.1:{early.getsockname()[1]}"
        settings = {"routes": [{"name": "early", "upstream": address}], "forward_port": None}
        thread = threading.Thread(target=refuse)
        thread.start()
        with GatewayProcess(place.gateway.home / "early", settings) as gateway:
            assert send_all(gateway, "/early/x", LARGE) == 413
        thread.join()
