"""Turns stored messages into what a chat template takes: one function for every recipe."""

import json
from collections.abc import Sequence
from typing import Any

from trajectory.canonical import JsonValue, canonical_json
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    ReasoningPart,
    ToolCallPart,
    ToolResultPart,
    is_note,
    stored_message,
)

type ChatMessage = dict[str, Any]
"""A message as chat templates know it: ``role``, ``content``, ``tool_calls`` …"""

_OUTPUT = frozenset({"output", "result"})
_GEMINI_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_TEMPLATE_ROLES = {"developer": "system"}


class UnrenderableError(ValueError):
    """A message holds something that no text template can show; ``reason`` is a fixed word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def to_chat(message: Message) -> list[ChatMessage]:
    """Return the chat-template form of a message.

    One message of some dialects holds several tool results; templates want one message of the
    role ``tool`` for each, so the answer is a list. Tool arguments stay JSON objects, because
    templates render them themselves.

    Raises:
        UnrenderableError: media, an unknown part, or tool arguments that are no JSON object.
    """
    parts = (part for part in message.parts if not is_note(part))
    refused = next((part for part in parts if isinstance(part, MediaPart | OpaquePart)), None)
    if refused is not None:
        raise UnrenderableError(refused.type)
    results: list[ChatMessage] = [
        {"role": "tool", "tool_call_id": part.call_id, "content": result_text(part.content)}
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    text = message.text()
    calls = message.tool_calls()
    thoughts = (part.text for part in message.parts if isinstance(part, ReasoningPart))
    reasoning = "\n".join(text for text in thoughts if text)
    if results and not (text or calls):
        return results
    if message.role == "tool" and not results:
        return [{"role": "tool", "content": text}]
    chat: ChatMessage = {"role": _TEMPLATE_ROLES.get(message.role, message.role), "content": text}
    if calls:
        chat["tool_calls"] = [_tool_call(part) for part in calls]
    if reasoning:
        chat["reasoning_content"] = reasoning
    if message.name is not None:
        chat["name"] = message.name
    return [*results, chat]


def _tool_call(part: ToolCallPart) -> dict[str, Any]:
    if not part.arguments_valid or not isinstance(part.arguments, dict):
        raise UnrenderableError("invalid_tool_arguments")
    return {
        "type": "function",
        "id": part.call_id,
        "function": {"name": part.name, "arguments": part.arguments},
    }


def result_text(content: JsonValue) -> str:
    """Return a tool result as text: text blocks joined, anything else as canonical JSON.

    Gemini's results are objects; one that holds the output alone stands for the output.
    """
    if isinstance(content, dict) and len(content) == 1 and content.keys() <= _OUTPUT:
        return result_text(*content.values())
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        texts = [block.get("text") if isinstance(block, dict) else block for block in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts)
    return "" if content is None else canonical_json(content).decode()


def to_tools(tools: Sequence[JsonValue]) -> list[dict[str, Any]]:
    """Return tool definitions of any dialect in the shape that chat templates take."""
    return [
        _tool_definition(one)
        for tool in tools
        if isinstance(tool, dict)
        for one in _of_namespace(tool)
    ]


def _of_namespace(tool: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions of a namespace, named as its calls are; any other tool alone."""
    inner = tool.get("tools")
    if tool.get("type") != "namespace" or not isinstance(inner, list):
        return [tool]
    return [
        {**one, "name": f"{tool.get('name')}.{one.get('name')}"}
        for one in inner
        if isinstance(one, dict)
    ]


def _tool_definition(tool: dict[str, Any]) -> dict[str, Any]:
    inner = tool.get("function")
    source: dict[str, Any] = inner if isinstance(inner, dict) else tool
    given = (source.get(name) for name in ("parameters", "input_schema", "parametersJsonSchema"))
    parameters = next((schema for schema in given if schema is not None), {"type": "object"})
    return {
        "type": "function",
        "function": {
            "name": source.get("name", ""),
            "description": source.get("description", ""),
            "parameters": _schema(parameters),
        },
    }


def _schema(value: Any) -> Any:
    """Return a JSON schema; Gemini spells its types in capitals."""
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {name: _schema(item) for name, item in value.items()}
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _GEMINI_TYPES:
        schema["type"] = kind.lower()
    return schema


def message_from_parts(role: str, parts: str, name: str | None = None) -> Message:
    """Build a message from the columns ``role``, ``parts`` and ``name`` of the table ``messages``."""
    return Message.from_json(stored_message(role, json.loads(parts), name))
