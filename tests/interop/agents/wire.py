"""What the scripted provider reads of a request: enough to know where in its script an agent is."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One request, in one shape for all dialects."""

    dialect: str
    system: str
    said: tuple[str, ...]
    """The user's texts, in order."""
    turns: int
    """Turns of the model in the conversation as sent."""
    call_ids: tuple[str, ...]
    """Of all tool calls in the conversation."""
    tools: tuple[str, ...]
    previous: str | None
    body: dict[str, Any]


def read(dialect: str, body: dict[str, Any]) -> Asked:
    """Read a request body."""
    return {"chat": _chat, "responses": _responses, "messages": _messages}[dialect](body)


def _chat(body: dict[str, Any]) -> Asked:
    messages = body["messages"]
    return Asked(
        "openai.chat",
        " ".join(_text(m["content"]) for m in messages if m["role"] in ("system", "developer")),
        tuple(_text(m["content"]) for m in messages if m["role"] == "user"),
        sum(m["role"] == "assistant" for m in messages),
        tuple(call["id"] for m in messages for call in m.get("tool_calls") or ()),
        tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
        None,
        body,
    )


def _responses(body: dict[str, Any]) -> Asked:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    calls = [item for item in items if item.get("type") == "function_call"]
    return Asked(
        "openai.responses",
        body.get("instructions") or "",
        tuple(_text(item["content"]) for item in items if item.get("role") == "user"),
        len(calls) + sum(item.get("role") == "assistant" for item in items),
        tuple(call["call_id"] for call in calls),
        tuple(tool.get("name", tool["type"]) for tool in body.get("tools") or ()),
        body.get("previous_response_id"),
        body,
    )


def _messages(body: dict[str, Any]) -> Asked:
    messages = body["messages"]
    blocks = [block for m in messages if isinstance(m["content"], list) for block in m["content"]]
    return Asked(
        "anthropic.messages",
        _text(body.get("system") or ""),
        tuple(_text(m["content"]) for m in messages if m["role"] == "user"),
        sum(m["role"] == "assistant" for m in messages),
        tuple(block["id"] for block in blocks if block["type"] == "tool_use"),
        tuple(tool["name"] for tool in body.get("tools") or ()),
        None,
        body,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part.get("text", "") for part in content if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def arguments(value: Any) -> str:
    """Return arguments as one text, however they were spaced."""
    return json.dumps(value, sort_keys=True)
