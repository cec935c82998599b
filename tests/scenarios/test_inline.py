"""Pseudonymisation on the wire: the provider sees surrogates, the client its own values, the lake neither more."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.echo import CALLED, echo
from tests.support.inline import inline_setup
from tests.support.upstream import Upstream
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import ExchangeOutcome
from trajectory.surrogate import FORM

EMAIL, NAME, CARD = "petra.ostrova@example.org", "Petra Ostrova", "4111 1111 1111 1111"
ADDRESS = "12 Baker Street\nSpringfield, IL 62701"
SAID = f'My name is {NAME}, mail "{EMAIL}", card {CARD}. I live at {ADDRESS}. Größe: 3 €'
VALUES = (EMAIL, NAME, CARD, "Baker Street")
NAMES = [{"name": name, "description": "A tool."} for name in CALLED]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"to": {"type": "string"}}}


class Scene:
    """A gateway with two routes, one of which lets pass what cannot be read, and the provider behind."""

    def __init__(self, gateway: GatewayProcess, upstream: Upstream) -> None:
        self.gateway = gateway
        self.upstream = upstream

    def openai(self) -> openai.OpenAI:
        url = f"{self.gateway.url}/model/v1"
        return openai.OpenAI(base_url=url, api_key=self.gateway.key, max_retries=0)

    def anthropic(self) -> anthropic.Anthropic:
        url = f"{self.gateway.url}/model"
        return anthropic.Anthropic(base_url=url, api_key=self.gateway.key, max_retries=0)

    def post(self, path: str, content: Any, **headers: str) -> httpx.Response:
        url = f"{self.gateway.url}{path}"
        said = {"authorization": f"Bearer {self.gateway.key}", **headers}
        if isinstance(content, bytes):
            return httpx.post(url, content=content, headers=said)
        return httpx.post(url, json=content, headers=said)

    def metrics(self) -> str:
        return httpx.get(f"{self.gateway.admin}/metrics").text


@pytest.fixture(scope="module", params=["plain", "mitmproxy"])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("inline")
    setup = inline_setup(
        home / "policy", routes=["model"], restore={"to": ["client", "tool:send"]}, budget_ms=60000
    )
    with Upstream(echo) as upstream:
        routes = [{"name": name, "upstream": upstream.url} for name in ("model", "other")]
        settings = {"routes": routes, "listener": request.param}
        with GatewayProcess(home, settings, inline=setup) as gateway:
            yield Scene(gateway, upstream)


type Asked = tuple[str, dict[str, Any]]
"""The text that came back, and the arguments of each tool's call."""


def chat(scene: Scene, *, stream: bool) -> Asked:
    tools: Any = [{"type": "function", "function": {**one, "parameters": SCHEMA}} for one in NAMES]
    messages: Any = [{"role": "user", "content": SAID}]
    with scene.openai() as client:
        if not stream:
            whole = client.chat.completions.create(model="m", messages=messages, tools=tools)
            message = whole.choices[0].message
            called: Any = message.tool_calls
            found = {one.function.name: json.loads(one.function.arguments) for one in called}
            return message.content or "", found
        text, listed = "", dict[int, list[str]]()
        for chunk in client.chat.completions.create(
            model="m", messages=messages, tools=tools, stream=True
        ):
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for one in delta.tool_calls or ():
                assert one.function
                if one.function.name:
                    listed[one.index] = [one.function.name, ""]
                listed[one.index][1] += one.function.arguments or ""
        return text, {name: json.loads(said) for name, said in listed.values()}


def responses(scene: Scene, *, stream: bool) -> Asked:
    tools: Any = [
        {"type": "function", **one, "parameters": SCHEMA, "strict": None} for one in NAMES
    ]
    with scene.openai() as client:
        if stream:
            with client.responses.stream(model="m", input=SAID, tools=tools) as events:
                text, numbers = "", []
                for event in events:
                    numbers.append(event.sequence_number)
                    if event.type == "response.output_text.delta":
                        text += event.delta
                assert numbers == [*range(len(numbers))]
                whole: Any = events.get_final_response()
            assert whole.output_text == text
        else:
            whole = client.responses.create(model="m", input=SAID, tools=tools)
        calls = [one for one in whole.output if one.type == "function_call"]
        return whole.output_text, {one.name: json.loads(one.arguments) for one in calls}


def messages(scene: Scene, *, stream: bool) -> Asked:
    tools: Any = [{**one, "input_schema": SCHEMA} for one in NAMES]
    asked: Any = {"model": "m", "max_tokens": 9, "tools": tools}
    asked["messages"] = [{"role": "user", "content": [{"type": "text", "text": SAID}]}]
    with scene.anthropic() as client:
        if stream:
            with client.messages.stream(**asked) as events:
                whole: Any = events.get_final_message()
        else:
            whole = client.messages.create(**asked)
    calls = {one.name: one.input for one in whole.content if one.type == "tool_use"}
    return "".join(one.text for one in whole.content if one.type == "text"), calls


def gemini(scene: Scene, *, stream: bool) -> Asked:
    del stream
    body = {"contents": [{"role": "user", "parts": [{"text": SAID}]}], "tools": [{"x": 1}]}
    answer = scene.post("/model/v1beta/models/m:generateContent", body).json()
    text, *calls = answer["candidates"][0]["content"]["parts"]
    found = [one["functionCall"] for one in calls]
    return text["text"], {one["name"]: one["args"] for one in found}


def ollama(scene: Scene, *, stream: bool) -> Asked:
    said = [{"role": "user", "content": SAID}]
    body = {"model": "m", "messages": said, "stream": stream, "tools": [{"x": 1}]}
    answer = scene.post("/model/api/chat", body)
    messages = [json.loads(line)["message"] for line in answer.text.splitlines()]
    calls = [one["function"] for one in messages[-1]["tool_calls"]]
    return "".join(m["content"] for m in messages), {c["name"]: c["arguments"] for c in calls}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ask", [chat, responses, messages, gemini, ollama])
def test_the_provider_sees_surrogates_and_the_client_its_values(
    scene: Scene, ask: Callable[..., Asked], stream: bool
) -> None:
    text, calls = ask(scene, stream=stream)
    assert text == f"You said: {SAID}!"
    assert calls["send"] == {"to": SAID}
    for name in ("fetch", "look_up"):  # no tool gets what policy does not give it
        assert not any(value in calls[name]["to"] for value in VALUES)
        assert len(FORM.findall(calls[name]["to"])) >= 4
    sent = scene.upstream.seen[-1]
    assert not any(value.encode() in sent.body for value in VALUES)
    exchange = scene.gateway.exchange()
    assert exchange.request.body == sent.body
    assert exchange.response is not None
    assert not any(value.encode() in exchange.response.body for value in VALUES)
    assert exchange.subjects


def test_a_conversation_keeps_its_surrogates_and_another_has_others(scene: Scene) -> None:
    def sent(*said: str, session: str) -> list[str]:
        told = [{"role": "user", "content": one} for one in said]
        body = {"model": "m", "messages": told}
        headers = {"x-headrace-session": session}
        assert scene.post("/model/v1/chat/completions", body, **headers).status_code == 200
        scene.gateway.exchange()
        got = json.loads(scene.upstream.seen[-1].body)
        return [one["content"] for one in got["messages"]]

    first = sent(SAID, session="a")
    again = sent(SAID, "And now?", session="a")
    assert again[0] == first[0]
    assert sent(SAID, session="b") != first


def test_a_tool_gets_back_what_it_said_itself(scene: Scene) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    body = {
        "model": "m",
        "tools": [{"type": "function", "function": NAMES[0]}],
        "messages": [
            {"role": "user", "content": "Who is it?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": json.dumps({"email": EMAIL})},
            {"role": "user", "content": f"Write to {EMAIL}, card {CARD}."},
        ],
    }
    answer = scene.post("/model/v1/chat/completions", body).json()
    scene.gateway.exchange()
    said = {
        one["function"]["name"]: one["function"]["arguments"]
        for one in answer["choices"][0]["message"]["tool_calls"]
    }
    assert EMAIL in said["look_up"]
    assert CARD not in said["look_up"]
    assert EMAIL not in said["fetch"]


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        ("/model/v1/embeddings", {"input": SAID}, {}),
        ("/model/v1/chat/completions", b"{nonsense", {"content-type": "application/json"}),
        ("/model/v1/chat/completions", b"\x1f\x8b", {"content-encoding": "gzip"}),
        ("/model/v1/responses", {"input": SAID, "previous_response_id": "resp_1"}, {}),
        ("/model/v1/threads/t/messages", {"role": "user", "content": SAID}, {}),
    ],
)
def test_what_cannot_be_read_is_refused(
    scene: Scene, path: str, content: Any, headers: dict[str, str]
) -> None:
    before = len(scene.upstream.seen)
    answer = scene.post(path, content, **headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert len(scene.upstream.seen) == before
    exchange = scene.gateway.exchange()
    assert exchange.outcome is ExchangeOutcome.REFUSED
    assert exchange.request.body == b""


UPGRADE = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}


def test_doors_that_cannot_be_read_are_refused_before_they_open(scene: Scene) -> None:
    """A WebSocket, and AWS, whose errors have a header of their own."""
    before = len(scene.upstream.seen)
    headers = {"authorization": f"Bearer {scene.gateway.key}", **UPGRADE}
    headers["sec-websocket-key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    answer = httpx.get(f"{scene.gateway.url}/model/v1/responses", headers=headers)
    assert answer.status_code == 400
    assert "cannot be read" in answer.json()["error"]["message"]
    scene.gateway.exchange()
    said = {"messages": [{"role": "user", "content": [{"text": SAID}]}]}
    for verb in ("converse", "converse-stream", "invoke-with-response-stream"):
        answer = scene.post(f"/model/model/anthropic.claude-v2/{verb}", said)
        assert answer.status_code == 400
        assert answer.headers["x-amzn-errortype"] == "ValidationException"
        assert "cannot be read" in answer.json()["message"]
        scene.gateway.exchange()
    assert len(scene.upstream.seen) == before


def test_refusals_have_the_shape_of_the_client_s_provider(scene: Scene) -> None:
    with scene.anthropic() as client, pytest.raises(anthropic.BadRequestError) as refused:
        client.post("/v1/messages", body={"messages": "none"}, cast_to=object)
    assert "cannot be read" in refused.value.message
    scene.gateway.exchange()


SAID_ELSEWHERE = {"x-user-email": EMAIL, "x-title": f"For {EMAIL}", "baggage": f"user={EMAIL}"}


def test_queries_and_headers_get_surrogates_too(scene: Scene) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": f"I am {EMAIL}"}]}
    path = f"/model/v1/chat/completions?user={EMAIL.replace('@', '%40')}&key=Xy12zw9&{EMAIL}"
    answer = scene.post(path, body, **SAID_ELSEWHERE)
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: I am {EMAIL}!"
    sent, exchange = scene.upstream.seen[-1], scene.gateway.exchange()
    (name,) = set(FORM.findall(sent.body.decode()))
    assert sent.target == f"/v1/chat/completions?user={name}&key=Xy12zw9&{name}"
    assert sent.header("x-user-email") == name
    assert sent.header("x-title") == f"For {name}"
    assert EMAIL not in str(sent.headers)
    assert exchange.request.body == sent.body
    assert EMAIL not in str(exchange.request)
    assert exchange.subjects


def test_requests_without_a_body_are_looked_into(scene: Scene) -> None:
    url = f"{scene.gateway.url}/model/v1/models"
    headers = {"authorization": f"Bearer {scene.gateway.key}", **SAID_ELSEWHERE}
    httpx.get(url, params={"after": EMAIL, "limit": "5"}, headers=headers)
    sent, exchange = scene.upstream.seen[-1], scene.gateway.exchange()
    assert sent.method == "GET"
    assert sent.body == b""
    assert EMAIL not in f"{sent.target}{sent.headers}{exchange.request}"
    assert FORM.search(sent.target)
    assert sent.target.endswith("&limit=5")


def test_other_routes_and_other_requests_go_on_as_they_are(scene: Scene) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    answer = scene.post("/other/v1/chat/completions", body)
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: {SAID}!"
    assert json.loads(scene.upstream.seen[-1].body) == body
    assert scene.gateway.exchange().subjects is None


def test_requests_without_anything_personal_go_on_byte_for_byte(scene: Scene) -> None:
    body = b'{"model" :"m", "messages": [{"role":"user","content":"What is 1 + 1?"} ] }'
    scene.post("/model/v1/chat/completions", body, **{"content-type": "application/json"})
    assert scene.upstream.seen[-1].body == body
    assert scene.gateway.exchange().subjects is None


def test_the_record_still_names_the_end_user(scene: Scene) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "user": EMAIL}
    assert scene.post("/model/v1/chat/completions", body).status_code == 200
    sent = scene.upstream.seen[-1]
    assert EMAIL.encode() not in sent.body
    assert sent.header("x-headrace-end-user") is None
    call = read_exchange(scene.gateway.exchange())
    assert call.end_user == EMAIL


def test_metrics_count_what_was_done(scene: Scene) -> None:
    lines = scene.metrics().splitlines()
    told = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("headrace_inline")
    }
    outcome = 'headrace_inline_total{{outcome="{}",route="model"}}'
    assert told[outcome.format("replaced")] >= 6
    assert told[outcome.format("clean")] >= 1
    assert told[outcome.format("unreadable_refused")] >= 5
    counted = 'headrace_inline_surrogates_total{{route="model",what="{}"}}'
    assert told[counted.format("restored")] > 0
    assert told[counted.format("withheld")] > 0
    assert counted.format("unknown") not in told


def test_slow_detection_is_refused_or_passed_as_policy_says(tmp_path: Path) -> None:
    hard = {
        "model": "m",
        "messages": [{"role": "user", "content": f"{SAID} {at}"} for at in range(400)],
    }
    with Upstream(echo) as upstream:
        routes = [{"name": "model", "upstream": upstream.url}]
        for failing, status in (("refuse", 503), ("pass", 200)):
            home = tmp_path / failing
            setup = inline_setup(
                home / "policy", routes=["model"], on_failure=failing, budget_ms=10
            )
            with GatewayProcess(home, {"routes": routes}, inline=setup) as gateway:
                scene = Scene(gateway, upstream)
                answer = scene.post("/model/v1/chat/completions", hard)
                assert answer.status_code == status
                assert f"slow_{failing}" in scene.metrics()
    assert [json.loads(one.body) for one in upstream.seen] == [hard]
