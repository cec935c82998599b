"""One conversation with tools, written as the clients of each API write it."""

import json
from dataclasses import dataclass
from typing import Any

PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
    "google.gemini": "/v1beta/models/{model}:generateContent",
    "ollama": "/api/chat",
}
SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["item"],
}
_GEMINI_SCHEMA = {
    "type": "OBJECT",
    "properties": {"item": {"type": "STRING"}, "count": {"type": "INTEGER"}},
    "required": ["item"],
}


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of a conversation."""

    user: str = ""
    """What the user said; empty where the model spoke."""
    text: str = ""
    calls: tuple[tuple[str, dict[str, Any], str], ...] = ()
    """Name, arguments and result."""


def written(
    dialect: str, model: str, system: str, turns: list[Said], tools: list[str]
) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request."""
    body = _WRITERS[dialect](system, turns, tools)
    return PATHS[dialect].format(model=model), {"model": model, **body}


def _functions(tools: list[str], schema: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": f"The {name}.", schema: SCHEMA} for name in tools]


def _ids(turns: list[Said]) -> list[list[str]]:
    return [[f"id_{at}_{n}" for n in range(len(turn.calls))] for at, turn in enumerate(turns)]


def _chat(system: str, turns: list[Said], tools: list[str]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn, ids in zip(turns, _ids(turns), strict=True):
        if turn.user:
            messages.append({"role": "user", "content": turn.user})
            continue
        calls = [
            {"id": one, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for one, (n, a, _) in zip(ids, turn.calls, strict=True)
        ]
        message = {"role": "assistant", "content": turn.text or None}
        messages.append({**message, "tool_calls": calls} if calls else message)
        messages += [
            {"role": "tool", "tool_call_id": one, "content": result}
            for one, (_, _, result) in zip(ids, turn.calls, strict=True)
        ]
    functions = [{"type": "function", "function": f} for f in _functions(tools, "parameters")]
    return {"messages": messages, "tools": functions}


def _responses(system: str, turns: list[Said], tools: list[str]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for turn, ids in zip(turns, _ids(turns), strict=True):
        if turn.user:
            items.append({"role": "user", "content": [{"type": "input_text", "text": turn.user}]})
            continue
        if turn.text:
            part = {"type": "output_text", "text": turn.text, "annotations": []}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        items += [
            {"type": "function_call", "call_id": one, "name": n, "arguments": json.dumps(a)}
            for one, (n, a, _) in zip(ids, turn.calls, strict=True)
        ]
        items += [
            {"type": "function_call_output", "call_id": one, "output": result}
            for one, (_, _, result) in zip(ids, turn.calls, strict=True)
        ]
    functions = [{"type": "function", **one} for one in _functions(tools, "parameters")]
    return {"instructions": system, "input": items, "tools": functions}


def _messages(system: str, turns: list[Said], tools: list[str]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn, ids in zip(turns, _ids(turns), strict=True):
        if turn.user:
            messages.append({"role": "user", "content": turn.user})
            continue
        text = [{"type": "text", "text": turn.text}] if turn.text else []
        uses = [
            {"type": "tool_use", "id": one, "name": n, "input": a}
            for one, (n, a, _) in zip(ids, turn.calls, strict=True)
        ]
        messages.append({"role": "assistant", "content": [*text, *uses]})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": one,
                "content": [{"type": "text", "text": result}],
            }
            for one, (_, _, result) in zip(ids, turn.calls, strict=True)
        ]
        messages += [{"role": "user", "content": results}] if results else []
    body: dict[str, Any] = {"messages": messages, "tools": _functions(tools, "input_schema")}
    return {**body, "system": system} if system else body


def _gemini(system: str, turns: list[Said], tools: list[str]) -> dict[str, Any]:
    contents: list[dict[str, Any]] = []
    for turn in turns:
        if turn.user:
            contents.append({"role": "user", "parts": [{"text": turn.user}]})
            continue
        calls = [{"functionCall": {"name": n, "args": a}} for n, a, _ in turn.calls]
        text = [{"text": turn.text}] if turn.text else []
        contents.append({"role": "model", "parts": [*text, *calls]})
        results = [
            {"functionResponse": {"name": n, "response": {"result": result}}}
            for n, _, result in turn.calls
        ]
        contents += [{"role": "user", "parts": results}] if results else []
    declared = [{**one, "parameters": _GEMINI_SCHEMA} for one in _functions(tools, "parameters")]
    body: dict[str, Any] = {"contents": contents}
    if declared:
        body["tools"] = [{"functionDeclarations": declared}]
    return {**body, "systemInstruction": {"parts": [{"text": system}]}} if system else body


def _ollama(system: str, turns: list[Said], tools: list[str]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        if turn.user:
            messages.append({"role": "user", "content": turn.user})
            continue
        calls = [{"function": {"name": n, "arguments": a}} for n, a, _ in turn.calls]
        message = {"role": "assistant", "content": turn.text}
        messages.append({**message, "tool_calls": calls} if calls else message)
        messages += [
            {"role": "tool", "tool_name": n, "content": result} for n, _, result in turn.calls
        ]
    functions = [{"type": "function", "function": f} for f in _functions(tools, "parameters")]
    return {"messages": messages, "tools": functions, "stream": False}


_WRITERS = {
    "openai.chat": _chat,
    "openai.responses": _responses,
    "anthropic.messages": _messages,
    "google.gemini": _gemini,
    "ollama": _ollama,
}
