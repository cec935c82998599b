"""Answers written out again are read back as what was said, in every dialect, whole and streamed."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trajectory.world import World
from trajectory.call import Call, Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.registry import STREAMS, read_exchange, write_answer
from trajectory.dialects.writer import (
    AnsweredRequest,
    CallPiece,
    CallStart,
    ModelAnswer,
    Piece,
    SampledToken,
    TextPiece,
    UnwritableError,
)
from trajectory.message import Message, OpaquePart, ReasoningPart, TextPart, ToolCallPart

PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
    "openai.completions": "/v1/completions",
    "google.gemini": "/v1beta/models/m:{stream}enerateContent",
    "google.interactions": "/v1beta/interactions",
    "bedrock.converse": "/model/m-1/converse{end}",
    "bedrock.invoke": "/model/m-1/{invoke}",
    "ollama": "/api/chat",
}
WITHOUT_CACHE = ("ollama",)
WITHOUT_ID = ("ollama",)
WITHOUT_MODEL = ("bedrock.converse", "bedrock.invoke")
LONG = "word " * 60 + "ünïcödé 🙂"
MESSAGES = [
    Message("assistant", (TextPart("Hi"),)),
    Message("assistant", (TextPart(LONG), ToolCallPart("call_1", "add", {"a": 1, "b": [None]}))),
    Message("assistant", tuple(ToolCallPart(f"call_{n}", "add", {"n": n}) for n in range(3))),
    Message("assistant", (ToolCallPart("call_1", "now", {}),)),
]


@pytest.mark.parametrize("dialect", [name for name in PATHS if name != "openai.completions"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_written_is_read_back(dialect: str, stream: bool, message: Message) -> None:
    assert read_back(dialect, message, stream=stream) == message


def path_of(dialect: str, *, stream: bool) -> str:
    return PATHS[dialect].format(
        stream="streamG" if stream else "g",
        end="-stream" if stream else "",
        invoke="invoke-with-response-stream" if stream else "invoke",
    )


def read_back(
    dialect: str, message: Message, *, stream: bool, query: str = "alt=sse", **request: object
) -> Message | None:
    body = {"model": "m", "messages": [], "input": [], "stream": stream, **request}
    body["stream_options"] = {"include_usage": True}
    if dialect == "bedrock.invoke" and "prompt" not in body and "inputText" not in body:
        body.setdefault("anthropic_version", "bedrock-2023-05-31")
    answer = ModelAnswer(message, "id_1", "m-1", usage=Usage(12, 7, 5, None), created=5)
    path = path_of(dialect, stream=stream)
    wire = write_answer(dialect, answer, body, path=path, query=query)  # type: ignore[arg-type]
    headers = {"content-type": wire.content_type, **{k.lower(): v for k, v in wire.headers}}
    exchange = World().exchange(path, body, b"".join(wire.pieces), response_headers=headers)
    call = read_exchange(exchange)
    assert call.problem is None
    assert call.dialect == dialect
    assert call.streamed == stream
    assert call.response_id == (None if dialect in WITHOUT_ID else "id_1")
    named = dialect not in WITHOUT_MODEL or "anthropic_version" in body
    assert call.model_served == ("m-1" if named else None)
    assert (call.usage.input_tokens, call.usage.output_tokens) == (12, 7)
    assert call.usage.cached_input_tokens == (None if dialect in WITHOUT_CACHE else 5)
    assert call.finish_reason is not None
    return call.output


@pytest.mark.parametrize("stream", [False, True])
def test_calls_keep_ids_that_a_provider_gave_and_only_these(stream: bool) -> None:
    for dialect in ("google.gemini", "ollama"):
        given = (ToolCallPart("call_9", "add", {"a": 1}), ToolCallPart("add:2", "add", {"a": 2}))
        message = Message("assistant", given)
        assert read_back(dialect, message, stream=stream) == message
        path = path_of(dialect, stream=stream)
        wire = write_answer(dialect, ModelAnswer(message, "r", "m"), {"stream": stream}, path=path)
        assert b"call_9" in b"".join(wire.pieces)
        assert b"add:2" not in b"".join(wire.pieces)


def test_gemini_streams_an_array_where_nobody_asks_for_events() -> None:
    message = MESSAGES[1]
    assert read_back("google.gemini", message, stream=True, query="") == message
    path = path_of("google.gemini", stream=True)
    wire = write_answer("google.gemini", ModelAnswer(message, "r", "m"), {}, path=path)
    chunks = json.loads(b"".join(wire.pieces))
    assert len(chunks) > 3
    assert "finishReason" in chunks[-1]["candidates"][0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("family", "model"),
    [
        ({"schemaVersion": "messages-v1", "inferenceConfig": {}}, "amazon.nova"),
        ({"inferenceConfig": None, "prompt": "Hi"}, "meta.llama"),
        ({"prompt": "Hi"}, "mistral.mistral"),
        ({"inputText": "Hi"}, "amazon.titan"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "openai.oss"),
    ],
)
def test_each_family_of_bedrock_has_its_own_bodies(
    family: dict[str, object], model: str, stream: bool
) -> None:
    body: dict[str, object] = {"messages": [], **family}
    if "prompt" in family or "inputText" in family:
        del body["messages"]
    message = Message("assistant", (TextPart(LONG),))
    path = f"/model/{model}/{'invoke-with-response-stream' if stream else 'invoke'}"
    wire = write_answer("bedrock.invoke", ModelAnswer(message, "r-1", "m"), body, path=path)  # type: ignore[arg-type]
    headers = {"content-type": wire.content_type, **{k.lower(): v for k, v in wire.headers}}
    call = read_exchange(
        World().exchange(path, body, b"".join(wire.pieces), response_headers=headers)
    )
    assert (call.dialect, call.problem, call.streamed) == ("bedrock.invoke", None, stream)
    assert call.output == message
    assert call.finish_reason is not None
    assert call.response_id == "r-1"


@pytest.mark.parametrize("stream", [False, True])
def test_older_completions_are_text(stream: bool) -> None:
    message = Message("assistant", (TextPart(LONG),))
    body = {"prompt": "Hi", "stream": stream, "stream_options": {"include_usage": True}}
    wire = write_answer("openai.completions", ModelAnswer(message, "r-1", "m"), body)  # type: ignore[arg-type]
    headers = {"content-type": wire.content_type}
    exchange = World().exchange(
        "/v1/completions", body, b"".join(wire.pieces), response_headers=headers
    )
    call = read_exchange(exchange)
    assert (call.output, call.response_id, call.streamed) == (message, "r-1", stream)
    assert (call.usage.input_tokens, call.finish_reason) == (0, "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_and_its_proof(stream: bool) -> None:
    said = (ReasoningPart("I think", "proof"), TextPart("So."))
    for dialect in (
        "anthropic.messages",
        "openai.responses",
        "google.gemini",
        "google.interactions",
        "bedrock.converse",
    ):
        assert read_back(dialect, Message("assistant", said), stream=stream) == Message(
            "assistant", said
        )
    hidden = Message("assistant", (ReasoningPart("", "sealed"), TextPart("So.")))
    for dialect in ("anthropic.messages", "google.gemini", "google.interactions", "bedrock.invoke"):
        assert read_back(dialect, hidden, stream=stream) == hidden
    sealed = Message("assistant", (ReasoningPart("", "c2VhbGVk"), TextPart("So.")))
    assert read_back("bedrock.converse", sealed, stream=stream) == sealed
    open_text = Message("assistant", (ReasoningPart("I think"), TextPart("So.")))
    for dialect in ("openai.chat", "ollama"):
        assert read_back(dialect, open_text, stream=stream) == open_text


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
    answer = ModelAnswer(MESSAGES[0], "i", "m", reason)
    (body,) = write_answer("anthropic.messages", answer, {}).pieces
    assert json.loads(body)["stop_reason"] == expected


def test_a_dialect_without_a_writer_is_named() -> None:
    with pytest.raises(UnwritableError, match=r"'mcp'.*openai\.chat"):
        write_answer("mcp", ModelAnswer(MESSAGES[0], "i", "m"), {})


def asked(dialect: str, body: JsonObject, *, query: str = "alt=sse") -> AnsweredRequest:
    return AnsweredRequest(body, path_of(dialect, stream=True), query)


def read_stream(asked: AnsweredRequest, content_type: str, sent: list[bytes]) -> Call:
    headers = {"content-type": content_type}
    body = b"".join(sent)
    return read_exchange(World().exchange(asked.path, asked.body, body, response_headers=headers))


@pytest.mark.parametrize("query", ["alt=sse", ""])
@pytest.mark.parametrize("dialect", STREAMS)
@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
    st.lists(st.tuples(st.sampled_from(["add", "now"]), st.integers()), max_size=3),
    st.integers(1, 5),
)
@settings(max_examples=25, deadline=None)
def test_an_answer_that_grows_is_read_back_as_the_finished_one(
    dialect: str, query: str, text: str, calls: list[tuple[str, int]], size: int
) -> None:
    parts: list[TextPart | ToolCallPart] = [TextPart(text)] if text else []
    pieces: list[Piece] = [TextPiece(text[at : at + size]) for at in range(0, len(text), size)]
    for number, (name, value) in enumerate(calls if dialect != "openai.completions" else ()):
        written = json.dumps({"n": value})
        parts.append(ToolCallPart(f"call_{number}", name, {"n": value}))
        pieces.append(CallStart(f"call_{number}", name))
        pieces += [CallPiece(written[at : at + size]) for at in range(0, len(written), size)]
    begun = ModelAnswer(Message("assistant", ()), "id_1", "m-1", usage=Usage(12), created=5)
    answer = replace(begun, message=Message("assistant", tuple(parts)), usage=Usage(12, 7))
    body: JsonObject = {"model": "m", "messages": [], "input": [], "stream": True}
    body["stream_options"] = {"include_usage": True}
    request = asked(dialect, body, query=query)
    stream = STREAMS[dialect](begun, request)
    assert stream is not None
    sent = [stream.start(), *(stream.take([piece]) for piece in pieces), stream.end(answer)]
    call = read_stream(request, stream.content_type, sent)
    assert (call.problem, call.error, call.streamed) == (None, None, True)
    assert call.output == (answer.message if parts else None)
    assert (call.usage.input_tokens, call.usage.output_tokens) == (12, 7)
    named = None if dialect in WITHOUT_ID else "id_1"
    assert (call.response_id, call.model_served) == (named, "m-1")


@pytest.mark.parametrize("dialect", [name for name in STREAMS if name != "ollama"])
def test_an_answer_tells_its_tokens_to_those_who_ask(dialect: str) -> None:
    begun = ModelAnswer(Message("assistant", ()), "id_1", "m-1", prompt_ids=(1, 2))
    tokens = [SampledToken(7, "Hi", -0.5, (("Ho", -1.0),)), SampledToken(2, "", -0.1)]
    body: JsonObject = {"stream": True, "return_token_ids": True, "logprobs": True}
    body["generationConfig"] = {"responseLogprobs": True}
    message = Message("assistant", (TextPart("Hi"),))
    answer = replace(begun, message=message, tokens=tuple(tokens))
    request = asked(dialect, body)
    stream = STREAMS[dialect](begun, request)
    assert stream is not None
    sent = [stream.start(), stream.take([TextPiece("Hi")], tokens[0]), stream.take([], tokens[1])]
    found = read_stream(request, stream.content_type, [*sent, stream.end(answer)])
    path, query = path_of(dialect, stream=False), "alt=sse"
    for grown in (True, False):
        if not grown:
            whole = {**body, "stream": False}
            wire = write_answer(dialect, answer, whole, path=path, query=query)
            found = read_exchange(World().exchange(path, whole, b"".join(wire.pieces)))
        assert found.tokens is not None
        # Gemini's own fields have the answer's tokens alone.
        prompt = None if dialect == "google.gemini" else (1, 2)
        assert found.tokens.prompt_token_ids == prompt
        assert found.tokens.completion_token_ids == (7, 2)
        assert found.tokens.logprobs == (-0.5, -0.1)


@pytest.mark.parametrize("dialect", STREAMS)
def test_an_answer_tells_no_tokens_to_those_who_do_not_ask(dialect: str) -> None:
    begun = ModelAnswer(Message("assistant", ()), "id_1", "m-1", prompt_ids=(1, 2))
    token = SampledToken(7, "Hi", -0.5)
    message = Message("assistant", (TextPart("Hi"),))
    answer = replace(begun, message=message, tokens=(token,))
    stream = STREAMS[dialect](begun, asked(dialect, {"stream": True}))
    assert stream is not None
    path = path_of(dialect, stream=False)
    wire = write_answer(dialect, answer, {"stream": False}, path=path)
    sent = stream.start() + stream.take([TextPiece("Hi")], token) + stream.end(answer)
    for body in (sent, *wire.pieces):
        assert b"token_ids" not in body
        assert b"tokenId" not in body
        assert b"-0.5" not in body
