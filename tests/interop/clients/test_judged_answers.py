"""Calls in model answers over real sockets: official SDKs wait for a person, and hear of denials."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.guard.approvals import Approvals
from tests.interop.clients.drivers import BOTO_DRIVERS, HTTPX_DRIVERS, ROUTES, Wire
from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.provider import provider
from tests.support.upstream import Upstream
from trajectory.exchange import Exchange, Feedback

pytestmark = pytest.mark.filterwarnings("ignore")

RULES: dict[str, Any] = {
    "rules": [
        {"name": "sums", "match": {"tools": "add"}, "decision": "hold", "wait_seconds": 120},
    ]
}
DENY: dict[str, Any] = {
    "rules": [
        {
            "name": "no-sums",
            "match": {"tools": "add"},
            "decision": "deny",
            "reason": "Do it in your head.",
        }
    ]
}
UNREAD = ("gemini_interactions", "mistral_conversations", "openai_encodings")
DRIVERS = [one for one in (*HTTPX_DRIVERS, *BOTO_DRIVERS) if not one.startswith(UNREAD)]
CALLING = ("chat", "messages", "responses", "vertex", "stream", "ollama", "converse")
"""In names of drivers whose conversations have calls."""


@dataclass
class Scene:
    """A gateway before a provider, and who approves."""

    gateway: GatewayProcess
    upstream: Upstream
    approvals: Approvals
    listener: str

    def chat(self, route: str = "openai", *, stream: bool) -> httpx.Response:
        return httpx.post(
            f"{self.gateway.url}/{route}/v1/chat/completions",
            json=chat_request(stream=stream),
            headers={"authorization": f"Bearer {self.gateway.key}"},
            timeout=120,
            trust_env=False,
        )


def chat_request(*, stream: bool) -> dict[str, Any]:
    function = {"name": "add", "parameters": {"type": "object"}}
    return {
        "model": "tiny-1",
        "messages": [{"role": "user", "content": "What is 19 + 23?"}],
        "tools": [{"type": "function", "function": function}],
        "stream": stream,
    }


def _scene(home: Path, rules: dict[str, Any], listener: str) -> Iterator[Scene]:
    setup = GuardSetup(home / "approvals.sqlite", rules, routes=(), answers=ROUTES)
    with Upstream(provider) as upstream:
        routes = [{"name": name, "upstream": upstream.url} for name in (*ROUTES, "free")]
        with GatewayProcess(
            home, settings={"routes": routes, "listener": listener}, guard=setup
        ) as gateway:
            yield Scene(gateway, upstream, setup.approvals(), listener)


@pytest.fixture(scope="module", params=["plain", "mitmproxy"])
def scene(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    yield from _scene(tmp_path_factory.mktemp("held"), RULES, request.param)


@pytest.fixture(scope="module", params=["plain", "mitmproxy"])
def denying(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    yield from _scene(tmp_path_factory.mktemp("denied"), DENY, request.param)


@contextlib.contextmanager
def approving(scene: Scene) -> Iterator[list[str]]:
    """Approve whatever waits, once it has waited."""
    done, found = threading.Event(), list[str]()

    def work() -> None:
        while not done.is_set():
            for one in scene.approvals.list():
                scene.approvals.decide(one.approval_id, approve=True, who="ada")
                found.append(one.approval_id)
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    yield found
    done.set()
    thread.join(60)


KEEP_ALIVE = (
    [{"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0}],
    {"type": "ping"},
)
"""What SDKs make of events that say nothing; comments they pass over."""
KEEP_ALIVE_LINE = '{"model":"","message":{"role":"assistant","content":""},"done":false}\n'


def _without_keep_alive(told: Any) -> Any:
    if isinstance(told, str):
        return told.replace(KEEP_ALIVE_LINE, "")
    if isinstance(told, dict):
        return {name: _without_keep_alive(one) for name, one in told.items()}
    if isinstance(told, list | tuple):
        return [_without_keep_alive(one) for one in told if one not in KEEP_ALIVE]
    return told


@pytest.mark.parametrize("name", DRIVERS)
def test_sdks_wait_for_a_person_and_go_on(scene: Scene, name: str) -> None:
    route, driver = {**HTTPX_DRIVERS, **BOTO_DRIVERS}[name]
    direct = driver(Wire(scene.upstream.url, "sk-own"))
    with approving(scene) as approved:
        told = driver(Wire(f"{scene.gateway.url}/{route}", scene.gateway.key))
    assert _without_keep_alive(told) == _without_keep_alive(direct)
    assert approved or not any(one in name for one in CALLING) or "documents" in name


@pytest.mark.parametrize("stream", [False, True])
def test_a_denied_call_is_a_text_and_the_provider_keeps_what_it_said(
    denying: Scene, stream: bool
) -> None:
    answer = denying.chat(stream=stream)
    assert answer.status_code == 200
    assert "tool_calls" not in answer.text
    assert "[Call of add] Headrace: rule no-sums denied this call." in answer.text
    assert '"finish_reason":"stop"' in answer.text.replace(": ", ":")
    steps: dict[str, bytes] = {}
    signals: dict[str, dict[str, Any]] = {}
    while not steps or not {*steps} <= {*signals}:
        for one in denying.gateway.records(1):
            if isinstance(one, Feedback):
                signals[one.target_id] = one.body
            elif isinstance(one, Exchange) and one.response is not None:
                steps[one.exchange_id] = one.response.body
    ((step, body),) = steps.items()
    assert b"tool_calls" in body  # the lake learns what the model wanted
    told = signals[step]
    assert (told["name"], told["label"], told["source"]) == ("guard", "deny", "action:no-sums")


def test_while_a_person_thinks_the_stream_says_so(scene: Scene) -> None:
    with approving(scene):
        answer = scene.chat(stream=True)
    waits = ": Headrace: a tool call waits for a person.\n\n"
    assert (waits in answer.text) is (scene.listener == "plain")
    assert answer.text.replace(waits, "") == scene.chat("free", stream=True).text


@pytest.mark.parametrize("stream", [False, True])
def test_a_route_that_does_not_ask_passes_byte_for_byte(denying: Scene, stream: bool) -> None:
    direct = httpx.post(
        denying.upstream.url + "/v1/chat/completions",
        json=chat_request(stream=stream),
        trust_env=False,
    )
    assert denying.chat("free", stream=stream).content == direct.content


def test_what_cannot_be_judged_is_refused(denying: Scene) -> None:
    headers = {
        "authorization": f"Bearer {denying.gateway.key}",
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
    }
    with httpx.Client(trust_env=False) as client:
        told = client.get(denying.gateway.url + "/openai/v1/realtime", headers=headers)
    assert told.status_code == 502
    assert "cannot be read for certain" in told.text


def test_a_client_that_leaves_gets_no_call_later(scene: Scene) -> None:
    headers = {"authorization": f"Bearer {scene.gateway.key}"}
    asked = {**chat_request(stream=True), "user": "left"}
    with httpx.Client(trust_env=False) as client, contextlib.suppress(httpx.TimeoutException):
        client.post(
            scene.gateway.url + "/openai/v1/chat/completions",
            json=asked,
            headers=headers,
            timeout=httpx.Timeout(20, read=0.5),
        )
    while (
        'outcome="client_abort"'
        not in httpx.get(scene.gateway.admin + "/metrics", trust_env=False).text
    ):
        time.sleep(0.05)
    (waiting,) = scene.approvals.list()
    scene.approvals.decide(waiting.approval_id, approve=False, who="ada", reason="Too late.")
    # Who asks again within ten minutes hears the same.
    assert "a person denied this call: Too late." in scene.chat(stream=False).text
