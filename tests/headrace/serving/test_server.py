"""The models' server in OpenAI's wire format, spoken to with OpenAI's own client."""

import json
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.serving.request import read_model_request
from headrace.serving.server import ModelServer, PreviousResponses, UnknownResponseError
from tests.headrace.serving.dialects import PATHS, Said, written
from tests.headrace.serving.scripted import ScriptedNetwork
from tests.trajectory.world import World
from train.generation import Engine, Generation, LanguageModel
from train.types import Sampling, Token
from trajectory.dialects.openai_chat.read import read_tokens
from trajectory.dialects.registry import read_exchange
from trajectory.errors import ConfigurationError
from trajectory.message import Message, TextPart

LABEL = "shop@0001"


@pytest.fixture(scope="module")
def url(engine: Engine[LanguageModel]) -> Iterator[str]:
    with ModelServer({LABEL: engine}, key="sk-gate").listen("127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-gate", max_retries=0) as client:
        yield client


def test_a_server_without_a_key_is_none() -> None:
    # What nobody sent would be the right key.
    with pytest.raises(ConfigurationError, match="key"):
        ModelServer({}, key="")


def ask(client: openai.OpenAI, **settings: Any) -> Any:
    given = {"temperature": 0, "max_tokens": 16, **settings}
    messages = given.pop("messages", [{"role": "user", "content": "What is the price?"}])
    return client.chat.completions.create(model=LABEL, messages=messages, **given)


def test_streamed_and_whole_answers_are_the_same(client: openai.OpenAI) -> None:
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content
    assert said
    ends = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert ends[-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage
    assert {chunk.model for chunk in chunks} == {whole.model} == {LABEL}


def test_exact_tokens_come_as_vllm_gives_them(client: openai.OpenAI) -> None:
    extra = {"return_token_ids": True}
    whole = ask(client, logprobs=True, top_logprobs=2, extra_body=extra).model_dump()
    tokens = read_tokens(whole, whole["choices"][0])
    assert tokens is not None
    assert tokens.logprobs is not None
    assert len(tokens.completion_token_ids) == whole["usage"]["completion_tokens"]
    assert len(tokens.logprobs) == len(tokens.completion_token_ids)
    assert len(tokens.prompt_token_ids or ()) == whole["usage"]["prompt_tokens"]
    chunks = [c.model_dump() for c in ask(client, stream=True, logprobs=True, extra_body=extra)]
    streamed = [i for c in chunks for i in c["choices"][0].get("token_ids") or []]
    assert tuple(streamed) == tokens.completion_token_ids
    assert [c["prompt_token_ids"] for c in chunks if c.get("prompt_token_ids")] == [
        list(tokens.prompt_token_ids or ())
    ]


def test_a_stop_text_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    text = ask(client).choices[0].message.content
    stop = text[2:4]
    cut = ask(client, stop=[stop]).choices[0]
    assert (cut.message.content, cut.finish_reason) == (text[: text.index(stop)], "stop")
    chunks = ask(client, stop=stop, stream=True)
    said = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert said == cut.message.content


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n": 2}, "n: this server"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"temperature": 3}, "temperature lies"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens, seed and top_logprobs are whole"),
        ({"max_tokens": 2.7}, "max_tokens, seed and top_logprobs are whole"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs are whole"),
        ({"stop": [f"stop {n}" for n in range(17)]}, "stop: at most 16"),
        ({"max_tokens": 1000}, "exceed the context"),
        ({"messages": []}, "messages"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}],
                    }
                ]
            },
            "cannot be shown",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_field(
    client: openai.OpenAI, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=text):
        ask(client, **settings)


def test_text_that_is_no_unicode_is_shown_as_it_is_captured(url: str) -> None:
    """A lone surrogate becomes the replacement character, here as in the lake."""
    prompts = []
    for text in ("\\ud800", "\ufffd"):
        body = f'{{"model": "{LABEL}", "messages": [{{"role": "user", "content": "{text}"}}], '
        body += '"return_token_ids": true, "max_tokens": 2}'
        headers = {"authorization": "Bearer sk-gate"}
        answer = httpx.post(f"{url}/v1/chat/completions", content=body.encode(), headers=headers)
        prompts.append(answer.json()["prompt_token_ids"])
    assert prompts[0] == prompts[1]


def test_a_long_prompt_holds_up_nobody(client: openai.OpenAI, url: str) -> None:
    messages = [{"role": "user", "content": "lamp " * 600_000}]
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        long = pool.submit(ask, client, messages=messages)
        waited = []
        while not long.done():
            asked = time.monotonic()
            assert httpx.get(f"{url}/health", timeout=60).status_code == 200
            waited.append(time.monotonic() - asked)
        took = time.monotonic() - began
    assert isinstance(long.exception(), openai.BadRequestError)
    assert max(waited) < took / 2


class HeldNetwork(ScriptedNetwork):
    """Reads no prompt before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.may_read = threading.Event(), threading.Event()

    def begin(self, prompt: Sequence[int]) -> tuple[list[int], Any]:
        self.reads.set()
        assert self.may_read.wait(60)
        return super().begin(prompt)


class CountingEngine(Engine[Any]):
    """Counts what it is asked."""

    asked = 0

    def submit(self, *asked: Any) -> Generation:
        self.asked += 1
        return super().submit(*asked)


@pytest.mark.parametrize("stream", [True, False])
def test_nothing_is_read_for_clients_that_left(stream: bool) -> None:
    network = HeldNetwork()
    engine = CountingEngine(network)
    body = {"model": LABEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    sent = json.dumps(body).encode()
    head = f"authorization: Bearer sk-gate\r\ncontent-length: {len(sent)}"
    with ModelServer({LABEL: engine}, key="sk-gate").listen("127.0.0.1", 0) as server:
        waiting = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        for one in waiting:
            one.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n".encode())
            one.sendall(sent)
        until(lambda: engine.asked == len(waiting))
        assert network.reads.wait(60)
        for one in waiting:
            one.close()
        until(lambda: not server.clients)
        network.may_read.set()
        with openai.OpenAI(
            base_url=f"http://127.0.0.1:{server.port}/v1", api_key="sk-gate", max_retries=0
        ) as client:
            assert ask(client).choices[0].message.content
        engine.stop()
    assert len(network.prompts) == 2


def test_long_and_short_prompts_are_read_by_turns() -> None:
    network = HeldNetwork()
    network.slots = 100
    engine: Engine[Any] = Engine(network)
    ended: queue.SimpleQueue[Token | None] = queue.SimpleQueue()

    def end(token: Token | None) -> None:
        if token is None or token.last is not None:
            ended.put(token)

    engine.submit([1] * 50, Sampling(), end)
    assert network.reads.wait(60)
    for size in (50, 50, 50, 50, 2, 3, 3):
        engine.submit([1] * size, Sampling(), end)
    network.may_read.set()
    for _ in range(8):
        assert ended.get(timeout=60) is not None
    engine.stop()
    engine.join(60)
    sizes = [len(prompt) for prompt in network.prompts]
    assert sizes == [50, 50, 2, 50, 3, 50, 3, 50]


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_half_sent_bodies_are_held_up_to_a_bound(engine: Engine[LanguageModel]) -> None:
    half = (
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-gate\r\n"
        "content-length: 60000\r\n\r\n" + " " * 40_000
    ).encode()
    server = ModelServer({LABEL: engine}, key="sk-gate", bodies_bytes=100_000)
    with server.listen("127.0.0.1", 0) as running:
        held = [socket.create_connection(("127.0.0.1", running.port), 10) for _ in range(3)]
        for one in held:
            one.settimeout(10)
            one.sendall(half)
        ready, _, _ = select.select(held, [], [], 10)
        assert [one.recv(12) for one in ready] == [b"HTTP/1.1 503"]
        for one in held:
            one.close()
        # What they held is free again.
        body = {"model": LABEL, "prompt": "x" * 70_000, "max_tokens": 1}
        deadline = time.monotonic() + 10
        while True:
            url, key = f"http://127.0.0.1:{running.port}/v1/completions", {"x-api-key": "sk-gate"}
            said = httpx.post(url, json=body, headers=key, timeout=30)
            if said.status_code != 503 or time.monotonic() > deadline:
                break
        assert said.status_code in (200, 400)


def test_versions_are_listed_and_others_are_not_there(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [LABEL]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="shop", messages=[{"role": "user", "content": "hi"}])


def test_without_the_key_nothing_is_said(url: str) -> None:
    for key in ("x", "sk-gat", "sk-gate\xe9"):
        headers = {"authorization": f"Bearer {key}".encode("latin-1")}
        answer = httpx.get(f"{url}/v1/models", headers=headers, trust_env=False)
        assert answer.status_code == 401
    assert httpx.get(f"{url}/health", trust_env=False).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "header", "kind"),
    [
        ("/v1/models", "authorization", "openai"),
        ("/v1/models", "x-api-key", "anthropic"),
        ("/v1beta/models", "x-goog-api-key", "google"),
        ("/api/tags", "authorization", "ollama"),
    ],
)
def test_each_api_has_its_list_and_its_errors(url: str, path: str, header: str, kind: str) -> None:
    own = {"anthropic-version": "2023-06-01"} if kind == "anthropic" else {}
    key = "Bearer sk-gate" if header == "authorization" else "sk-gate"
    answer = httpx.get(f"{url}{path}", headers={header: key, **own}, trust_env=False)
    lists = {
        "openai": lambda value: value["data"][0]["id"],
        "anthropic": lambda value: value["first_id"],
        "google": lambda value: value["models"][0]["name"].removeprefix("models/"),
        "ollama": lambda value: value["models"][0]["model"],
    }
    assert lists[kind](answer.json()) == LABEL
    refused = httpx.get(f"{url}{path}", headers={header: f"{key}x", **own}, trust_env=False)
    assert refused.status_code == 401
    told = refused.json()
    text = told["error"] if kind == "ollama" else told["error"]["message"]
    assert text == "the key of this server is needed"
    assert (told.get("type") == "error") is (kind == "anthropic")
    if kind == "google":
        assert told["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("stream", [False, True])
def test_a_greedy_answer_is_the_same_tokens_in_every_api(url: str, stream: bool) -> None:
    """With exact tokens where the API has a place for them; they are read as a gateway reads them."""
    turns = [Said(user="Hi."), Said(text="Hello."), Said(user="What is the price?")]
    found = {}
    for dialect in PATHS:
        path, body = written(dialect, LABEL, "Be brief.", turns, [])
        most = {"max_tokens": 16, "max_output_tokens": 16, "temperature": 0}
        body |= {**most, "return_token_ids": True, "logprobs": dialect != "ollama"}
        body["options"] = {"num_predict": 16, "temperature": 0}
        own = {"maxOutputTokens": 16, "temperature": 0, "responseLogprobs": True}
        body["generationConfig"] = own
        body |= {"stream": stream, "stream_options": {"include_usage": True}}
        if stream:
            path = path.replace(":generate", ":streamGenerate")
        headers = {"authorization": "Bearer sk-gate"}
        answer = httpx.post(f"{url}{path}", json=body, headers=headers, trust_env=False)
        assert answer.status_code == 200, answer.text
        kind = {"content-type": answer.headers["content-type"]}
        call = read_exchange(World().exchange(path, body, answer.content, response_headers=kind))
        assert call.output is not None
        found[dialect] = (call.output.text(), call.usage, call.tokens)
    text, usage, tokens = found["openai.chat"]
    assert tokens is not None
    assert tokens.logprobs is not None
    for dialect, (said, counted, exact) in found.items():
        assert (said, counted.output_tokens, counted.input_tokens) == (
            text,
            usage.output_tokens,
            usage.input_tokens,
        )
        if dialect in ("openai.responses", "anthropic.messages"):
            assert exact == tokens
        elif dialect == "google.gemini":
            assert exact == replace(tokens, prompt_token_ids=None)
    prompt = list(tokens.prompt_token_ids or ())
    body = {"model": LABEL, "prompt": prompt, "max_tokens": 16, "temperature": 0}
    body |= {"return_token_ids": True, "logprobs": 0, "stream": stream}
    headers = {"authorization": "Bearer sk-gate"}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=headers, trust_env=False)
    kind = {"content-type": answer.headers["content-type"]}
    path = "/v1/completions"
    call = read_exchange(World().exchange(path, body, answer.content, response_headers=kind))
    assert call.tokens == tokens


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_kept_responses_are_bounded_and_go_on_or_are_not_known(
    rounds: list[tuple[int, int]],
) -> None:
    previous, whole = PreviousResponses(limit_bytes=1000), dict[str, tuple[Message, ...]]()
    for number, (before, size) in enumerate(rounds):
        name = f"resp_{before}" if before < number else None
        own = (Message("user", (TextPart("x" * size),)),)
        body = json.dumps({"model": "m", "input": "x" * size, "previous_response_id": name})
        asked = read_model_request("/v1/responses", "", (), body.encode())
        try:
            context = previous.continued(asked).context
        except UnknownResponseError:  # it was forgotten
            continue
        assert context == (*whole.get(name or "", ()), *own)
        whole[f"resp_{number}"] = context
        previous.keep(asked, own, f"resp_{number}")
        assert previous.size <= 1000


_ASKED = b'{"messages": [{"role": "user", "content": "hi"}], '


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"messages": "x"}',
        b"[" * 100_000,
        _ASKED + b'"stop": 5}',
        _ASKED + b'"tools": 5}',
        _ASKED + b'"temperature": %d}' % 10**400,
        _ASKED + b'"max_tokens": 1e999}',
    ],
)
def test_bodies_that_make_no_sense_are_refused(url: str, body: bytes) -> None:
    headers = {"authorization": "Bearer sk-gate"}
    answer = httpx.post(
        f"{url}/v1/chat/completions", content=body, headers=headers, trust_env=False
    )
    assert answer.status_code == 400
    assert json.loads(answer.content)["error"]["type"] == "invalid_request_error"
