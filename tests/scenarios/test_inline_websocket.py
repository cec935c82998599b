"""Responses over a WebSocket: the provider sees surrogates in messages, the client its values in events."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from tests.proxy.gateway_process import GatewayProcess
from tests.support.echo import echo
from tests.support.inline import inline_setup
from tests.support.upstream import ReceivedRequest
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange
from trajectory.surrogate import FORM

pytestmark = pytest.mark.filterwarnings("ignore")

EMAIL, NAME, CARD = "petra.ostrova@example.org", "Petra Ostrova", "4111 1111 1111 1111"
VALUES = (EMAIL, NAME, "Ostrova", CARD)
SAID = f"Grüße 🙂 from {NAME}, mail {EMAIL}. " + "Größe: 3 €. " * 300
TOOLS: Any = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": None}
    for name in ("send", "fetch", "look_up")
]


@dataclass
class Provider:
    """Keeps what was said on each connection, and says all of it again as events."""

    got: list[str | bytes] = field(default_factory=list)
    number: int = 0

    def __call__(self, connection: ServerConnection) -> None:
        kept: dict[str, str] = {}
        with contextlib.suppress(ConnectionClosed):
            for message in connection:
                self.got.append(message)
                body = json.loads(message)
                if body["type"] != "response.create":
                    continue
                if body["model"] == "fail":
                    error = {"type": "invalid_request_error", "message": body["input"]}
                    connection.send(json.dumps({"type": "error", "status": 400, "error": error}))
                    continue
                told = kept.get(body.get("previous_response_id"), "") + _words(body["input"])
                self.number += 1
                kept[f"resp_{self.number}"] = told
                for event in _events(body, told):
                    connection.send(event.replace("resp_1", f"resp_{self.number}"))


def _words(items: Any) -> str:
    if isinstance(items, str):
        return items
    return "".join(str(one.get("content", one.get("output"))) for one in items)


def _events(body: dict[str, Any], told: str) -> Iterator[str]:
    asked = json.dumps({**body, "stream": True}).encode()
    for piece in echo(ReceivedRequest("POST", "/v1/responses", [], asked), lambda _: told).pieces:
        if isinstance(piece, bytes) and b"data: " in piece:
            event = json.loads(piece.partition(b"data: ")[2].partition(b"\n\n")[0])
            yield json.dumps(event, ensure_ascii=False)


@dataclass
class Scene:
    gateway: GatewayProcess
    provider: Provider

    def sdk(self) -> openai.OpenAI:
        url = f"{self.gateway.url}/model/v1"
        return openai.OpenAI(base_url=url, api_key=self.gateway.key, max_retries=0)

    @contextlib.contextmanager
    def connected(self) -> Iterator[ClientConnection]:
        url = self.gateway.url.replace("http", "ws") + "/model/v1/responses"
        headers = {"Authorization": f"Bearer {self.gateway.key}", "session_id": "s-1"}
        with connect(
            url, additional_headers=headers, proxy=None, max_size=None, ping_interval=None
        ) as connection:
            yield connection

    def sent(self) -> str:
        """Return what the provider got, in which no value may be."""
        told = json.dumps([json.loads(one) for one in self.provider.got], ensure_ascii=False)
        self.provider.got.clear()
        assert not [value for value in VALUES if value in told]
        return told


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home: Path = tmp_path_factory.mktemp("inline-websocket")
    terms: dict[str, Any] = {"restore": {"to": ["client", "tool:send"]}, "budget_ms": 60_000}
    setup = inline_setup(home / "policy", routes=["model"], **terms)
    provider = Provider()
    with serve(provider, "127.0.0.1", 0, max_size=None, ping_interval=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        upstream = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        routes = [{"name": "model", "upstream": upstream}]
        with GatewayProcess(home / "gateway", {"routes": routes}, inline=setup) as gateway:
            yield Scene(gateway, provider)
        server.shutdown()
        thread.join(5)


def test_the_official_sdk_gets_its_values_back_over_turns(scene: Scene) -> None:
    turns = [{"input": SAID}, {"input": f"And card {CARD}? "}, {"input": "Who am I?"}]
    said, before = "", None
    patient: Any = {
        "ping_interval": None,
        "max_size": None,
    }  # detectors may be slow on a busy machine
    with (
        scene.sdk() as api,
        api.responses.connect(websocket_connection_options=patient) as connection,
    ):
        for turn in turns:
            said += turn["input"]
            asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "store": False, **turn}
            if before is not None:
                asked["previous_response_id"] = before
            connection.response.create(**asked)
            text, numbers, answer = "", [], None
            for event in connection:
                numbers.append(event.sequence_number)
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type == "response.completed":
                    answer = event.response
                    break
            assert answer is not None
            assert text == answer.output_text == f"You said: {said}!"
            assert numbers == [*range(len(numbers))]
            calls = {
                one.name: one.arguments for one in answer.output if one.type == "function_call"
            }
            assert EMAIL in json.loads(calls["send"])["to"]
            assert not any(value in calls["fetch"] for value in VALUES)
            before = answer.id
    sent = scene.sent()
    assert len(FORM.findall(sent)) >= 3
    records = [one for one in scene.gateway.records(9, seconds=0.5) if isinstance(one, Exchange)]
    calls_read = [call for one in records for call in read_calls(one) if call.response_id]
    assert [call.response_id for call in calls_read] == ["resp_1", "resp_2", "resp_3"]
    assert all(call.exchange.subjects for call in calls_read)
    for one in records:
        assert one.response is not None
        for body in (one.request.body, one.response.body):
            assert not [value for value in VALUES if value.encode() in body]


def test_what_cannot_be_read_is_refused_and_the_connection_goes_on(scene: Scene) -> None:
    ask = {"type": "response.create", "model": "m"}
    refused: list[Any] = [
        b"\x00\x01",
        "{nonsense",
        json.dumps({**ask, "input": SAID, "conversation": "conv_1"}),
        json.dumps({**ask, "input": SAID, "previous_response_id": "resp_unknown"}),
        json.dumps({"type": "conversation.item.create", "input": SAID}),
    ]
    with scene.connected() as connection:
        for message in refused:
            connection.send(message)
            event = json.loads(connection.recv(timeout=60))
            assert (event["type"], event["status"]) == ("error", 400)
            assert event["error"]["message"].startswith("Headrace: personal data is replaced")
        assert scene.provider.got == []
        connection.send(json.dumps({**ask, "input": f"I am {NAME}.", "model": "fail"}))
        event = json.loads(connection.recv(timeout=60))
        assert event["error"]["message"] == f"I am {NAME}."  # of the provider, and restored
        connection.send(json.dumps({"type": "response.cancel", "note": NAME}))
        connection.send(json.dumps({**ask, "input": f"Mail {EMAIL}."}))
        heard: list[Any] = []
        while not heard or heard[-1]["type"] != "response.completed":
            heard.append(json.loads(connection.recv(timeout=60)))
    output = heard[-1]["response"]["output"][0]
    assert output["content"][0]["text"] == f"You said: Mail {EMAIL}.!"
    scene.sent()


def test_other_sockets_stay_refused(scene: Scene) -> None:
    url = scene.gateway.url.replace("http", "ws") + "/model/v1/realtime"
    headers = {"Authorization": f"Bearer {scene.gateway.key}"}
    with (
        pytest.raises(Exception, match="400"),
        connect(url, additional_headers=headers, proxy=None),
    ):
        pass
