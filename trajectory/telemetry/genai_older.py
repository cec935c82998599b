"""What GenAI instrumentations still send in older forms: an event for each message, or attributes
with an index.
"""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.read import read_message
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.message import Message
from trajectory.telemetry.facts import nest, structured
from trajectory.telemetry.spans import Span

_OLD_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def older_messages(
    attributes: JsonObject, span: Span
) -> tuple[tuple[Message, ...], Message | None, str | None]:
    """Return context, answer and finish reason."""
    context: list[Message] = []
    output, finish = None, None
    for event in span.events:
        fields = {name: structured(value) or value for name, value in event.attributes.items()}
        if event.name in _OLD_ROLES:
            item = {**fields, "tool_call_id": fields.get("id")}
            context.append(read_message({"role": _OLD_ROLES[event.name], **_known(item)}))
        elif event.name == "gen_ai.choice" and output is None:
            answer = as_object(fields.get("message")) or fields
            output = read_message({**_known(answer), "role": "assistant"})
            finish = as_text(fields.get("finish_reason"))
    if not context and output is None:
        given = objects(nest(attributes, "gen_ai.prompt."))
        context = [read_message(_known(item)) for item in given]
        for item in objects(nest(attributes, "gen_ai.completion."))[:1]:
            output = read_message({**_known(item), "role": "assistant"})
            finish = as_text(item.get("finish_reason"))
    return tuple(context), output if output and output.parts else None, finish


def _known(item: JsonObject) -> JsonObject:
    """Return the fields of a message that chat completions know, calls in their shape."""
    out: JsonObject = {
        name: item[name] for name in ("role", "content", "tool_call_id", "name") if item.get(name)
    }
    calls: list[JsonValue] = [
        call
        if "function" in call
        else {
            "id": call.get("id"),
            "function": {"name": call.get("name"), "arguments": call.get("arguments")},
        }
        for call in objects(item.get("tool_calls"))
    ]
    return {**out, "tool_calls": calls} if calls else out


__all__ = ["older_messages"]
