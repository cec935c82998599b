"""Answers as OpenAI responses write them: items, and a stream of typed, numbered events."""

from collections.abc import Iterator

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.message import OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart, is_note
from trajectory.replay.answer import (
    Answer,
    Asked,
    WireAnswer,
    arguments_text,
    as_events,
    as_json,
    ended,
    event,
    in_pieces,
)

_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "previous_response_id",
    "temperature",
    "top_p",
    "user",
)
_REASONING_ID = "rs_"


def write(answer: Answer, asked: Asked) -> WireAnswer:
    """Return the answer whole, or as the events that the request asks for."""
    if asked.body.get("stream") is True:
        return as_events(events(answer, asked.body))
    return as_json(whole(answer, asked.body))


def whole(answer: Answer, request: JsonObject) -> JsonObject:
    """Return a ``response``."""
    return _response(answer, request, [*_items(answer, request)], done=True)


def events(answer: Answer, request: JsonObject) -> list[bytes]:
    """Return the events of a stream."""
    begun = _response(answer, request, [], done=False)
    found: list[tuple[str, JsonObject]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    items = _items(answer, request)
    for index, item in enumerate(items):
        found.extend(_item_events(index, item))
    response = _response(answer, request, [*items], done=True)
    found.append((f"response.{response['status']}", {"response": response}))
    return [
        event({"type": kind, "sequence_number": number, **fields}, kind)
        for number, (kind, fields) in enumerate(found)
    ]


def _item_events(index: int, item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    place: JsonObject = {"output_index": index}
    inside: JsonObject = {**place, "item_id": item.get("id")}
    begun: JsonObject = {**item, "status": "in_progress"} if "status" in item else item
    if item["type"] == "message":
        yield "response.output_item.added", {**place, "item": {**begun, "content": []}}
        for position, part in enumerate(objects(item["content"])):
            yield from _part_events({**inside, "content_index": position}, part)
    elif item["type"] == "function_call":
        text = str(item["arguments"])
        yield "response.output_item.added", {**place, "item": {**begun, "arguments": ""}}
        for piece in in_pieces(text):
            yield "response.function_call_arguments.delta", {**inside, "delta": piece}
        done: JsonObject = {**inside, "name": item["name"], "arguments": text}
        yield "response.function_call_arguments.done", done
    else:
        yield "response.output_item.added", {**place, "item": begun}
    yield "response.output_item.done", {**place, "item": item}


def _part_events(place: JsonObject, part: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    text = str(part["text"])
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    for piece in in_pieces(text):
        yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**place, "text": text, "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


def _items(answer: Answer, request: JsonObject) -> list[JsonObject]:
    items: list[JsonObject] = []
    name = answer.response_id.removeprefix("resp_")
    for part in answer.message.parts:
        if is_note(part):
            _noted(part, items[-1] if items else {})
            continue
        item = _item(part, f"{name}_{len(items)}", request)
        if item is not None:
            items.append(item)
    return items


def _noted(part: Part, item: JsonObject) -> None:
    """Put back into an item what was noted of it: sources, phase, fields of a call."""
    note = as_object(part.value if isinstance(part, OpaquePart) else None)
    if item.get("type") == "message":
        texts = objects(item.get("content"))
        if texts and isinstance(note.get("annotations"), list):
            texts[-1]["annotations"] = note["annotations"]
        if note.get("phase"):
            item["phase"] = note["phase"]
    elif note.get("call_id") == item.get("call_id"):
        item.update(as_object(note.get("fields")))


def _item(part: Part, name: str, request: JsonObject) -> JsonObject | None:
    if isinstance(part, TextPart):
        text: JsonObject = {"type": "output_text", "text": part.text, "annotations": []}
        head: JsonObject = {"id": f"msg_{name}", "type": "message", "status": "completed"}
        return {**head, "role": "assistant", "content": [{**text, "logprobs": []}]}
    if isinstance(part, ReasoningPart):
        return _reasoning(part, name)
    if isinstance(part, ToolCallPart):
        return _call(part, name, request)
    if isinstance(part, OpaquePart) and isinstance(part.value, dict) and part.value.get("type"):
        return part.value
    return None


def _reasoning(part: ReasoningPart, name: str) -> JsonObject:
    """Return a reasoning item; its signature is the item's own id or the sealed content."""
    proof = part.signature or ""
    own = proof.startswith(_REASONING_ID)
    item: JsonObject = {"id": proof if own else f"{_REASONING_ID}{name}", "type": "reasoning"}
    item["summary"] = [{"type": "summary_text", "text": part.text}] if part.text else []
    if proof and not own:
        item["encrypted_content"] = proof
    return item


def _call(part: ToolCallPart, name: str, request: JsonObject) -> JsonObject:
    kinds = {
        (as_text(tool.get("type")), as_text(tool.get("name")))
        for tool in objects(request.get("tools"))
    }
    head: JsonObject = {"id": f"fc_{name}", "call_id": part.call_id, "status": "completed"}
    namespace, _, function = part.name.rpartition(".")
    if ("namespace", namespace) in kinds:
        head = {**head, "namespace": namespace}
    else:
        function = part.name
    if ("custom", part.name) in kinds or _is_custom(request, namespace, function):
        item: JsonObject = {"type": "custom_tool_call", "name": function, "input": part.arguments}
        return {**head, **item}
    if (part.name, None) in kinds and isinstance(part.arguments, dict):
        return {**head, "type": f"{part.name}_call", **part.arguments}
    arguments = arguments_text(part.arguments)
    return {**head, "type": "function_call", "name": function, "arguments": arguments}


def _is_custom(request: JsonObject, namespace: str, name: str) -> bool:
    return any(
        tool.get("type") == "custom" and tool.get("name") == name
        for space in objects(request.get("tools"))
        if space.get("type") == "namespace" and space.get("name") == namespace
        for tool in objects(space.get("tools"))
    )


def _response(
    answer: Answer, request: JsonObject, items: list[JsonValue], *, done: bool
) -> JsonObject:
    cut = ended(answer) == "length"
    status = ("incomplete" if cut else "completed") if done else "in_progress"
    return {
        **{name: request.get(name) for name in _ECHOED},
        "id": answer.response_id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if done and cut else None,
        "model": answer.model,
        "output": items,
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "usage": _usage(answer) if done else None,
    }


def _usage(answer: Answer) -> JsonObject:
    usage = answer.usage
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": given + made,
    }
