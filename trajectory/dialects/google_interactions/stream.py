"""The events of a streamed interaction, joined into the shape of an unstreamed one."""

from trajectory.canonical import JsonObject
from trajectory.dialects.wire import as_integer, as_list, as_object, as_text, parse_json_or_none

_ARGUMENTS = "arguments_text"


def assemble_events(events: list[JsonObject]) -> JsonObject | None:
    """Return the interaction that ``events`` make; None when it never began."""
    whole: JsonObject = {}
    steps: dict[int, JsonObject] = {}
    for event in events:
        kind = as_text(event.get("event_type")) or ""
        index = as_integer(event.get("index")) or 0
        if kind.startswith("interaction."):
            told = as_object(event.get("interaction")) or _update(event)
            whole.update({name: item for name, item in told.items() if item is not None})
        elif kind == "step.start":
            steps[index] = dict(as_object(event.get("step")))
        elif kind == "step.delta":
            _join(steps.setdefault(index, {}), as_object(event.get("delta")))
    if not whole and not steps:
        return None
    if steps and not whole.get("steps"):
        whole["steps"] = [_finished(steps[index]) for index in sorted(steps)]
    return whole


def _update(event: JsonObject) -> JsonObject:
    wanted = ("status", "usage", "continuation_token")
    return {"id": event.get("interaction_id"), **{name: event.get(name) for name in wanted}}


def _join(step: JsonObject, delta: JsonObject) -> None:
    kind = as_text(delta.get("type")) or ""
    if kind == "text":
        step.setdefault("type", "model_output")
        _append(step, "content", delta)
    elif kind == "text_annotation_delta":
        content = as_list(step.get("content"))
        last = as_object(content[-1]) if content else {}
        last["annotations"] = [
            *as_list(last.get("annotations")),
            *as_list(delta.get("annotations")),
        ]
    elif kind == "thought_summary":
        step.setdefault("type", "thought")
        _append(step, "summary", as_object(delta.get("content")))
    elif kind == "thought_signature":
        step["signature"] = (as_text(step.get("signature")) or "") + (
            as_text(delta.get("signature")) or ""
        )
    elif kind == "arguments_delta":
        step.setdefault("type", "function_call")
        piece = as_text(delta.get("arguments")) or ""
        step[_ARGUMENTS] = (as_text(step.get(_ARGUMENTS)) or "") + piece
    elif kind in ("image", "audio", "video", "document"):
        step["content"] = [*as_list(step.get("content")), delta]
    else:  # a call or a result of the provider's own tools, whole
        step.setdefault("type", kind)
        step.update({k: v for k, v in delta.items() if k != "type" and v is not None})


def _append(step: JsonObject, field: str, piece: JsonObject) -> None:
    """Put a piece of content behind the others; a piece of text goes on with the text before it."""
    content = as_list(step.get(field))
    last = as_object(content[-1]) if content else {}
    if piece.get("type") == last.get("type") == "text" and not last.get("annotations"):
        last["text"] = (as_text(last.get("text")) or "") + (as_text(piece.get("text")) or "")
        return
    step[field] = [*content, dict(piece)]


def _finished(step: JsonObject) -> JsonObject:
    """Parse streamed arguments; what does not parse (a stream cut off) stays text."""
    raw = step.pop(_ARGUMENTS, None)
    if not isinstance(raw, str) or not raw:
        return step
    parsed = parse_json_or_none(raw)
    return {**step, "arguments": raw if parsed is None else parsed}


__all__ = ["assemble_events"]
