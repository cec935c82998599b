"""Pseudonymisation on the wire: the provider sees surrogates, the client its own values, the lake neither more."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.echo import CALLED, echo
from tests.support.inline import inline_setup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, plain
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
    from google import genai
    from google.genai import types

    url = f"{scene.gateway.url}/model"
    client = genai.Client(api_key=scene.gateway.key, http_options=types.HttpOptions(base_url=url))
    declared: Any = [{**one, "parameters_json_schema": SCHEMA} for one in NAMES]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declared)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    asked: Any = {"model": "m", "contents": SAID, "config": config}
    models = client.models
    chunks = (
        models.generate_content_stream(**asked) if stream else [models.generate_content(**asked)]
    )
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]  # type: ignore[index, union-attr]
    client.close()
    calls = {one.function_call.name: one.function_call.args for one in parts if one.function_call}
    return "".join(one.text or "" for one in parts), calls


def ollama(scene: Scene, *, stream: bool) -> Asked:
    import ollama as sdk

    tools: Any = [{"type": "function", "function": {**one, "parameters": SCHEMA}} for one in NAMES]
    headers = {"Authorization": f"Bearer {scene.gateway.key}"}
    client = sdk.Client(host=f"{scene.gateway.url}/model", headers=headers)
    said = [{"role": "user", "content": SAID}]
    found: Any = client.chat("m", messages=said, tools=tools, stream=stream)
    messages = [one.message for one in (found if stream else [found])]
    client.close()
    calls = [one.function for message in messages for one in message.tool_calls or ()]
    text = "".join(one.content or "" for one in messages)
    return text, {one.name: dict(one.arguments) for one in calls}


@contextmanager
def bedrock(scene: Scene) -> Iterator[Any]:
    """Return boto3's client, which names its Headrace key in a header."""
    import boto3
    from botocore.config import Config

    def name_key(request: Any, **_: Any) -> None:
        request.headers["x-headrace-key"] = scene.gateway.key

    client = boto3.Session("AKIATEST", "secret", region_name="us-east-1").client(
        "bedrock-runtime",
        endpoint_url=f"{scene.gateway.url}/model",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=120),
    )
    client.meta.events.register("before-send.bedrock-runtime.*", name_key)
    yield client
    client.close()


def converse(scene: Scene, *, stream: bool) -> Asked:
    tools: Any = [{"toolSpec": {**one, "inputSchema": {"json": SCHEMA}}} for one in NAMES]
    asked: Any = {"modelId": "anthropic.claude-v2", "toolConfig": {"tools": tools}}
    asked["messages"] = [{"role": "user", "content": [{"text": SAID}]}]
    with bedrock(scene) as client:
        if not stream:
            blocks = client.converse(**asked)["output"]["message"]["content"]
            used = [one["toolUse"] for one in blocks if "toolUse" in one]
            text = "".join(one.get("text", "") for one in blocks)
            return text, {one["name"]: one["input"] for one in used}
        text, names, called = "", dict[int, str](), dict[int, str]()
        for event in client.converse_stream(**asked)["stream"]:
            if start := event.get("contentBlockStart"):
                names[start["contentBlockIndex"]] = start["start"]["toolUse"]["name"]
            if piece := event.get("contentBlockDelta"):
                at, delta = piece["contentBlockIndex"], piece["delta"]
                text += delta.get("text", "")
                called[at] = called.get(at, "") + delta.get("toolUse", {}).get("input", "")
    return text, {name: json.loads(called[at]) for at, name in names.items()}


def invoke(scene: Scene, *, stream: bool) -> Asked:
    body: Any = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9}
    body["tools"] = [{**one, "input_schema": SCHEMA} for one in NAMES]
    body["messages"] = [{"role": "user", "content": SAID}]
    asked: Any = {"modelId": "anthropic.claude-v2", "body": json.dumps(body)}
    asked["contentType"] = "application/json"
    with bedrock(scene) as client:
        if not stream:
            blocks = json.loads(client.invoke_model(**asked)["body"].read())["content"]
            calls = {one["name"]: one["input"] for one in blocks if one["type"] == "tool_use"}
            return blocks[0]["text"], calls
        pieces, names = dict[int, str](), dict[int, str]()
        for one in client.invoke_model_with_response_stream(**asked)["body"]:
            event = json.loads(one["chunk"]["bytes"])
            at = event.get("index")
            if event["type"] == "content_block_start":
                names[at] = event["content_block"].get("name", "")
            if event["type"] == "content_block_delta":
                delta = event["delta"]
                said = delta.get("text", delta.get("partial_json", ""))
                pieces[at] = pieces.get(at, "") + said
    return pieces[0], {name: json.loads(pieces[at]) for at, name in names.items() if name}


ASKS = [chat, responses, messages, gemini, ollama, converse, invoke]


@pytest.fixture(scope="module")
def realistic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("realistic")
    terms: dict[str, Any] = {"restore": {"to": ["client", "tool:send"]}, "budget_ms": 60000}
    setup = inline_setup(home / "policy", routes=["model"], surrogates="realistic", **terms)
    with Upstream(echo) as upstream:
        settings = {"routes": [{"name": "model", "upstream": upstream.url}]}
        with GatewayProcess(home, settings, inline=setup) as gateway:
            yield Scene(gateway, upstream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ask", ASKS)
def test_realistic_surrogates_come_back_as_tokens_do(
    realistic: Scene, ask: Callable[..., Asked], stream: bool
) -> None:
    text, calls = ask(realistic, stream=stream)
    assert text == f"You said: {SAID}!"
    assert calls["send"] == {"to": SAID}
    sent = realistic.upstream.seen[-1].body.decode()
    assert "@mail.invalid" in sent
    assert "4000 00" in sent
    for told in (sent, *(calls[name]["to"] for name in ("fetch", "look_up"))):
        assert not any(value in told for value in (*VALUES, *NAME.split()))
    assert "@mail.invalid" in calls["fetch"]["to"]
    exchange = realistic.gateway.exchange()
    assert exchange.request.body.decode() == sent
    assert exchange.subjects


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ask", ASKS)
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


@pytest.fixture(scope="module", params=["token", "realistic"])
def of_types(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """A gateway whose policy gives one tool mail addresses alone, and another one cards and names."""
    home = tmp_path_factory.mktemp(request.param)
    some = [{"tool": "send", "entities": ["EMAIL_ADDRESS"]}]
    some += [{"tool": "look_up", "entities": ["CREDIT_CARD", "PERSON"]}]
    setup = inline_setup(
        home / "policy",
        routes=["model"],
        surrogates=request.param,
        restore={"to": ["client", *some]},
        budget_ms=60000,
    )
    with Upstream(echo) as upstream:
        settings = {"routes": [{"name": "model", "upstream": upstream.url}]}
        with GatewayProcess(home, settings, inline=setup) as gateway:
            yield Scene(gateway, upstream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ask", ASKS)
def test_a_tool_gets_values_of_its_types_and_the_client_all(
    of_types: Scene, ask: Callable[..., Asked], stream: bool
) -> None:
    text, calls = ask(of_types, stream=stream)
    assert text == f"You said: {SAID}!"
    for name, may in (("send", {EMAIL}), ("look_up", {CARD, NAME}), ("fetch", set())):
        assert {value for value in VALUES if value in calls[name]["to"]} == may
    assert not any(value.encode() in of_types.upstream.seen[-1].body for value in VALUES)
    of_types.gateway.exchange()


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
        ("/model/v1/responses", {"input": SAID, "previous_response_id": "resp_unknown"}, {}),
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


@pytest.mark.parametrize("damaged", [b"\x1f\x8b\x08nonsense", b"no gzip at all"])
def test_an_answer_that_cannot_be_decoded_goes_on_with_its_encoding(
    scene: Scene, damaged: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_request: ReceivedRequest) -> Reply:
        kind = ("Content-Type", "application/json")
        return plain(200, damaged, kind, ("Content-Encoding", "gzip"))

    monkeypatch.setattr(scene.upstream, "script", broken)
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    headers = {"authorization": f"Bearer {scene.gateway.key}"}
    address = f"{scene.gateway.url}/model/v1/chat/completions"
    with httpx.stream("POST", address, json=body, headers=headers) as answer:
        raw = b"".join(answer.iter_raw())
    scene.gateway.exchange()
    assert answer.status_code == 200
    assert answer.headers.get_list("content-encoding") == ["gzip"]
    assert raw == damaged


UPGRADE = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}


def test_doors_that_cannot_be_read_are_refused_before_they_open(scene: Scene) -> None:
    """Realtime's WebSocket, and models of AWS with words of their own, whose errors have a header too."""
    before = len(scene.upstream.seen)
    headers = {"authorization": f"Bearer {scene.gateway.key}", **UPGRADE}
    headers["sec-websocket-key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    answer = httpx.get(f"{scene.gateway.url}/model/v1/realtime?model=m", headers=headers)
    assert answer.status_code == 400
    assert "cannot be read" in answer.json()["error"]["message"]
    scene.gateway.exchange()
    for verb in ("invoke", "invoke-with-response-stream"):
        answer = scene.post(f"/model/model/meta.llama3/{verb}", {"prompt": SAID})
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


def test_what_a_model_invents_stays_and_is_named(scene: Scene) -> None:
    torn, invented = "PERSON_bcdfghjklm", "EMAIL_bcdfghjklmnpqrstvw"
    said = [{"role": "user", "content": f"I am {NAME}, not {torn} nor {invented}."}]
    answer = scene.post("/model/v1/chat/completions", {"model": "m", "messages": said})
    scene.gateway.exchange()
    assert answer.headers["x-headrace-unknown-surrogates"] == f"{torn}, {invented}"
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: {said[0]['content']}!"
    plain = scene.post(
        "/model/v1/chat/completions", {"model": "m", "messages": [{**said[0], "content": NAME}]}
    )
    scene.gateway.exchange()
    assert "x-headrace-unknown-surrogates" not in plain.headers
    counted = 'headrace_inline_surrogates_total{route="model",what="unknown"} '
    assert counted in scene.metrics()


def test_of_a_stream_they_are_named_behind_it(scene: Scene) -> None:
    if scene.gateway.settings["listener"] != "plain":
        pytest.skip("mitmproxy passes no trailers of ours")
    said = [{"role": "user", "content": f"I am {NAME}, not PERSON_bcdfghjklm."}]
    body = json.dumps({"model": "m", "stream": True, "messages": said}).encode()
    place = urlsplit(scene.gateway.url)
    head = (
        f"POST /model/v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        f"authorization: Bearer {scene.gateway.key}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        got = b"".join(iter(lambda: connection.recv(65536), b""))
    scene.gateway.exchange()
    assert got.endswith(b"0\r\nx-headrace-unknown-surrogates: PERSON_bcdfghjklm\r\n\r\n")


@pytest.mark.parametrize("said", ["petra.ostrova%40example.org", "Petra%20Ostrova"])
def test_what_a_path_says_gets_surrogates_too(scene: Scene, said: str) -> None:
    url = f"{scene.gateway.url}/model/v1/users/{said}/models/gpt-4o-2024-08-06"
    httpx.get(url, headers={"authorization": f"Bearer {scene.gateway.key}"})
    sent, exchange = scene.upstream.seen[-1], scene.gateway.exchange()
    before, name, after = FORM.sub(" X ", sent.target).partition(" X ")
    assert (before, name, after) == ("/v1/users/", " X ", "/models/gpt-4o-2024-08-06")
    assert "Ostrova" not in str(exchange.request)
    assert exchange.subjects


SAID_ELSEWHERE = {
    "x-user-email": EMAIL,
    "x-title": f"For {EMAIL}",
    "baggage": f"user={EMAIL}",
    "x-auth-request-email": EMAIL,
    "x-portkey-metadata": f'{{"_user": "{EMAIL}"}}',
}


def test_queries_and_headers_get_surrogates_too(scene: Scene) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": f"I am {EMAIL}"}]}
    mail = EMAIL.replace("@", "%40")
    path = f"/model/v1/chat/completions?user={mail}&key=Xy12zw9&auth_user={mail}&{EMAIL}"
    answer = scene.post(path, body, **SAID_ELSEWHERE)
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: I am {EMAIL}!"
    sent, exchange = scene.upstream.seen[-1], scene.gateway.exchange()
    (name,) = set(FORM.findall(sent.body.decode()))
    assert sent.target == f"/v1/chat/completions?user={name}&key=Xy12zw9&auth_user={name}&{name}"
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


@pytest.mark.parametrize(
    "headers", [{"openai-safety-identifier": EMAIL}, {"baggage": f"enduser.id={EMAIL}"}]
)
def test_the_record_still_names_an_end_user_of_headers(
    scene: Scene, headers: dict[str, str]
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    assert scene.post("/model/v1/chat/completions", body, **headers).status_code == 200
    assert EMAIL not in str(scene.upstream.seen[-1].headers)
    assert read_exchange(scene.gateway.exchange()).end_user == EMAIL


@pytest.mark.parametrize("name", ["x-api-key", "x-goog-api-key", "x-auth-token", "x-my-apikey-id"])
def test_credentials_go_on_as_they_are(scene: Scene, name: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    given = "tr0ub4dor-Zx81-415-555-0132"
    assert scene.post("/model/v1/chat/completions", body, **{name: given}).status_code == 200
    scene.gateway.exchange()
    assert scene.upstream.seen[-1].header(name) == given


def test_metrics_count_what_was_done(scene: Scene) -> None:
    def counted() -> Counter[str]:
        lines = [
            line for line in scene.metrics().splitlines() if line.startswith("headrace_inline")
        ]
        return Counter(
            {name: int(float(n)) for name, _, n in (one.rpartition(" ") for one in lines)}
        )

    def ask(said: str, **more: Any) -> None:
        messages = [{"role": "user", "content": said}]
        scene.post("/model/v1/chat/completions", {"model": "m", "messages": messages, **more})
        scene.gateway.exchange()

    before = counted()
    ask(SAID, tools=[{"type": "function", "function": one} for one in NAMES])
    ask("What is 1 + 1?")
    scene.post("/model/v1/embeddings", {"input": SAID})
    scene.gateway.exchange()
    found = counted() - before
    outcome = 'headrace_inline_total{{outcome="{}",route="model"}}'
    for what in ("replaced", "clean", "unreadable_refused"):
        assert found[outcome.format(what)] == 1
    names = 'headrace_inline_surrogates_total{{route="model",what="{}"}}'
    issued = found[names.format("issued")]
    assert issued >= len(VALUES)
    assert found[names.format("restored")] == 2 * issued  # the text, and the tool that may have it
    assert found[names.format("withheld")] == 2 * issued
    assert names.format("unknown") not in found


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
