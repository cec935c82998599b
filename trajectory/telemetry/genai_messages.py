"""Messages in the form of OpenTelemetry's GenAI conventions: a role and typed parts."""

import json

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_arguments
from trajectory.dialects.wire import as_list, as_object, as_text, media_bytes
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)


def read_messages(item: JsonObject) -> list[Message]:
    """Return the messages in one of the convention: results of tools are messages of their own."""
    role = as_text(item.get("role")) or "user"
    name = as_text(item.get("name"))
    parts = [read_part(part) for part in as_list(item.get("parts", item.get("content")))]
    if isinstance(item.get("content"), str) and "parts" not in item:
        parts = [TextPart(str(item["content"]))]
    results = [part for part in parts if isinstance(part, ToolResultPart)]
    others = tuple(part for part in parts if not isinstance(part, ToolResultPart))
    messages = [Message("tool", (part,)) for part in results]
    if others or not results:
        messages.append(Message(role, others, name))
    return messages


def read_part(value: JsonValue) -> Part:
    if isinstance(value, str):
        return TextPart(value)
    item = as_object(value)
    content = item.get("content")
    match item.get("type"):
        case "text" if isinstance(content, str):
            return TextPart(content)
        case "reasoning" | "thinking" if isinstance(content, str):
            return ReasoningPart(content, as_text(item.get("signature")))
        case "tool_call":
            return _tool_call(item)
        case "tool_call_response":
            response = item.get("response", item.get("result"))
            is_error = item.get("is_error") is True
            return ToolResultPart(as_text(item.get("id")) or "", response, is_error)
        case "uri" if isinstance(item.get("uri"), str):
            kind = as_text(item.get("mime_type")) or f"{item.get('modality') or 'application'}/*"
            return MediaPart(kind, None, None, url=str(item["uri"]))
        case "blob" if isinstance(content, str):
            kind = as_text(item.get("mime_type")) or f"{item.get('modality') or 'application'}/*"
            return media_bytes(content, kind)
        case _:
            return OpaquePart(value)


def _tool_call(item: JsonObject) -> ToolCallPart:
    arguments, valid = read_arguments(item.get("arguments"))
    return ToolCallPart(
        as_text(item.get("id")) or "", as_text(item.get("name")) or "", arguments, valid
    )


def write_message(message: Message) -> JsonObject:
    """Return a message in the convention's form."""
    out: JsonObject = {"role": message.role, "parts": [_write_part(part) for part in message.parts]}
    return {**out, "name": message.name} if message.name is not None else out


def _write_part(part: Part) -> JsonObject:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            signed = {"signature": part.signature} if part.signature else {}
            return {"type": "reasoning", "content": part.text, **signed}
        case ToolCallPart():
            arguments = part.arguments
            if part.arguments_valid and isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            call: JsonObject = {"type": "tool_call", "id": part.call_id, "name": part.name}
            return {**call, "arguments": arguments}
        case ToolResultPart():
            failed: JsonObject = {"is_error": True} if part.is_error else {}
            result: JsonObject = {"type": "tool_call_response", "id": part.call_id}
            return {**result, "response": part.content, **failed}
        case MediaPart() if part.url is not None:
            modality = part.media_type.partition("/")[0]
            kind: JsonObject = {"type": "uri", "mime_type": part.media_type, "modality": modality}
            return {**kind, "uri": part.url}
        case MediaPart():
            named: JsonObject = {"type": "media", "media_type": part.media_type}
            return {**named, "sha256": part.sha256, "size_bytes": part.size_bytes}
        case OpaquePart():
            return part.value if isinstance(part.value, dict) else {"type": "opaque"}


__all__ = ["read_messages", "read_part", "write_message"]
