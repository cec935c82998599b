"""The events of a streamed response, joined into the shape of an unstreamed one."""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_integer, as_object, as_text

_TERMINAL = frozenset(
    {
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.cancelled",
        "response.done",
    }
)
_TEXT_DELTAS = {
    "response.output_text.delta": ("output_text", "text"),
    "response.text.delta": ("output_text", "text"),
    "response.refusal.delta": ("refusal", "refusal"),
    "response.output_audio_transcript.delta": ("output_audio", "transcript"),
    "response.audio_transcript.delta": ("output_audio", "transcript"),
}


def assemble_events(events: list[JsonObject]) -> JsonObject | None:
    """Return the response that ``events`` make; without its last event, what had come until then."""
    response: JsonObject = {}
    items: dict[int, JsonObject] = {}
    for event in events:
        kind = as_text(event.get("type")) or ""
        if isinstance(event.get("response"), dict):
            response = as_object(event["response"])
            if kind in _TERMINAL and (response.get("output") or not items):
                return response
        elif kind in ("response.output_item.added", "response.output_item.done"):
            items[as_integer(event.get("output_index")) or 0] = dict(as_object(event.get("item")))
        elif kind.endswith(".delta"):
            index = as_integer(event.get("output_index")) or 0
            _join_delta(items.setdefault(index, {}), kind, event)
    if not response and not items:
        return None
    return {**response, "output": [items[index] for index in sorted(items)]}


def _join_delta(item: JsonObject, kind: str, event: JsonObject) -> None:
    delta = event.get("delta")
    if not isinstance(delta, str):
        return
    if kind in _TEXT_DELTAS:
        item.setdefault("type", "message")
        item.setdefault("role", "assistant")
        part, name = _TEXT_DELTAS[kind]
        _append(item, "content", event.get("content_index"), part, name, delta)
    elif kind == "response.function_call_arguments.delta":
        item.setdefault("type", "function_call")
        item["arguments"] = (as_text(item.get("arguments")) or "") + delta
    elif kind == "response.custom_tool_call_input.delta":
        item.setdefault("type", "custom_tool_call")
        item["input"] = (as_text(item.get("input")) or "") + delta
    elif kind == "response.reasoning_summary_text.delta":
        item.setdefault("type", "reasoning")
        _append(item, "summary", event.get("summary_index"), "summary_text", "text", delta)
    elif kind == "response.reasoning_text.delta":
        item.setdefault("type", "reasoning")
        _append(item, "content", event.get("content_index"), "reasoning_text", "text", delta)


def _append(
    item: JsonObject, field: str, index: JsonValue | None, kind: str, name: str, delta: str
) -> None:
    parts = item.get(field)
    if not isinstance(parts, list):
        parts = item[field] = []
    position = min(max(as_integer(index) or 0, 0), len(parts))
    if position == len(parts):
        parts.append({"type": kind})
    part = as_object(parts[position])
    part[name] = (as_text(part.get(name)) or "") + delta
