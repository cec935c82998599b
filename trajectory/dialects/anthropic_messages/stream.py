"""The events of a streamed Anthropic message, joined into the shape of an unstreamed one."""

from trajectory.canonical import JsonObject
from trajectory.dialects.blocks import finished_input
from trajectory.dialects.wire import as_integer, as_object, as_text

_DELTA_JOINED = frozenset({"type", "delta", "usage"})
_TEXT_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def assemble_events(events: list[JsonObject]) -> JsonObject | None:
    """Return the message that ``events`` make; None when it never started."""
    message: JsonObject | None = None
    blocks: dict[int, JsonObject] = {}
    for event in events:
        kind = event.get("type")
        if kind == "message_start":
            message = dict(as_object(event.get("message")))
        elif kind == "content_block_start":
            block = dict(as_object(event.get("content_block")))
            blocks[as_integer(event.get("index")) or 0] = block
        elif kind == "content_block_delta":
            index = as_integer(event.get("index")) or 0
            _join_delta(blocks.setdefault(index, {}), as_object(event.get("delta")))
        elif kind == "message_delta" and message is not None:
            _join_message_delta(message, event)
    if message is None:
        return None
    message["content"] = [
        finished_input(blocks[index], "partial_input") for index in sorted(blocks)
    ]
    return message


def _join_message_delta(message: JsonObject, event: JsonObject) -> None:
    beside = {name: value for name, value in event.items() if name not in _DELTA_JOINED}
    for name, value in (*beside.items(), *as_object(event.get("delta")).items()):
        if value is not None:
            message[name] = value
    usage = {**as_object(message.get("usage"))}
    usage.update({k: v for k, v in as_object(event.get("usage")).items() if v is not None})
    message["usage"] = usage


def _join_delta(block: JsonObject, delta: JsonObject) -> None:
    kind = as_text(delta.get("type")) or ""
    if kind in _TEXT_DELTAS:
        name = _TEXT_DELTAS[kind]
        block.setdefault("type", "text" if name == "text" else "thinking")
        block[name] = (as_text(block.get(name)) or "") + (as_text(delta.get(name)) or "")
    elif kind == "input_json_delta":
        block.setdefault("type", "tool_use")
        piece = as_text(delta.get("partial_json")) or ""
        block["partial_input"] = (as_text(block.get("partial_input")) or "") + piece
    elif kind == "citations_delta":
        citations = block.get("citations")
        if not isinstance(citations, list):
            citations = block["citations"] = []
        citations.append(delta.get("citation"))
    else:  # a whole field at once, as of a compaction
        block.setdefault("type", kind.removesuffix("_delta"))
        block.update({k: v for k, v in delta.items() if k != "type" and v is not None})
