"""Usage: the same tokens whatever the pieces, of every provider's shape; estimated where none is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clients.usage import (
    SpentTokens,
    UsageMeter,
    costs,
    is_estimable,
    is_paid_later,
    meter_of,
)


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


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/openai/v1/responses?x=/files"),
        *("/v1beta/models/gemini-3:streamGenerateContent", "/model/claude/converse", "/api/chat"),
        *("/v1/audio/transcriptions", "/v1/images/edits", "/v1/embeddings", "/generate"),
        *("/v1beta/interactions", "/v1/files/../chat/completions", "/v1/files/.%2E/responses"),
    ],
)
def test_calls_of_models_cost(path: str) -> None:
    assert costs(b"POST", path.encode())
    assert not costs(b"GET", path.encode())


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/files", "/upload/v1beta/files", "/v1/uploads/upload_1/parts", "/v1/batches"),
        *("/v1/messages/batches", "/v1/messages/count_tokens", "/v1/responses/input_tokens"),
        *("/v1/responses/resp_1/cancel", "/v1beta/models/gemini-3:countTokens", "/tokenize"),
        *("/v1/vector_stores/vs_1/files", "/v1beta/cachedContents", "/model/claude/count-tokens"),
        *("/models/count-tokens:rawPredict", "/v1/realtime/client_secrets", "/api/show"),
        "/v1/fine_tuning/jobs",
    ],
)
def test_what_is_kept_or_only_counted_costs_nothing(path: str) -> None:
    assert not costs(b"POST", path.encode())


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


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1/batches",
            "/v1/messages/batches/",
            "/openai/batches?api-version=1",
            "/v1/batch/jobs",
        ),
        *("/v1/fine_tuning/jobs", "/v1/fine-tuning/jobs", "/v1beta/tunedModels", "/v1/videos"),
        *("/v1beta/models/gemini-3:batchGenerateContent", "/v1/evals/eval_1/runs", "/async-invoke"),
        *("/v1/b%61tches", "/v1//Batches", "/v1/files/../batches", "/model-invocation-job"),
    ],
)
def test_what_is_paid_later_is_told_by_its_path(path: str) -> None:
    assert is_paid_later(b"POST", path.encode())
    assert not is_paid_later(b"GET", path.encode())


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/batches/batch_1/cancel", "/v1/fine_tuning/jobs/j/pause", "/v1/chat/completions"),
        *("/v1beta/models/gemini-3:batchEmbedContents", "/v1beta/tunedModels/m:generateContent"),
    ],
)
def test_other_requests_are_not_paid_later(path: str) -> None:
    assert not is_paid_later(b"POST", path.encode())


def metered(method: bytes, path: bytes, body: bytes) -> UsageMeter:
    meter = meter_of(method, path)
    assert meter is not None
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
    assert meter_of(b"POST", b"/v1/conversations/c/items") is None


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
    assert meter_of(b"GET", path) is None


USED = {"total_input_tokens": 9, "total_output_tokens": 3, "total_thought_tokens": 2, "total_tokens": 14}  # fmt: skip
