"""Usage: the same tokens whatever the pieces, of every provider's shape; estimated where none is told."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clients.paid_calls import PaidCall, paid_call
from proxy.clients.usage import SpentTokens, UsageMeter, is_estimable
from tests.support.provider.bedrock import event_message


def sse(*values: object) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(value).encode() for value in values)


ANSWERS = {
    "openai": (
        b'{"usage": {"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42,'
        b'"prompt_tokens_details": {"cached_tokens": 7}}}',
        42,
    ),
    "anthropic stream": (
        sse(
            {
                "message": {
                    "usage": {"input_tokens": 20, "cache_read_input_tokens": 5, "output_tokens": 1}
                }
            },
            {"delta": {}, "usage": {"output_tokens": 17}},
        ),
        42,
    ),
    "gemini": (
        b'{"usageMetadata":{"promptTokenCount":40,"candidatesTokenCount":2,"totalTokenCount":42}}',
        42,
    ),
    "bedrock": (b'\x00\x01{"usage":{"inputTokens":40,"outputTokens":2,"totalTokens":42}}', 42),
    "ollama": (b'{"prompt_eval_count":40,"eval_count":2,"done":true}', 42),
    "said by the model": (
        json.dumps({"content": '{"total_tokens": 999999}', "usage": {"total_tokens": 42}}).encode(),
        42,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@given(cuts=st.lists(st.integers(0, 250), max_size=6))
def test_any_pieces_give_the_same(name: str, cuts: list[int]) -> None:
    body, expected = ANSWERS[name]
    at = sorted(min(cut, len(body)) for cut in cuts)
    meter = UsageMeter()
    for begin, end in zip([0, *at], [*at, len(body)], strict=True):
        meter.feed(body[begin:end])
    assert meter.reported
    assert meter.tokens(1000) == expected


PRICED = {
    "openai": (
        b'{"model": "gpt-5-mini-2025-08-07", "choices": [{"text": "{\\"model\\": \\"x\\"}"}], "usage": '
        b'{"prompt_tokens": 12, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 7}}}',
        ("gpt-5-mini-2025-08-07", SpentTokens(12, 7, 30)),
    ),
    "anthropic stream": (
        sse(
            {
                "message": {
                    "model": "claude-opus-5",
                    "usage": {"input_tokens": 20, "cache_read_input_tokens": 5,
                              "cache_creation_input_tokens": 3, "output_tokens": 1},
                }
            },
            {"delta": {}, "usage": {"output_tokens": 17}},
        ),
        ("claude-opus-5", SpentTokens(28, 5, 17)),
    ),
    "gemini": (
        b'{"usageMetadata":{"promptTokenCount":40,"cachedContentTokenCount":30,"candidatesTokenCount":2,'
        b'"thoughtsTokenCount":8,"totalTokenCount":50},"modelVersion":"gemini-2.5-pro"}',
        ("gemini-2.5-pro", SpentTokens(40, 30, 10)),
    ),
    "gemini with a call that names a model": (
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"ask","args":{"model":"cheap",'
        b'"modelVersion":"cheap"}}}]}}],"usageMetadata":{"promptTokenCount":4},'
        b'"modelVersion":"gemini-2.5-pro"}',
        ("gemini-2.5-pro", SpentTokens(4, 0, 0)),
    ),
    "a total alone": (b'{"usage": {"total_tokens": 42}}', (None, SpentTokens(0, 0, 42))),
}  # fmt: skip


@pytest.mark.parametrize("name", PRICED)
@given(cuts=st.lists(st.integers(0, 250), max_size=6))
def test_tokens_are_told_apart_as_prices_are_for_them(name: str, cuts: list[int]) -> None:
    body, expected = PRICED[name]
    at = sorted(min(cut, len(body)) for cut in cuts)
    meter = UsageMeter()
    for begin, end in zip([0, *at], [*at, len(body)], strict=True):
        meter.feed(body[begin:end])
    assert (meter.model, meter.usage(1000)) == expected
    meter.next_message()
    meter.feed(body)
    assert (meter.model, meter.usage(1000)) == expected


def test_what_is_not_reported_is_estimated() -> None:
    streamed, whole = UsageMeter(), UsageMeter()
    streamed.feed(sse(*[{"delta": {"content": "x"}}] * 9))
    whole.feed(b"x" * 40)
    assert not streamed.reported
    assert (streamed.tokens(400), whole.tokens(400)) == (109, 110)
    assert (streamed.usage(400), whole.usage(400)) == (
        SpentTokens(100, 0, 9),
        SpentTokens(100, 0, 10),
    )


def test_each_message_of_a_connection_is_spent_for_itself() -> None:
    meter = UsageMeter()
    for said, model in (
        (b'"model":"cheap",', "cheap"),
        (b'"model":"dear",', "dear"),
        (b"", "dear"),
    ):
        meter.feed(b'{"id":"r",' + said + b'"usage":{"total_tokens":7}}')
        assert (meter.model, meter.tokens(0)) == (model, 7)
        meter.next_message()
        assert (meter.reported, meter.spent) == (False, True)
    meter = UsageMeter()
    for _ in range(2):  # a stream of which nothing is told is estimated at its end
        meter.feed(b"x" * 20)
        meter.next_message()
    assert (meter.spent, meter.tokens(0)) == (False, 10)


def test_only_json_is_estimated_by_its_length() -> None:
    for kind in (
        b"application/json; charset=utf-8",
        b"application/vnd.api+json",
        b"",
        b"text/plain",
    ):
        assert is_estimable(kind)
    for kind in (b"multipart/form-data; boundary=x", b"application/octet-stream", b"audio/wav"):
        assert not is_estimable(kind)


def metered(method: bytes, path: bytes, body: bytes) -> UsageMeter:
    call = paid_call(method, path)
    assert call is not None
    meter = UsageMeter(call)
    meter.feed(body)
    return meter


def test_conversations_cost_where_a_model_answers() -> None:
    answer = b'{"conversation_id":"c","usage":{"prompt_tokens":8,"connector_tokens":4,"total_tokens":15}}'
    for path in (b"/v1/conversations", b"/v1/conversations/c", b"/v1/conversations/c/restart"):
        told = metered(b"POST", path, answer)
        assert (told.due, told.tokens(0)) == (True, 15)
        assert not metered(b"POST", path, b'{"id":"conv_1","object":"conversation"}').due
        cut = metered(b"POST", path, b'data: {"type":"message.output.delta","content":"x"}\n\n' * 3)
        assert (cut.due, cut.tokens(0)) == (True, 3)
    assert paid_call(b"POST", b"/v1/conversations/c/items") is None


def test_an_interaction_in_the_background_is_told_by_its_look_up() -> None:
    path, name = b"/v1beta/interactions", "v1_Chd" + "x" * 150
    running = json.dumps({"id": name, "object": "interaction", "status": "in_progress"}).encode()
    assert not metered(b"POST", path, running).due
    done = json.dumps({"id": name, "status": "completed", "steps": [], "usage": USED}).encode()
    for meter in (
        metered(b"GET", path + b"/" + name.encode(), done),
        metered(b"POST", path, done),
    ):
        assert (meter.due, meter.told_again, meter.tokens(0)) == (True, name, 14)
    waiting = metered(b"GET", path + b"/" + name.encode(), running)
    assert not waiting.due
    # What a model puts into a call's arguments says nothing of the interaction.
    called = b'{"id":"i","status":"completed","steps":[{"arguments":{"status":"in_progress"}}]}'
    assert metered(b"POST", path, called).due
    assert paid_call(b"GET", path) is None


def test_a_deferred_chat_is_told_by_its_look_up() -> None:
    path = b"/v1/chat/completions"
    assert not metered(b"POST", path, b'{"request_id": "f15c114e-f47d"}\n').due
    assert metered(b"POST", path, b'{"request_id": "f15c", "choices": []}').due
    usage = {"prompt_tokens": 27, "completion_tokens": 48, "total_tokens": 75}
    done = json.dumps({"id": "c0", "model": "grok-4", "choices": [], "usage": usage}).encode()
    told = metered(b"GET", b"/v1/chat/deferred-completion/f15c114e-f47d", done)
    assert (told.due, told.told_again, told.tokens(0)) == (True, "f15c114e-f47d", 75)
    assert told.usage(0) == SpentTokens(27, 0, 48)
    assert not metered(b"GET", b"/v1/chat/deferred-completion/f15c114e-f47d", b"").due


def test_a_grader_tells_what_its_models_took() -> None:
    path = b"/v1/fine_tuning/alpha/graders/run"
    each = {"prompt_tokens": 20, "total_tokens": 25, "cached_tokens": 0, "completion_tokens": 5}
    said = {
        "reward": 1.0,
        "metadata": {"name": "both", "token_usage": 50},
        "model_grader_token_usage_per_model": {"gpt-a": each, "gpt-b": each},
    }
    told = metered(b"POST", path, json.dumps(said).encode())
    assert (told.due, told.tokens(0)) == (True, 50)
    checked = {**said, "metadata": {"token_usage": None}, "model_grader_token_usage_per_model": {}}
    assert not metered(b"POST", path, json.dumps(checked).encode()).due


USED = {"total_input_tokens": 9, "total_output_tokens": 3, "total_thought_tokens": 2, "total_tokens": 14}  # fmt: skip


JSON, SPEECH = (b"content-type", b"application/json"), (b"content-type", b"audio/mpeg")
AWS = (b"Content-Type", b"application/vnd.amazon.eventstream")


def aws(*payloads: object) -> bytes:
    """Return events of AWS, as Bedrock sends them."""
    return b"".join(event_message(one, event_type="chunk") for one in payloads)


def packed(*events: object) -> bytes:
    """Return a model's own events within those of AWS."""
    told = (b64encode(json.dumps(one).encode()).decode() for one in events)
    return aws(*({"bytes": one, "p": "abc"} for one in told))


METRICS = {"inputTokenCount": 40, "outputTokenCount": 2, "cacheReadInputTokenCount": 30}
OWN_KIND = {
    "embeddings": (
        b"/v1/embeddings", JSON,
        b'{"data":[{"embedding":[0.1]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}',
        ("e", SpentTokens(8, 0, 0)),
    ),
    "embeddings with a total alone": (
        b"/v1/embeddings", JSON, b'{"usage":{"total_tokens":8}}', (None, SpentTokens(8, 0, 0))
    ),
    "embeddings that report nothing": (
        b"/v1beta/models/gemini-embedding-001:embedContent", JSON, b"[" + b"0.12345, " * 3000 + b"0]",
        ("gemini-embedding-001", SpentTokens(100, 0, 0)),
    ),
    "speech made": (b"/v1/audio/speech", SPEECH, b"\xff" * 16_000, (None, SpentTokens(100, 0, 20))),
    "speech made that is told": (
        b"/v1/audio/speech", (b"content-type", b"text/event-stream"),
        sse({"type": "speech.audio.delta", "audio": "AAAA"},
            {"type": "speech.audio.done", "usage": {"input_tokens": 14, "output_tokens": 101,
                                                    "total_tokens": 115}}),
        (None, SpentTokens(14, 0, 101)),
    ),
    "speech heard": (
        b"/v1/audio/transcriptions", JSON,
        b'{"text":"Hi","usage":{"type":"tokens","input_tokens":14,"output_tokens":45,"total_tokens":59}}',
        (None, SpentTokens(14, 0, 45)),
    ),
    "speech heard by the second": (
        b"/v1/audio/transcriptions", JSON, b'{"text":"Hi","usage":{"type":"duration","seconds":9}}',
        (None, SpentTokens(180, 0, 0)),
    ),
    "speech heard of which nothing is told": (
        b"/v1/audio/transcriptions", (b"content-type", b"text/plain"), b"Hi there, all",
        (None, SpentTokens(0, 0, 3)),
    ),
    "converse": (
        b"/model/us.anthropic.claude-opus-5-v1:0/converse", JSON,
        b'{"output":{"message":{"content":[{"toolUse":{"input":{"model":"cheap"}}}]}},'
        b'"usage":{"inputTokens":4,"outputTokens":2,"totalTokens":6,"cacheReadInputTokens":30}}',
        ("us.anthropic.claude-opus-5-v1:0", SpentTokens(34, 30, 2)),
    ),
    "converse stream": (
        b"/model/amazon.nova-lite-v1:0/converse-stream", AWS,
        aws({"delta": {"text": "hi"}},
            {"usage": {"inputTokens": 40, "outputTokens": 2, "totalTokens": 42}}),
        ("amazon.nova-lite-v1:0", SpentTokens(40, 0, 2)),
    ),
    "invoke stream": (
        b"/model/anthropic.claude-opus-5-v1:0/invoke-with-response-stream", AWS,
        packed({"message": {"model": "claude-opus-5",
                            "usage": {"input_tokens": 40, "cache_read_input_tokens": 30,
                                      "output_tokens": 1}}},
               {"usage": {"output_tokens": 2}},
               {"type": "message_stop", "amazon-bedrock-invocationMetrics": METRICS}),
        ("claude-opus-5", SpentTokens(70, 30, 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_KIND)
@given(cuts=st.lists(st.integers(0, 900), max_size=6))
def test_speech_vectors_and_bedrock_count_by_what_they_report(name: str, cuts: list[int]) -> None:
    path, kind, body, expected = OWN_KIND[name]
    meter = UsageMeter(paid_call(b"POST", path))
    meter.head([kind])
    at = sorted(min(cut, len(body)) for cut in cuts)
    for begin, end in zip([0, *at], [*at, len(body)], strict=True):
        meter.feed(body[begin:end])
    assert (meter.model, meter.usage(400)) == expected


def test_bedrock_tells_tokens_in_headers_where_bodies_do_not() -> None:
    meter = UsageMeter(paid_call(b"POST", b"/model/cohere.embed-v4:0/invoke"))
    meter.head([JSON, (b"X-Amzn-Bedrock-Input-Token-Count", b"7")])
    meter.feed(b'{"embeddings":{"float":[[0.1]]}}')
    assert (meter.reported, meter.usage(400)) == (True, SpentTokens(7, 0, 0))


def test_an_interaction_is_told_apart_too() -> None:
    meter = UsageMeter(PaidCall(keeps=True))
    meter.feed(
        json.dumps(
            {"model": "gemini-2.5-pro", "usage": {**USED, "total_cached_tokens": 3}}
        ).encode()
    )
    assert (meter.model, meter.usage(0)) == ("gemini-2.5-pro", SpentTokens(9, 3, 5))
