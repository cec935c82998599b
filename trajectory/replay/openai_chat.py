"""Answers as OpenAI chat completions write them."""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.message import OpaquePart, ReasoningPart, ToolCallPart
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

_FINISH = {"tool": "tool_calls", "length": "length", "filter": "content_filter", "stop": "stop"}


def write(answer: Answer, asked: Asked) -> WireAnswer:
    """Return the answer whole, or as the events that the request asks for."""
    if asked.body.get("stream") is True:
        return as_events(events(answer, asked.body))
    return as_json(whole(answer, asked.body))


def whole(answer: Answer, request: JsonObject) -> JsonObject:
    """Return a ``chat.completion``."""
    choice: JsonObject = {
        "index": 0,
        "message": _message(answer, request),
        "logprobs": None,
        "finish_reason": finish(answer),
    }
    head = _head(answer, "chat.completion")
    return {**head, "choices": [choice], "usage": usage(answer)}


def events(answer: Answer, request: JsonObject) -> list[bytes]:
    """Return the events of a stream, its end mark included."""
    return [*(event(chunk) for chunk in chunks(answer, request)), b"data: [DONE]\n\n"]


def chunks(answer: Answer, request: JsonObject) -> list[JsonObject]:
    """Return the chunks of a stream."""
    message = _message(answer, request)
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "content", "refusal"):
        deltas.extend({name: piece} for piece in in_pieces(as_text(message.get(name)) or ""))
    for index, call in enumerate(objects(message.get("tool_calls"))):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    head = _head(answer, "chat.completion.chunk")
    found = [_chunk(head, delta, None) for delta in deltas]
    found.append(_chunk(head, {}, finish(answer)))
    if as_object(request.get("stream_options")).get("include_usage"):
        found.append({**head, "choices": [], "usage": usage(answer)})
    return found


def finish(answer: Answer) -> str:
    """Return why the answer ended, in OpenAI's words."""
    return _FINISH[ended(answer)]


def _chunk(head: JsonObject, delta: JsonObject, finish: str | None) -> JsonObject:
    choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**head, "choices": [choice]}


def _head(answer: Answer, kind: str) -> JsonObject:
    return {
        "id": answer.response_id,
        "object": kind,
        "created": answer.created,
        "model": answer.model,
    }


def _message(answer: Answer, request: JsonObject) -> JsonObject:
    text = answer.message.text()
    calls: list[JsonValue] = [_call(part, request) for part in answer.message.tool_calls()]
    message: JsonObject = {
        "role": "assistant",
        "content": text or (None if calls else ""),
        "refusal": None,
    }
    for part in answer.message.parts:
        if isinstance(part, ReasoningPart):
            message["reasoning_content"] = part.text
        elif isinstance(part, OpaquePart) and isinstance(part.value, dict):
            kind = part.value.get("type")
            if kind in ("refusal", "message_fields"):
                message |= {name: item for name, item in part.value.items() if name != "type"}
    if calls:
        message["tool_calls"] = calls
    return message


def _call(part: ToolCallPart, request: JsonObject) -> JsonObject:
    custom = any(
        tool.get("type") == "custom" and as_object(tool.get("custom")).get("name") == part.name
        for tool in objects(request.get("tools"))
    )
    if custom:
        own: JsonObject = {"name": part.name, "input": part.arguments}
        return {"id": part.call_id, "type": "custom", "custom": own}
    function: JsonObject = {"name": part.name, "arguments": arguments_text(part.arguments)}
    return {"id": part.call_id, "type": "function", "function": function}


def usage(answer: Answer) -> JsonObject:
    """Return what was counted."""
    counts = answer.usage
    given, made = counts.input_tokens or 0, counts.output_tokens or 0
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": counts.cached_input_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens or 0},
    }
