"""Routes at work: several upstreams, time limits, rotated credentials, step header, opt-outs."""

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from proxy.config import GatewayConfig
from proxy.routes.router import Router
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.upstream import Upstream, plain


@dataclass
class Deployment:
    """A gateway and what stands behind it."""

    gateway: GatewayProcess
    one: Upstream
    two: Upstream
    key_file: Path


@contextlib.contextmanager
def deaf() -> Iterator[int]:
    """Listen on a port, accept connections, and never say a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        server.settimeout(0.2)
        stop, kept = threading.Event(), []

        def accept() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    kept.append(server.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield int(server.getsockname()[1])
        stop.set()
        thread.join()
        for connection in kept:
            connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home = tmp_path_factory.mktemp("routes")
    key_file = home / "provider.key"
    key_file.write_text("sk-first")
    (home / "own.key").write_text("sk-own-secret")
    own = ("X-Headrace-Step", "of another call"), ("x-headrace-listener", "nobody")
    with (
        Upstream(provider) as one,
        Upstream(provider) as two,
        Upstream(lambda _request: plain(200, b"x", *own, *own)) as forging,
        deaf() as silent,
    ):
        both = [{"url": one.url, "weight": 3}, {"url": f"{two.url}/base", "weight": 1}]
        dead = {"url": "http://127.0.0.1:9", "weight": 1000}
        routes = [
            {"name": "both", "upstream": both},
            {"name": "half", "upstream": [dead, {"url": one.url}]},
            {"name": "silent", "upstream": f"https://127.0.0.1:{silent}", "connect_seconds": 0.5},
            {"name": "rotated", "upstream": two.url, "credential": {"file": str(key_file)}},
            {"name": "steps", "upstream": one.url, "step_header": True},
            {"name": "forged", "upstream": forging.url, "step_header": True},
            {
                "name": "own-header",
                "upstream": one.url,
                "credential": {"file": str(home / "own.key"), "header": "X-Own-Key"},
            },
        ]
        with GatewayProcess(home, {"routes": routes, "forward_port": None}) as gateway:
            yield Deployment(gateway, one, two, key_file)


@pytest.fixture
def client(place: Deployment) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {place.gateway.key}"}
    with httpx.Client(base_url=place.gateway.url, headers=headers) as client:
        yield client


def test_sessions_stay_and_weights_hold() -> None:
    choices = [{"url": f"http://host{n}", "weight": weight} for n, weight in enumerate((6, 3, 1))]
    router = Router(GatewayConfig.model_validate({"routes": [{"name": "a", "upstream": choices}]}))
    (plan,) = router.plans
    sessions = [b"session-%d" % number for number in range(3000)]
    first = [plan.target(session) for session in sessions]
    assert [plan.target(session) for session in sessions] == first
    shares = Counter(target.upstream.host for target in first)
    assert shares["host0"] == pytest.approx(1800, rel=0.1)
    assert shares["host1"] == pytest.approx(900, rel=0.1)
    router.reached(("host2", 80), well=False)
    without = [plan.target(session) for session in sessions]
    moved = [a.upstream.host for a, b in zip(first, without, strict=True) if a is not b]
    assert set(moved) == {"host2"}
    router.reached(("host2", 80), well=True)
    assert [plan.target(session) for session in sessions] == first


def test_a_session_keeps_its_upstream(place: Deployment, client: httpx.Client) -> None:
    def reached(session: str) -> tuple[int, int]:
        before = len(place.one.seen), len(place.two.seen)
        client.post("/both/v1/echo", content=b"x", headers={"x-headrace-session": session})
        return len(place.one.seen) - before[0], len(place.two.seen) - before[1]

    found = {session: reached(session) for session in map(str, range(60))}
    assert set(found.values()) == {(1, 0), (0, 1)}
    assert {session: reached(session) for session in found} == found
    exchanges = place.gateway.exchanges(120)
    assert {e.upstream for e in exchanges} == {place.one.url, place.two.url}
    assert {e.request.path for e in exchanges} == {"/v1/echo", "/base/v1/echo"}


def test_an_upstream_that_is_down_is_passed_over(place: Deployment, client: httpx.Client) -> None:
    session = {"x-headrace-session": place.gateway.session_at_the_first()}
    answers = [client.post("/half/echo", content=b"x", headers=session) for _ in range(3)]
    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b"x")] * 3
    exchanges = place.gateway.exchanges(3)
    assert {(e.upstream, e.outcome.value, e.request.body) for e in exchanges} == {
        (place.one.url, "complete", b"x")
    }
    metrics = httpx.get(f"{place.gateway.admin}/metrics").text
    assert "headrace_elsewhere_total 1.0\n" in metrics


def test_the_connect_time_covers_the_tls_handshake(place: Deployment, client: httpx.Client) -> None:
    begin = time.monotonic()
    assert client.post("/silent/v1", content=b"x", timeout=60).status_code == 502
    assert time.monotonic() - begin > 0.4
    place.gateway.exchange()


def test_a_rotated_credential_needs_no_restart(place: Deployment, client: httpx.Client) -> None:
    def sent() -> str | None:
        client.post("/rotated/echo", content=b"x")
        return place.two.seen[-1].header("authorization")

    assert sent() == "Bearer sk-first"
    place.key_file.write_text("")
    time.sleep(0.6)
    assert sent() == "Bearer sk-first"
    place.key_file.write_text("sk-second\n")
    deadline = time.monotonic() + 60
    while sent() != "Bearer sk-second":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    place.gateway.records(10**6, seconds=0.3)


def test_a_credential_in_a_header_of_its_own_is_not_kept(
    place: Deployment, client: httpx.Client
) -> None:
    client.post("/own-header/echo", content=b"x", headers={"x-own-key": "of the client"})
    sent = [value for name, value in place.one.seen[-1].headers if name.lower() == "x-own-key"]
    assert sent == ["sk-own-secret"]
    kept = dict(place.gateway.exchange().request.headers)
    assert kept["x-own-key"].startswith("fp:")


def test_the_step_header_names_the_exchange(place: Deployment, client: httpx.Client) -> None:
    answer = client.post("/steps/v1/chat/completions", json={"messages": []})
    exchange = place.gateway.exchange()
    assert answer.headers["x-headrace-step"] == exchange.exchange_id
    assert exchange.response is not None
    assert "x-headrace-step" not in dict(exchange.response.headers)
    assert "x-headrace-step" not in client.post("/both/echo", content=b"x").headers
    place.gateway.exchange()


def test_an_upstream_cannot_name_the_step_that_feedback_goes_to(
    place: Deployment, client: httpx.Client
) -> None:
    answer = client.post("/forged/x", content=b"x", headers={"x-headrace-debug": "1"})
    exchange = place.gateway.exchange()
    assert answer.headers.get_list("x-headrace-step") == [exchange.exchange_id]
    assert "nobody" not in answer.headers.get_list("x-headrace-listener")
    item = {"step_id": exchange.exchange_id, "name": "success", "value": 1}
    assert client.post("/headrace/v1/feedback", json=item).status_code == 202
    place.gateway.records(1)


@pytest.mark.parametrize(
    ("header", "value", "kept"),
    [
        ("x-headrace-capture", "metadata", "metadata"),
        ("x-headrace-capture", "none", "none"),
        ("X-Headrace-Opt-Out", "all", "metadata"),
        ("x-headrace-opt-out", "train", "full"),
        ("x-headrace-purposes", "eval", "full"),
        ("CF-AIG-Collect-Log", "false", "none"),
        ("cf-aig-collect-log", "true", "full"),
        ("cf-aig-collect-log-payload", "false", "metadata"),
        ("Helicone-Omit-Request", "true", "metadata"),
        ("Helicone-Omit-Response", "true", "metadata"),
    ],
)
def test_a_client_may_ask_for_less(
    place: Deployment, client: httpx.Client, header: str, value: str, kept: str
) -> None:
    answer = client.post("/steps/echo", content=b"private", headers={header: value})
    assert answer.content == b"private"
    if kept == "none":
        assert place.gateway.records(1, seconds=0.15) == []
        return
    exchange = place.gateway.exchange()
    assert exchange.request.body == (b"private" if kept == "full" else b"")
    assert exchange.capture_note == ("" if kept == "full" else "opt-out")
    assert (header.lower() in dict(exchange.request.headers)) is True
    sent = json.dumps(place.one.seen[-1].headers)
    assert ("x-headrace" in sent.lower()) is False
