"""Requests of every dialect with four values in each, and the texts of their answers, for benchmarks of surrogates."""

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.planting import Secret
from trajectory.dialects.event_stream import EventStreamDecoder

_GEMINI = "/v1beta/models/m:"
WIRES = (
    ("/v1/chat/completions", "/v1/chat/completions"),
    ("/v1/messages", "/v1/messages"),
    ("/v1/responses", "/v1/responses"),
    (f"{_GEMINI}generateContent", f"{_GEMINI}streamGenerateContent"),
    ("/api/chat", "/api/chat"),
    ("/model/m/converse", "/model/m/converse-stream"),
)
"""The path of each dialect for a whole answer, and that for a stream."""


def request_of(path: str, some: list[Secret], *, streamed: bool) -> dict[str, Any]:
    """Return a request's body with four values in it."""
    system, asked, described, found = some
    said, result = json.dumps({found.key: found.value}), json.dumps({"found": [found.sentence]})
    tool = {"name": "look_up", "description": described.sentence}
    body: dict[str, Any] = {"model": "m", "stream": streamed}
    schema = {"type": "object", "properties": {}}
    if path.endswith("completions"):
        call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": said}}
        body["tools"] = [{"type": "function", "function": {**tool, "parameters": schema}}]
        body["messages"] = [
            {"role": "system", "content": system.sentence},
            {"role": "user", "content": asked.sentence},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": result},
            {"role": "user", "content": "And now?"},
        ]
    elif path.endswith("messages"):
        used = {"type": "tool_use", "id": "c1", "name": "look_up", "input": json.loads(said)}
        told = {"type": "tool_result", "tool_use_id": "c1", "content": result}
        body |= {"max_tokens": 9, "system": system.sentence}
        body["tools"] = [{**tool, "input_schema": schema}]
        body["messages"] = [
            {"role": "user", "content": asked.sentence},
            {"role": "assistant", "content": [used]},
            {"role": "user", "content": [told, {"type": "text", "text": "And now?"}]},
        ]
    elif path.startswith(_GEMINI):
        return _gemini(system, asked, {**tool, "parameters": schema}, said, result)
    elif path == "/api/chat":
        call = {"function": {"name": "look_up", "arguments": json.loads(said)}}
        body["tools"] = [{"type": "function", "function": {**tool, "parameters": schema}}]
        body["messages"] = [
            {"role": "system", "content": system.sentence},
            {"role": "user", "content": asked.sentence},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": "look_up", "content": result},
            {"role": "user", "content": "And now?"},
        ]
    elif path.startswith("/model/"):
        return _converse(system, asked, {**tool, "inputSchema": {"json": schema}}, said, result)
    else:
        call = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": said}
        body |= {"instructions": system.sentence, "tools": [{"type": "function", **tool}]}
        body["input"] = [
            {"role": "user", "content": [{"type": "input_text", "text": asked.sentence}]},
            call,
            {"type": "function_call_output", "call_id": "c1", "output": result},
            {"role": "user", "content": "And now?"},
        ]
    return body


def _gemini(
    system: Secret, asked: Secret, tool: dict[str, Any], said: str, result: str
) -> dict[str, Any]:
    call = {"functionCall": {"name": "look_up", "args": json.loads(said)}}
    told = {"functionResponse": {"name": "look_up", "response": json.loads(result)}}
    return {
        "systemInstruction": {"parts": [{"text": system.sentence}]},
        "tools": [{"functionDeclarations": [tool]}],
        "contents": [
            {"role": "user", "parts": [{"text": asked.sentence}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [told, {"text": "And now?"}]},
        ],
    }


def _converse(
    system: Secret, asked: Secret, tool: dict[str, Any], said: str, result: str
) -> dict[str, Any]:
    used = {"toolUseId": "c1", "name": "look_up", "input": json.loads(said)}
    told = {"toolUseId": "c1", "content": [{"text": result}]}
    return {
        "system": [{"text": system.sentence}],
        "toolConfig": {"tools": [{"toolSpec": tool}]},
        "messages": [
            {"role": "user", "content": [{"text": asked.sentence}]},
            {"role": "assistant", "content": [{"toolUse": used}]},
            {"role": "user", "content": [{"toolResult": told}, {"text": "And now?"}]},
        ],
    }


def text_of(path: str, body: bytes, *, streamed: bool) -> str:
    """Return the text of an answer as its client reads it."""
    lines = [body]
    if path.endswith("-stream"):
        lines = [one.payload for one in EventStreamDecoder().feed(body)]
    elif streamed:
        lines = [one.removeprefix(b"data: ") for one in body.split(b"\n")]
        lines = [one for one in lines if one.startswith(b"{")]
    values = map(json.loads, lines)
    return "".join(piece for value in values for piece in _pieces(path, value))


def _pieces(path: str, value: dict[str, Any]) -> Iterator[str]:
    if path.endswith("completions"):
        for choice in value["choices"]:
            yield choice.get("delta", choice.get("message")).get("content") or ""
    elif path.endswith("messages"):
        if value["type"] == "message":
            yield "".join(one["text"] for one in value["content"] if one["type"] == "text")
        elif value["type"] == "content_block_delta" and value["delta"]["type"] == "text_delta":
            yield value["delta"]["text"]
    elif path.startswith(_GEMINI):
        for candidate in value["candidates"]:
            yield "".join(one.get("text", "") for one in candidate["content"]["parts"])
    elif path == "/api/chat":
        yield value["message"]["content"]
    elif path.endswith("converse"):
        yield value["output"]["message"]["content"][0]["text"]
    elif path.endswith("-stream"):
        yield value.get("delta", {}).get("text", "")
    elif "output" in value:
        yield value["output"][0]["content"][0]["text"]
    elif value["type"] == "response.output_text.delta":
        yield value["delta"]
