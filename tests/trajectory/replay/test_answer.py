"""Answers written out again are read back as what was said, in every dialect, whole and streamed."""

import json

import pytest

from tests.trajectory.world import World
from trajectory.call import Usage
from trajectory.dialects import read_exchange
from trajectory.message import Message, OpaquePart, ReasoningPart, TextPart, ToolCallPart
from trajectory.replay import Answer, UnwritableError, write_answer

PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}
LONG = "word " * 60 + "ünïcödé 🙂"
MESSAGES = [
    Message("assistant", (TextPart("Hi"),)),
    Message("assistant", (TextPart(LONG), ToolCallPart("call_1", "add", {"a": 1, "b": [None]}))),
    Message("assistant", tuple(ToolCallPart(f"call_{n}", "add", {"n": n}) for n in range(3))),
    Message("assistant", (ToolCallPart("call_1", "now", {}),)),
]


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_written_is_read_back(dialect: str, stream: bool, message: Message) -> None:
    assert read_back(dialect, message, stream=stream) == message


def read_back(dialect: str, message: Message, *, stream: bool, **request: object) -> Message | None:
    body = {"model": "m", "messages": [], "input": [], "stream": stream, **request}
    body["stream_options"] = {"include_usage": True}
    answer = Answer(message, "id_1", "m-1", usage=Usage(12, 7, 5, None), created=5)
    wire = write_answer(dialect, answer, body)  # type: ignore[arg-type]
    kind = {"content-type": wire.content_type}
    exchange = World().exchange(PATHS[dialect], body, b"".join(wire.pieces), response_headers=kind)
    call = read_exchange(exchange)
    assert call.problem is None
    assert (call.streamed, call.response_id, call.model_served) == (stream, "id_1", "m-1")
    assert (call.usage.input_tokens, call.usage.output_tokens) == (12, 7)
    assert call.usage.cached_input_tokens == 5
    assert call.finish_reason is not None
    return call.output


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_and_its_proof(stream: bool) -> None:
    said = (ReasoningPart("I think", "proof"), TextPart("So."))
    for dialect in ("anthropic.messages", "openai.responses"):
        assert read_back(dialect, Message("assistant", said), stream=stream) == Message(
            "assistant", said
        )
    hidden = Message("assistant", (ReasoningPart("", "sealed"), TextPart("So.")))
    assert read_back("anthropic.messages", hidden, stream=stream) == hidden
    open_text = Message("assistant", (ReasoningPart("I think"), TextPart("So.")))
    assert read_back("openai.chat", open_text, stream=stream) == open_text


@pytest.mark.parametrize("stream", [False, True])
def test_what_only_one_dialect_knows(stream: bool) -> None:
    custom = Message("assistant", (ToolCallPart("c", "patch", "*** Begin"),))
    tools = [{"type": "custom", "name": "patch"}]
    assert read_back("openai.responses", custom, stream=stream, tools=tools) == custom
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
    block = Message("assistant", (OpaquePart(search), TextPart("Found.")))
    assert read_back("anthropic.messages", block, stream=stream) == block
    refusal = Message("assistant", (OpaquePart({"type": "refusal", "refusal": "No."}),))
    assert read_back("openai.chat", refusal, stream=stream) == refusal


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("length", "max_tokens"),
        ("incomplete", "max_tokens"),
        ("stop", "end_turn"),
        (None, "end_turn"),
    ],
)
def test_finish_reasons_are_translated(reason: str | None, expected: str) -> None:
    answer = Answer(MESSAGES[0], "i", "m", reason)
    (body,) = write_answer("anthropic.messages", answer, {}).pieces
    assert json.loads(body)["stop_reason"] == expected


def test_a_dialect_without_a_writer_is_named() -> None:
    with pytest.raises(UnwritableError, match=r"'mcp'.*openai\.chat"):
        write_answer("mcp", Answer(MESSAGES[0], "i", "m"), {})
