"""Answers of every dialect come back the same however their bytes are cut, and never wrong."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.inline.answers import CallSurrogates
from proxy.inline.bodies import restored_stream, restorer_of, whole_json
from proxy.inline.dialects import MessagesRequest
from proxy.inline.openai import ChatRequest, ResponsesRequest
from proxy.inline.pieces import LONGEST
from proxy.inline.requests import WireRequest
from proxy.inline.restorer import IssuedSurrogates
from tests.support.echo import echo
from tests.support.upstream import ReceivedRequest
from trajectory.realistic_surrogate import drawn
from trajectory.surrogate import FORM, surrogate

KEY = b"k" * 32
VALUES = ['Größe "3"\n', "ada@example.org"]
NAMES = [surrogate(KEY, "PERSON", VALUES[0]), surrogate(KEY, "EMAIL_ADDRESS", VALUES[1])]
REQUEST = ChatRequest(b'{"messages": []}')


REALISTIC = [
    str(drawn(KEY, kind, value, check=KEY))
    for kind, value in zip(("PERSON", "EMAIL_ADDRESS"), VALUES, strict=True)
]


def surrogates(*to: str, names: list[str] = NAMES) -> CallSurrogates:
    issued = IssuedSurrogates(dict(zip(names, VALUES, strict=True)))
    return CallSurrogates(REQUEST, issued, dict.fromkeys(to), b"{}")


def answer(path: str, text: str, *, tools: bool = True) -> bytes:
    """Return the bytes of a stream that says a text and calls tools with it."""
    body: dict[str, Any] = {"stream": True, "messages": [{"role": "user", "content": text}]}
    if path == "/v1/responses":
        body = {"stream": True, "input": text}
    body["tools"] = [{}] if tools else []
    reply = echo(ReceivedRequest("POST", path, [], json.dumps(body).encode()))
    pieces = [piece for piece in reply.pieces[1:] if isinstance(piece, bytes)]
    return b"".join(piece.split(b"\r\n", 1)[1][:-2] for piece in pieces)


def through(path: str, data: bytes, cuts: list[int], *to: str, names: list[str] = NAMES) -> bytes:
    kind, call = b"text/event-stream", surrogates(*to, names=names)
    restorer = restorer_of(kind, path.encode(), call, None)
    assert restorer is not None
    faults: list[Exception] = []
    tee = restored_stream(None, restorer, lambda _, error: faults.append(error))
    ends = sorted({0, *cuts, len(data)})
    out = [tee(data[a:b]) for a, b in itertools.pairwise(ends)]
    assert not faults
    return b"".join(b"".join(pieces) for pieces in (*out, tee(b"")))


PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]


def told_of(names: list[str]) -> str:
    return f"I am {names[0]}, {names[1]}{names[0]}. {names[1][:-3]}"


TEXT = told_of(NAMES)


@pytest.mark.parametrize("names", [NAMES, REALISTIC], ids=["tokens", "realistic"])
@pytest.mark.parametrize("path", PATHS)
def test_a_stream_may_be_cut_at_every_byte(path: str, names: list[str]) -> None:
    data = answer(path, told_of(names))
    whole = through(path, data, [], names=names)
    assert VALUES[1].encode() in whole
    assert through(path, data, [*range(len(data))], names=names) == whole
    values = [json.loads(line[6:]) for line in whole.split(b"\n") if line.startswith(b"data: {")]
    assert values
    if path == "/v1/responses":
        numbers = [value["sequence_number"] for value in values]
        assert numbers == [*range(len(numbers))]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(PATHS), st.lists(st.integers(0, 20_000), max_size=12))
def test_a_stream_may_be_cut_anywhere(path: str, cuts: list[int]) -> None:
    data = answer(path, TEXT)
    cuts = [at for at in cuts if at < len(data)]
    assert through(path, data, cuts, "tool:*") == through(path, data, [], "tool:*")


@pytest.mark.parametrize("path", PATHS)
def test_what_holds_no_surrogate_passes_byte_for_byte(path: str) -> None:
    data = answer(path, "a mail_box in BERLIN, é")
    told = through(path, data, [*range(0, len(data), 3)])
    assert told == data


def test_an_event_too_long_to_be_kept_passes_as_it_is() -> None:
    restorer = restorer_of(b"text/event-stream", b"/v1/messages", surrogates(), None)
    assert restorer is not None
    piece = b"x" * (LONGEST // 16)
    pieces = [b"data: ", *[piece] * 17, b"\n\n", b'data: {"text": "%s"}\n\n' % NAMES[1].encode()]
    told = b"".join([*map(restorer.feed, pieces), restorer.close()])
    assert told.startswith(b"".join(pieces[:-1]))
    assert told.endswith(b'data: {"text":"ada@example.org"}\n\n')


def test_log_probabilities_of_restored_texts_are_taken_out() -> None:
    tokens = {"content": [{"token": "I", "logprob": -0.1}]}
    for text, kept in ((f"I {NAMES[1]}", None), ("I am", tokens)):
        choice = {"index": 0, "message": {"content": text}, "logprobs": tokens}
        told = json.loads(whole_json(json.dumps({"choices": [choice]}).encode(), surrogates()))
        assert told["choices"][0]["logprobs"] == kept


def test_half_of_a_character_leaves_an_answer_readable() -> None:
    said = f"I am {NAMES[1]} \ud83d"
    told = whole_json(json.dumps({"text": said}).encode(), surrogates())
    assert json.loads(told.decode()) == {"text": f"I am {VALUES[1]} \ud83d"}
    event = b"data: %s\n\n" % json.dumps(_chat_event(said)).encode()
    streamed = through(PATHS[0], event, []).decode()
    assert _chat_said(json.loads(streamed[6:]))[0] == f"I am {VALUES[1]} \ud83d"


def _chat_event(piece: str) -> Any:
    scored = {"content": [{"token": piece, "logprob": -0.1}]}
    return {"choices": [{"index": 0, "delta": {"content": piece}, "logprobs": scored}]}


def _chat_said(event: Any) -> tuple[str, list[str]]:
    (choice,) = event["choices"]
    scored = (choice.get("logprobs") or {}).get("content", [])
    return choice["delta"]["content"], [one["token"] for one in scored]


def _completion_event(piece: str) -> Any:
    return {"choices": [{"index": 0, "text": piece, "logprobs": {"tokens": [piece]}}]}


def _completion_said(event: Any) -> tuple[str, list[str]]:
    (choice,) = event["choices"]
    return choice["text"], (choice.get("logprobs") or {}).get("tokens", [])


def _responses_event(piece: str) -> Any:
    scored = [{"token": piece, "logprob": -0.1}]
    return {"type": "response.output_text.delta", "delta": piece, "logprobs": scored}


def _responses_said(event: Any) -> tuple[str, list[str]]:
    return event["delta"], [one["token"] for one in event["logprobs"]]


def _gemini_event(piece: str) -> Any:
    scored = {"chosenCandidates": [{"token": piece}]}
    content = {"parts": [{"text": piece}]}
    return {"candidates": [{"content": content, "logprobsResult": scored}]}


def _gemini_said(event: Any) -> tuple[str, list[str]]:
    (one,) = event["candidates"]
    scored = one.get("logprobsResult", {}).get("chosenCandidates", [])
    return one["content"]["parts"][0]["text"], [token["token"] for token in scored]


def _ollama_event(piece: str) -> Any:
    return {"response": piece, "logprobs": [{"token": piece, "logprob": -0.1}], "done": False}


def _ollama_said(event: Any) -> tuple[str, list[str]]:
    return event["response"], [one["token"] for one in event.get("logprobs") or ()]


SCORED: list[tuple[str, Any, Any]] = [
    ("/v1/chat/completions", _chat_event, _chat_said),
    ("/v1/completions", _completion_event, _completion_said),
    ("/v1/responses", _responses_event, _responses_said),
    ("/v1beta/models/m:streamGenerateContent", _gemini_event, _gemini_said),
    ("/api/generate", _ollama_event, _ollama_said),
]


@pytest.mark.parametrize("names", [NAMES, REALISTIC], ids=["tokens", "realistic"])
@pytest.mark.parametrize(("path", "event", "read"), SCORED, ids=[one[0] for one in SCORED])
def test_tokens_of_a_stream_are_those_of_its_texts_or_taken_out(
    path: str, event: Any, read: Any, names: list[str]
) -> None:
    text = f"{told_of(names)} 1 2 3 " + "Nothing else is said of them. " * 3
    for size in (1, 3, 7, 40):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        data = b"".join(b"data: %s\n\n" % json.dumps(event(one)).encode() for one in pieces)
        told = through(path, data, [], names=names)
        found = [read(json.loads(line[6:])) for line in told.splitlines() if b"data: " in line]
        whole = "".join(said for said, _ in found)
        assert whole == text.replace(names[0], VALUES[0]).replace(names[1], VALUES[1])
        assert any(tokens for _, tokens in found)
        for said, tokens in found:
            assert not tokens or "".join(tokens) == said


@pytest.mark.parametrize("names", [NAMES, REALISTIC], ids=["tokens", "realistic"])
def test_citations_of_a_stream_move_with_their_text(names: list[str]) -> None:
    text = f"{names[1]} says so"
    cited = {"type": "url_citation", "start_index": len(names[1]) + 1, "end_index": len(text)}
    chat: list[Any] = [
        {"choices": [{"index": 0, "delta": {"content": text[at : at + 7]}}]}
        for at in range(0, len(text), 7)
    ]
    chat.append({"choices": [{"index": 0, "delta": {"annotations": [cited]}}]})
    kind = "response.output_text"
    responses: list[Any] = [
        {"type": f"{kind}.delta", "delta": text[at : at + 7]} for at in range(0, len(text), 7)
    ]
    responses.append({"type": f"{kind}.annotation.added", "annotation": cited})
    for path, events in (("/v1/chat/completions", chat), ("/v1/responses", responses)):
        data = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in events)
        last = json.loads(through(path, data, [], names=names).strip().split(b"data: ")[-1])
        moved = last.get("annotation") or last["choices"][0]["delta"]["annotations"][0]
        whole = f"{VALUES[1]} says so"
        assert whole[moved["start_index"] : moved["end_index"]] == "says so"


@pytest.mark.parametrize("names", [NAMES, REALISTIC], ids=["tokens", "realistic"])
def test_content_that_comes_in_lists_of_parts_is_one_text(names: list[str]) -> None:
    text = f"I am {names[0]}, {names[1]}."
    pieces: list[Any] = [text[at : at + 5] for at in range(0, len(text), 5)]
    pieces[::2] = [[{"type": "text", "text": piece}] for piece in pieces[::2]]
    source = {"type": "reference", "reference_ids": [0]}
    deltas: list[Any] = [{"content": piece} for piece in (*pieces, [source])]
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    data = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks)
    told = through("/v1/chat/completions", data, [], names=names)
    said = ""
    for line in told.decode().split("\n\n")[:-1]:
        content = json.loads(line.removeprefix("data: "))["choices"][0]["delta"].get("content", "")
        parts = content if isinstance(content, list) else [{"text": content}]
        said += "".join(part.get("text", "") for part in parts)
    assert said == f"I am {VALUES[0]}, {VALUES[1]}."


def test_citations_move_with_their_text_or_are_taken_out() -> None:
    text = f"{NAMES[1]} says so"
    cited = {"type": "url_citation", "start_index": len(NAMES[1]) + 1, "end_index": len(text)}
    part = {"type": "output_text", "text": text, "annotations": [cited]}
    told = json.loads(whole_json(json.dumps(part).encode(), surrogates()))
    (moved,) = told["annotations"]
    assert told["text"][moved["start_index"] : moved["end_index"]] == "says so"
    places = [{"type": "char_location", "start_char_index": 3}, {"type": "page_location"}]
    block = {"type": "text", "text": text, "citations": places}
    told = json.loads(whole_json(json.dumps(block).encode(), surrogates()))
    assert told["citations"] == [{"type": "page_location"}]


def test_signed_reasoning_stays_as_it_is() -> None:
    block = {"type": "thinking", "thinking": NAMES[0], "signature": "c2ln"}
    body = json.dumps({"content": [block, {"type": "text", "text": NAMES[1]}]}).encode()
    told = json.loads(whole_json(body, surrogates()))
    assert told["content"] == [block, {"type": "text", "text": VALUES[1]}]


def test_errors_are_restored_whatever_they_are() -> None:
    for kind, body in ((b"application/json", b'{"error": "%s"}'), (b"text/plain", b"no %s")):
        restorer = restorer_of(kind, b"/v1/messages", surrogates(), None)
        assert restorer is not None
        told = restorer.feed(body % NAMES[1].encode()) + restorer.close()
        assert VALUES[1].encode() in told
        assert not FORM.search(told.decode())
    assert restorer_of(b"audio/mpeg", b"/v1/messages", surrogates(), None) is None


def test_encodings_that_nobody_can_read_pass_and_none_is_no_encoding() -> None:
    assert restorer_of(b"application/json", b"/v1/messages", surrogates(), b"zz") is None
    stream = restorer_of(b"text/event-stream", b"/v1/messages", surrogates(), b"Identity")
    assert stream is not None
    assert VALUES[1].encode() in stream.feed(b'data: {"x": "%s"}\n\n' % NAMES[1].encode())


def gemini(text: str) -> list[dict[str, Any]]:
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": one}]}, "index": 0}]}
        for one in pieces
    ]
    for name in ("send", "fetch"):
        part = {"functionCall": {"name": name, "args": {"to": [text]}}, "thoughtSignature": "c2ln"}
        chunks.append({"candidates": [{"content": {"parts": [part]}, "index": 0}]})
    grounding = {"groundingSupports": [{"segment": {"endIndex": 3}}]}
    end = {"index": 0, "finishReason": "STOP", "groundingMetadata": grounding}
    return [*chunks, {"candidates": [end], "usageMetadata": {}}]


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
def test_gemini_streams(kind: bytes) -> None:
    chunks = gemini(TEXT)
    if kind == b"application/json":
        data = json.dumps(chunks, indent=1).encode()
    else:
        data = b"".join(b"data: %s\r\n\r\n" % json.dumps(one).encode() for one in chunks)
    made = surrogates("tool:send")
    restorer = restorer_of(kind, b"/v1beta/models/m:streamGenerateContent?alt=sse", made, None)
    assert restorer is not None
    told = b"".join(restorer.feed(data[at : at + 5]) for at in range(0, len(data), 5))
    told += restorer.close()
    if kind == b"application/json":
        events = json.loads(told)
    else:
        events = [json.loads(line[6:]) for line in told.split(b"\n") if line.startswith(b"data:")]
    candidates = [one for event in events for one in event["candidates"]]
    parts = [part for one in candidates for part in one.get("content", {}).get("parts", ())]
    assert "".join(part.get("text", "") for part in parts) == said(TEXT)
    calls = {one["functionCall"]["name"]: one for one in parts if "functionCall" in one}
    assert calls["send"]["functionCall"]["args"] == {"to": [said(TEXT)]}
    assert calls["fetch"]["functionCall"]["args"] == {"to": [TEXT]}
    assert calls["send"]["thoughtSignature"] == "c2ln"
    assert not any("groundingMetadata" in one for one in candidates)


def said(text: str) -> str:
    """Return a text as its client should read it."""
    for name, value in zip(NAMES, VALUES, strict=True):
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("path", [b"/api/chat", b"/api/generate"])
def test_ollama_streams(path: bytes) -> None:
    def line(text: str, **more: Any) -> dict[str, Any]:
        told = {"message": {"role": "assistant", "content": text}}
        return {"model": "m", **(told if path == b"/api/chat" else {"response": text}), **more}

    lines = [line(TEXT[at : at + 7], done=False) for at in range(0, len(TEXT), 7)]
    calls = [{"function": {"name": n, "arguments": {"to": TEXT}}} for n in ("send", "fetch")]
    called = {"message": {"role": "assistant", "content": "", "tool_calls": calls}, "done": False}
    data = b"".join(json.dumps(o).encode() + b"\n" for o in (*lines, called, line("", done=True)))
    restorer = restorer_of(b"application/x-ndjson", path, surrogates("tool:send"), None)
    assert restorer is not None
    told = b"".join(restorer.feed(data[at : at + 5]) for at in range(0, len(data), 5))
    events = [json.loads(one) for one in (told + restorer.close()).splitlines()]
    text = "".join(e.get("response", "") + e.get("message", {}).get("content", "") for e in events)
    assert text == said(TEXT)
    assert events[-1]["done"]
    (calls,) = [e["message"]["tool_calls"] for e in events if "tool_calls" in e.get("message", {})]
    to = {one["function"]["name"]: one["function"]["arguments"]["to"] for one in calls}
    assert to == {"send": said(TEXT), "fetch": TEXT}


FORMAT = {"type": "json_schema", "json_schema": {"name": "x"}}
ASKED: list[tuple[type[WireRequest], str, dict[str, Any]]] = [
    (ChatRequest, "/v1/chat/completions", {"messages": [], "response_format": FORMAT}),
    (ResponsesRequest, "/v1/responses", {"input": [], "text": {"format": FORMAT}}),
    (MessagesRequest, "/v1/messages", {"messages": [], "output_config": {"format": FORMAT}}),
]


@pytest.mark.parametrize(("kind", "path", "body"), ASKED)
def test_an_answer_that_is_json_in_a_text_stays_json(
    kind: type[WireRequest], path: str, body: dict[str, Any]
) -> None:
    number = surrogate(KEY, "PHONE_NUMBER", "4915123456789")
    values = {**dict(zip(NAMES, VALUES, strict=True)), number: "4915123456789"}
    asked = json.dumps({"to": NAMES, "phone": number})
    meant = {"to": VALUES, "phone": "4915123456789"}
    for streamed in (True, False):
        request = kind(json.dumps(body).encode())
        issued = IssuedSurrogates(values, numbers=[number])
        made = CallSurrogates(request, issued, {}, json.dumps(body).encode())
        echoed: dict[str, Any] = {
            "stream": streamed,
            "messages": [{"role": "user", "content": asked}],
        }
        if kind is ResponsesRequest:
            echoed = {"stream": streamed, "input": asked}
        reply = echo(ReceivedRequest("POST", path, [], json.dumps(echoed).encode()))
        if streamed:
            pieces = [piece for piece in reply.pieces[1:] if isinstance(piece, bytes)]
            data = b"".join(piece.split(b"\r\n", 1)[1][:-2] for piece in pieces)
        else:
            data = b"".join(p for p in reply.pieces if isinstance(p, bytes)).split(b"\r\n\r\n", 1)[
                1
            ]
        mime = b"text/event-stream" if streamed else b"application/json"
        restorer = restorer_of(mime, path.encode(), made, None)
        assert restorer is not None
        told = (restorer.feed(data) + restorer.close()).decode()
        lines = [line.removeprefix("data: ") for line in told.split("\n") if "{" in line]
        values_told = [json.loads(line) for line in lines]
        for text in whole_texts(values_told):
            assert json.loads(text.removeprefix("You said: ").removesuffix("!")) == meant


def whole_texts(values: list[Any]) -> set[str]:
    """Return the texts of an answer: put together from its pieces, and where it says them whole."""
    pieces, whole = "", set()

    def walk(value: Any) -> None:
        nonlocal pieces
        if isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, dict):
            for name, one in value.items():
                if name in ("content", "text", "delta") and isinstance(one, str):
                    if one.startswith("You said: {") and one.endswith("}!"):
                        whole.add(one)
                    else:
                        pieces += one
                else:
                    walk(one)

    walk(values)
    return whole | ({pieces} if pieces else set())


def test_thoughts_beside_an_answer_that_is_json_are_no_json() -> None:
    body = b'{"messages": [], "response_format": {"type": "json_object"}}'
    issued = IssuedSurrogates({NAMES[0]: VALUES[0]})
    made = CallSurrogates(ChatRequest(body), issued, {}, body)
    message = {"content": json.dumps({"a": NAMES[0]}), "reasoning_content": NAMES[0]}
    told = json.loads(whole_json(json.dumps({"message": message}).encode(), made))["message"]
    assert json.loads(told["content"]) == {"a": VALUES[0]}
    assert told["reasoning_content"] == VALUES[0]
