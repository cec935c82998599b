"""Plain OpenAI messages as JSON lines: ``{"messages": […], "tools": […], …}``, one trajectory a line."""

import json
from dataclasses import replace

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_message
from trajectory.dialects.wire import UnreadableError, objects, parse_json
from trajectory.formats.document import DocumentFormat, at_path, need_list
from trajectory.json_form import FormError
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    is_note,
)
from trajectory.portable import Trajectory, signals_of, split_steps


def import_line(line: str, *, number: int = 1) -> Trajectory:
    """Return the trajectory of one line.

    Raises:
        FormError: the line is not such a document; the text names the line.
    """
    try:
        value = parse_json(line.encode("utf-8", "replace"), "line")
    except UnreadableError as error:
        raise FormError(f"line {number}: {error.args[0]}; expected one object") from None
    return import_document(value, where=f"line {number}")


def _read(document: JsonObject, where: str) -> Trajectory:
    messages = need_list(document, "messages", where)
    split, trailing = split_steps(read_message(item) for item in messages)
    steps = list(split)
    signals: list[JsonValue] = []
    for item in objects(document.get("signals")):
        position = item.get("step")
        if not isinstance(position, int) or isinstance(position, bool):
            signals.append(item)
        elif 0 <= position < len(steps):
            step = steps[position]
            steps[position] = replace(step, signals=(*step.signals, *signals_of([item])))
    return Trajectory(
        steps=tuple(steps),
        trailing=trailing,
        tools=tuple(objects(document.get("tools"))),
        signals=signals_of(signals),
    )


def _write(trajectory: Trajectory) -> JsonObject:
    messages: list[JsonValue] = [write_message(message) for message in trajectory.messages()]
    document: JsonObject = {"messages": messages}
    if trajectory.tools:
        document["tools"] = list(trajectory.tools)
    signals: list[JsonValue] = [signal.to_json() for signal in trajectory.signals]
    for position, step in enumerate(trajectory.steps):
        signals.extend({**signal.to_json(), "step": position} for signal in step.signals)
    if signals:
        document["signals"] = signals
    return document


def write_message(message: Message) -> JsonObject:
    """Return a message in the shape of chat completions."""
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if message.role == "tool" and results:
        result = results[0]
        return {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
    out: JsonObject = {"role": message.role, "content": _content(message)}
    if message.name is not None:
        out["name"] = message.name
    if reasoning := [part.text for part in message.parts if isinstance(part, ReasoningPart)]:
        out["reasoning_content"] = "\n".join(reasoning)
    if calls := message.tool_calls():
        out["tool_calls"] = [_tool_call(call) for call in calls]
    return out


def _content(message: Message) -> JsonValue:
    parts = [
        part
        for part in message.parts
        if isinstance(part, TextPart | MediaPart | OpaquePart) and not is_note(part)
    ]
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    if not parts:
        return None if message.tool_calls() else ""
    return [_content_part(part) for part in parts]


def _content_part(part: Part) -> JsonValue:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, MediaPart) and part.url is not None:
        return {"type": "image_url", "image_url": {"url": part.url}}
    if isinstance(part, MediaPart):
        name = f"[{part.media_type} sha256:{part.sha256} {part.size_bytes} bytes]"
        return {"type": "text", "text": name}
    return part.value if isinstance(part, OpaquePart) else None


def _tool_call(call: ToolCallPart) -> JsonObject:
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": text},
    }


FORMAT = DocumentFormat("openai-messages", "chat completions", _read, _write, at_path())
import_document = FORMAT.import_document
export_document = FORMAT.export_document


def export_line(trajectory: Trajectory) -> str:
    """Return the trajectory as one line, without its end."""
    return json.dumps(export_document(trajectory), ensure_ascii=False)


__all__ = [
    "FORMAT",
    "export_document",
    "export_line",
    "import_document",
    "import_line",
    "write_message",
]
