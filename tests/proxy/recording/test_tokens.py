"""Token-level capture: the spool has the engine's whole answer, the client only what it asked for."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.recording.tokens import AddedFields, StreamStripper, ask, strip_json, token_dialect
from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, stream

BOTH = AddedFields(b"", token_ids=True, logprobs=True)


def engine(request: ReceivedRequest) -> Reply:
    """Answer like vLLM: extra fields only when they were asked for."""
    body = json.loads(request.body)
    extra: dict[str, Any] = {}
    if body.get("return_token_ids"):
        extra["token_ids"] = [7, 8]
    if body.get("logprobs"):
        extra["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.5, "top_logprobs": []}]}
    base = {"id": "chatcmpl-9", "created": 1, "model": "m"}
    if body.get("return_token_ids"):
        base["prompt_token_ids"] = [1, 2, 3]
    if body.get("stream"):
        said = "\ud83d" if body["messages"][0]["content"] == "half" else "Hi é"
        delta = {"index": 0, "delta": {"role": "assistant", "content": said}, **extra}
        chunk = {**base, "object": "chat.completion.chunk", "choices": [delta]}
        data = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        return stream([data[:30], data[30:55], data[55:]], pause=0.01)
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "finish_reason": "stop", "message": message, **extra}
    return as_json({**base, "object": "chat.completion", "choices": [choice]})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with Upstream(engine) as upstream:
        routes = [{"name": "vllm", "upstream": upstream.url, "capture": "tokens"}]
        with GatewayProcess(tmp_path_factory.mktemp("tokens"), {"routes": routes}) as running:
            yield running


def client_of(gateway: GatewayProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/vllm/v1", api_key=gateway.key, max_retries=0)


MESSAGES: Any = [{"role": "user", "content": "hello"}]


def test_whole_answers(gateway: GatewayProcess) -> None:
    with client_of(gateway) as client:
        answer = client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "Hi"
    seen = answer.to_dict()
    assert "prompt_token_ids" not in seen
    assert answer.choices[0].logprobs is None
    exchange = gateway.exchange()
    sent = json.loads(exchange.request.body)
    assert (sent["return_token_ids"], sent["logprobs"], sent["top_logprobs"]) == (True, True, 0)
    assert exchange.response is not None
    kept = json.loads(exchange.response.body)
    assert kept["prompt_token_ids"] == [1, 2, 3]
    assert kept["choices"][0]["token_ids"] == [7, 8]


def test_streams(gateway: GatewayProcess) -> None:
    with client_of(gateway) as client:
        chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert [c.choices[0].delta.content for c in chunks] == ["Hi é"]
    assert "token_ids" not in chunks[0].to_json()
    assert chunks[0].choices[0].logprobs is None
    exchange = gateway.exchange()
    assert exchange.response is not None
    assert b'"token_ids": [7, 8]' in exchange.response.body
    assert exchange.response.body.endswith(b"data: [DONE]\n\n")


def test_a_stream_with_half_of_a_character_reaches_its_client(gateway: GatewayProcess) -> None:
    """Engines that cut texts by UTF-16 units send such a half as an escape; as bytes nobody could read it."""
    half: Any = [{"role": "user", "content": "half"}]
    with client_of(gateway) as client:
        chunks = list(client.chat.completions.create(model="m", messages=half, stream=True))
    assert [c.choices[0].delta.content for c in chunks] == ["\ud83d"]
    gateway.exchange()


def test_what_the_client_asked_for_stays(gateway: GatewayProcess) -> None:
    with client_of(gateway) as client:
        answer = client.chat.completions.create(model="m", messages=MESSAGES, logprobs=True)
    assert answer.choices[0].logprobs is not None
    assert "prompt_token_ids" not in answer.to_dict()
    gateway.exchange()


def test_a_request_with_half_of_a_character_stays_valid() -> None:
    asked = ask(b'{"prompt": "\\ud83d"}', "openai.completions")
    assert asked is not None
    assert json.loads(asked.body.decode())["prompt"] == "\ud83d"


def test_what_is_not_understood_passes() -> None:
    assert ask(b"not json") is None
    assert ask(b'{"n": 2}') is None
    assert ask(b'{"logprobs": true, "return_token_ids": true}') is None
    assert ask(b'{"prompt": ["a", "b"]}', "openai.completions") is None
    assert ask(b'{"logprobs": 0, "return_token_ids": true}', "openai.completions") is None
    assert strip_json(b"nope", BOTH) == b"nope"
    plain = b'{"choices": [ ]}'
    assert strip_json(plain, BOTH) is plain
    json_head = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    ends = {b"/v1/chat/completions?x=1": "openai.chat", b"/v1/completions": "openai.completions"}
    ends |= {b"/v1/responses": "openai.responses", b"/v1/messages": "anthropic.messages"}
    for path, dialect in ends.items():
        assert token_dialect(b"POST", path, json_head) == dialect
    assert not token_dialect(b"POST", b"/v1/threads/t/messages", json_head)
    assert not token_dialect(b"GET", b"/v1/chat/completions", json_head)
    assert not token_dialect(b"POST", b"/v1/models", json_head)
    assert not token_dialect(b"POST", b"/v1/chat/completions", json_head[:1])


LINES = st.sampled_from(
    [
        b'data: {"choices":[{"token_ids":[1],"logprobs":{"a":1},"delta":{"content":"x"}}]}\n',
        b'data: {"prompt_token_ids":[1],"choices":[]}\r\n',
        b"data: [DONE]\n",
        b": comment\n",
        b"\n",
        b"data: {broken\n",
        b"event: x\n",
    ]
)


@given(lines=st.lists(LINES, max_size=8), tail=st.binary(max_size=10), cuts=st.data())
def test_any_chunk_boundaries_give_the_same(
    lines: list[bytes], tail: bytes, cuts: st.DataObject
) -> None:
    whole = b"".join(lines) + tail
    at = sorted(cuts.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    one, many = StreamStripper(BOTH), StreamStripper(BOTH)
    expected = one.feed(whole) + one.close()
    pieces = [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]
    assert b"".join(many.feed(piece) for piece in pieces) + many.close() == expected
    assert b'"token_ids"' not in expected.replace(tail, b"")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_pass(data: bytes) -> None:
    stripper = StreamStripper(BOTH)
    out = stripper.feed(data) + stripper.close()
    if b"data:" not in data:
        assert out == data
