"""The gateway as clients see it: real SDKs, both modes, the same bytes as without it."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import GO_ON
from tests.support.provider.answer import ANSWER, Answer
from tests.support.provider.openai import chat_completion
from tests.support.upstream import Upstream
from trajectory.exchange import ExchangeOutcome, Feedback


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
    credential = {"env": "PROVIDER_KEY"}
    routes = [
        {"name": "openai", "upstream": upstream.url, "credential": credential},
        {
            "name": "anthropic",
            "upstream": upstream.url,
            "credential": {"env": "PROVIDER_KEY", "header": "x-api-key"},
        },
        {"name": "raw", "prefix": "/deep/raw", "upstream": f"{upstream.url}/"},
    ]
    home = tmp_path_factory.mktemp("gateway")
    settings = {"routes": routes, "fastpath": request.param}
    with GatewayProcess(home, settings, {"PROVIDER_KEY": "sk-provider-secret"}) as running:
        yield running


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=gateway.url, headers={"authorization": f"Bearer {gateway.key}"}
    ) as client:
        yield client


def test_openai_sdk_streamed_and_not(gateway: GatewayProcess, upstream: Upstream) -> None:
    with openai.OpenAI(
        base_url=f"{gateway.url}/openai/v1", api_key=gateway.key, max_retries=0
    ) as client:
        messages: Any = [{"role": "user", "content": "hello"}]
        answer = client.chat.completions.create(model="m", messages=messages)
        assert answer.choices[0].message.content == ANSWER
        deltas = client.chat.completions.create(model="m", messages=messages, stream=True)
        assert "".join(c.delta.content or "" for d in deltas for c in d.choices) == ANSWER
    sent = upstream.seen[-1]
    assert sent.target == "/v1/chat/completions"
    assert sent.header("authorization") == "Bearer sk-provider-secret"
    assert sent.header("host") == f"localhost:{upstream.port}"
    whole, streamed = gateway.exchanges(2)
    assert whole.response is not None
    assert json.loads(whole.response.body) == chat_completion(Answer("chatcmpl-1", ANSWER))
    assert streamed.response is not None
    assert streamed.response.body.endswith(b"data: [DONE]\n\n")
    assert streamed.client.tenant_id == "acme"
    assert streamed.client.purposes == ("train_sft",)
    assert (streamed.route, streamed.mode) == ("openai", "base_url")
    assert streamed.outcome is ExchangeOutcome.COMPLETE


def test_anthropic_sdk(gateway: GatewayProcess, upstream: Upstream) -> None:
    with anthropic.Anthropic(
        base_url=f"{gateway.url}/anthropic", api_key=gateway.key, max_retries=0
    ) as client:
        message = client.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "hello"}]
        )
    assert message.id == "msg_1"
    assert upstream.seen[-1].header("x-api-key") == "sk-provider-secret"
    exchange = gateway.exchange()
    assert exchange.request.path == "/v1/messages"


def test_credentials_become_fingerprints(gateway: GatewayProcess, client: httpx.Client) -> None:
    client.post("/openai/v1/chat/completions?key=abc&x=1", json={"messages": []})
    exchange = gateway.exchange()
    headers = dict(exchange.request.headers)
    assert headers["authorization"].startswith("fp:")
    assert exchange.request.query.startswith("key=fp:")
    assert exchange.request.query.endswith("&x=1")
    assert exchange.response is not None
    assert dict(exchange.response.headers)["set-cookie"].startswith("fp:")
    assert dict(exchange.response.headers)["x-request-id"] == "abc"


def test_chunks_arrive_as_they_are_sent(gateway: GatewayProcess, client: httpx.Client) -> None:
    GO_ON.clear()
    with client.stream("POST", "/deep/raw/slow", content=b"") as response:
        parts = response.iter_raw()
        assert next(parts) == b"data: 1\n\n"
        time.sleep(0.1)
        GO_ON.set()
        assert b"".join(parts) == b"data: 2\n\n"
    exchange = gateway.exchange()
    assert exchange.first_byte_at is not None
    assert exchange.ended_at is not None
    assert (exchange.ended_at - exchange.first_byte_at).total_seconds() > 0.09


def _raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_response_is_the_same_byte_for_byte(
    gateway: GatewayProcess, upstream: Upstream, streamed: bool
) -> None:
    body = json.dumps({"messages": [], "stream": streamed}).encode()

    def request(path: str, key: str) -> bytes:
        return (
            f"POST {path} HTTP/1.1\r\nHost: localhost:{upstream.port}\r\n"
            f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        ).encode() + body

    def without_end(port: int, data: bytes) -> bytes:
        """The scripted upstream keeps connections open: read until the response is whole."""
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(data)
            got = b""
            while not (got.endswith(b"0\r\n\r\n") if streamed else got.endswith(b"}}")):
                got += connection.recv(65536)
        return got

    direct = without_end(upstream.port, request("/v1/chat/completions", "k"))
    port = int(gateway.url.rpartition(":")[2])
    through = _raw(port, request("/openai/v1/chat/completions", gateway.key))
    assert through == direct
    gateway.exchange()


def test_a_chunked_upload_streams_through(gateway: GatewayProcess, client: httpx.Client) -> None:
    def body() -> Iterator[bytes]:
        for number in range(5):
            yield bytes([number]) * 70_000

    response = client.post("/deep/raw/echo", content=body())
    assert response.content == b"".join(body())
    exchange = gateway.exchange()
    assert exchange.request.body == response.content
    assert exchange.response is not None
    assert exchange.response.body == response.content


@pytest.mark.parametrize(
    ("path", "headers", "key"),
    [
        ("/openai/v1/chat/completions", {}, "error"),
        ("/anthropic/v1/messages", {"anthropic-version": "2023-06-01"}, "error"),
    ],
)
def test_a_wrong_key_is_refused_in_the_providers_shape(
    gateway: GatewayProcess, upstream: Upstream, path: str, headers: dict[str, str], key: str
) -> None:
    before = len(upstream.seen)
    wrong = f"hr_{gateway.key_id}_wrong"
    response = httpx.post(
        f"{gateway.url}{path}", json={"secret": 1}, headers={"x-api-key": wrong, **headers}
    )
    assert response.status_code == 401
    assert key in response.json()
    if "anthropic" in path:
        assert response.json()["error"]["type"] == "authentication_error"
    assert len(upstream.seen) == before
    exchange = gateway.exchange()
    assert exchange.outcome is ExchangeOutcome.REFUSED
    assert exchange.client.tenant_id == "-"
    assert exchange.request.body == b""
    assert wrong not in repr(exchange)


def test_revoked_and_new_keys_count_without_restart(gateway: GatewayProcess) -> None:
    created = gateway.registry.create(tenant_id="other", app_id="a")
    url = f"{gateway.url}/openai/v1/chat/completions"
    headers = {"authorization": f"Bearer {created.secret}"}
    deadline = time.monotonic() + 60
    while httpx.post(url, json={}, headers=headers).status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    gateway.registry.revoke(created.key.key_id)
    while httpx.post(url, json={}, headers=headers).status_code != 401:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    gateway.records(2)
    time.sleep(0.2)
    gateway.records(100, seconds=0.2)


def test_an_unknown_path_is_told(client: httpx.Client) -> None:
    assert client.get("/nowhere/v1").status_code == 404
    assert client.get("/openaix/v1").status_code == 404


def test_session_in_the_url_is_kept_and_not_sent(
    gateway: GatewayProcess, upstream: Upstream, client: httpx.Client
) -> None:
    for path in ("/s/run-7/openai/v1/chat/completions", "/openai/s/run-7/v1/chat/completions"):
        client.post(path, json={}, headers={"x-headrace-task": "t1"})
        assert upstream.seen[-1].target == "/v1/chat/completions"
        assert not [n for n, _ in upstream.seen[-1].headers if n.lower().startswith("x-headrace")]
        headers = dict(gateway.exchange().request.headers)
        assert headers["x-headrace-url-session"] == "run-7"
        assert headers["x-headrace-task"] == "t1"


def test_feedback_is_taken_and_wrong_feedback_explained(
    gateway: GatewayProcess, client: httpx.Client
) -> None:
    good = {"response_id": "chatcmpl-1", "name": "success", "value": 1.0, "source_kind": "verifier"}
    response = client.post("/headrace/v1/feedback", json=[good, {**good, "value": 0}])
    assert response.status_code == 202
    assert response.json()["accepted"] == 2
    records = gateway.records(2)
    assert all(isinstance(record, Feedback) for record in records)
    assert [r.feedback_id for r in records if isinstance(r, Feedback)] == response.json()[
        "feedback_ids"
    ]
    again = client.post("/headrace/v1/feedback", json=good)
    assert again.json()["feedback_ids"] == response.json()["feedback_ids"][:1]
    gateway.records(1)
    bad = client.post("/headrace/v1/feedback", json=[good, {**good, "value": "high"}])
    assert bad.status_code == 400
    assert "item 1: value must be a number" in bad.json()["error"]["message"]
    assert httpx.post(f"{gateway.url}/headrace/v1/feedback", json=good).status_code == 401
    assert gateway.records(1, seconds=0.1) == []


def test_health_and_metrics(gateway: GatewayProcess, client: httpx.Client) -> None:
    assert client.post("/openai/echo", content=b"x").content == b"x"
    gateway.exchange()
    assert httpx.get(f"{gateway.url}/headrace/v1/health").json() == {"status": "ok"}
    assert httpx.get(f"{gateway.admin}/ready").json() == {"ready": True}
    assert "openai" in httpx.get(f"{gateway.admin}/routes").json()
    text = httpx.get(f"{gateway.admin}/metrics").text
    assert 'headrace_exchanges_total{mode="base_url",outcome="complete",route="openai"}' in text


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:1", 200), ("elsewhere.example", 421)],
)
def test_metrics_of_this_machine_are_told_to_no_page_from_elsewhere(
    gateway: GatewayProcess, host: str, status: int
) -> None:
    """A page may give its own name this machine's address, and its browser lets it read then."""
    answer = httpx.get(f"{gateway.admin}/inventory", headers={"host": host})
    assert answer.status_code == status


def test_an_endless_question_for_metrics_is_nobodys_fault(gateway: GatewayProcess) -> None:
    port = int(gateway.admin.rpartition(":")[2])
    before = gateway.log.read_text()
    place = "127.0.0.1", port
    with socket.create_connection(place, 30) as connection, suppress(ConnectionError):
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX-Long: " + b"x" * 200_000)
        assert connection.recv(100) == b""
    assert httpx.get(f"{gateway.admin}/health").json() == {"status": "ok"}
    assert gateway.log.read_text() == before


def test_a_gateway_opens_as_many_files_as_it_may(gateway: GatewayProcess) -> None:
    soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    assert soft == hard


def test_no_credential_and_no_body_in_logs_or_metrics(
    gateway: GatewayProcess, client: httpx.Client
) -> None:
    marker = "jane.doe@example.com"
    client.post("/openai/v1/chat/completions", json={"messages": [marker]})
    _raw(int(gateway.url.rpartition(":")[2]), f"GARBAGE {marker}\r\n\r\n".encode())
    gateway.exchange()
    seen = gateway.log.read_text() + httpx.get(f"{gateway.admin}/metrics").text
    for secret in (marker, gateway.key, "sk-provider-secret", "secret-cookie"):
        assert secret not in seen


def test_the_authority_survives_a_restart(tmp_path: Path, upstream: Upstream) -> None:
    settings = {"routes": [{"name": "openai", "upstream": upstream.url}]}
    with GatewayProcess(tmp_path, settings):
        first = (tmp_path / "ca" / "ca.pem").read_bytes()
    with GatewayProcess(tmp_path, settings) as again:
        assert (tmp_path / "ca" / "ca.pem").read_bytes() == first
        assert again.stop() == 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"routes": [{"name": "a", "upstream": "http://x", "credential": {"env": "NO_SUCH"}}]},
            "route a: credential: environment variable NO_SUCH is empty",
        ),
        ({"forward_key": {"file": "/nowhere/key"}}, "gateway.forward_key: credential: cannot read"),
        ({"upstream_ca": "/nowhere.pem"}, "gateway.upstream_ca: /nowhere.pem cannot be used"),
        ({"spool": {"directory": "/proc/x"}}, "gateway.spool.directory: /proc/x cannot be used"),
    ],
)
def test_what_is_missing_at_the_start_is_named(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(AssertionError, match=told), GatewayProcess(tmp_path, settings):
        pass


def test_a_standing_key_that_is_unknown_is_told(tmp_path: Path) -> None:
    settings = {"forward_key": {"env": "FORWARD_KEY"}}
    with GatewayProcess(tmp_path, settings, {"FORWARD_KEY": "hr_no_key"}) as gateway:
        assert "gateway.forward_key is no client key now" in gateway.log.read_text()
