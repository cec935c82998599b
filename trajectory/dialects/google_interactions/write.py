"""Answers as Gemini's interactions write them: steps, and a stream of typed events."""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import objects
from trajectory.dialects.writer import (
    AnsweredRequest,
    ModelAnswer,
    WireResponse,
    arguments_text,
    as_events,
    as_json,
    ended,
    event,
    in_pieces,
    input_object,
)
from trajectory.message import OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart, is_note

_STATUS = {
    "tool": "requires_action",
    "length": "incomplete",
    "filter": "incomplete",
    "stop": "completed",
}


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer whole, or as the events that the request asks for."""
    head: JsonObject = {"id": answer.response_id, "model": answer.model, "object": "interaction"}
    steps = _steps(answer)
    done: JsonObject = {**head, "status": _STATUS[ended(answer)], "usage": _usage(answer)}
    if asked.body.get("stream") is not True:
        return as_json({**done, "steps": [*steps]})
    told: list[JsonObject] = [
        _event("interaction.created", interaction={**head, "status": "in_progress"})
    ]
    for index, step in enumerate(steps):
        begun, deltas = _taken_apart(step)
        told.append(_event("step.start", index=index, step=begun))
        told += [_event("step.delta", index=index, delta=delta) for delta in deltas]
        told.append(_event("step.stop", index=index))
    told.append(_event("interaction.completed", interaction=done))
    return as_events([event(one, str(one["event_type"])) for one in told])


def _event(kind: str, **fields: JsonValue) -> JsonObject:
    return {"event_type": kind, **fields}


def _taken_apart(step: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return a step as a stream begins it, and what it is filled with."""
    deltas: list[JsonObject] = []
    match step.get("type"):
        case "model_output":
            for item in objects(step["content"]):
                deltas += [{"type": "text", "text": one} for one in in_pieces(str(item["text"]))]
                if item.get("annotations"):
                    noted: JsonObject = {"annotations": item["annotations"]}
                    deltas.append({"type": "text_annotation_delta", **noted})
            return {"type": "model_output"}, deltas
        case "thought":
            for item in objects(step.get("summary")):
                pieces = in_pieces(str(item["text"]))
                texts: list[JsonObject] = [{"type": "text", "text": one} for one in pieces]
                deltas += [{"type": "thought_summary", "content": one} for one in texts]
            if step.get("signature"):
                deltas.append({"type": "thought_signature", "signature": step["signature"]})
            return {"type": "thought"}, deltas
        case "function_call":
            text = arguments_text(step["arguments"])
            deltas += [{"type": "arguments_delta", "arguments": one} for one in in_pieces(text)]
            return {**step, "arguments": {}}, deltas
    return step, []


def _steps(answer: ModelAnswer) -> list[JsonObject]:
    steps: list[JsonObject] = []
    for part in answer.message.parts:
        if is_note(part):
            _noted(part, steps[-1] if steps else {})
        elif (step := _step(part)) is not None:
            steps.append(step)
    return steps


def _step(part: Part) -> JsonObject | None:
    if isinstance(part, TextPart):
        return {"type": "model_output", "content": [{"type": "text", "text": part.text}]}
    if isinstance(part, ReasoningPart):
        thought: JsonObject = {"type": "thought"}
        if part.text:
            thought["summary"] = [{"type": "text", "text": part.text}]
        return {**thought, "signature": part.signature} if part.signature else thought
    if isinstance(part, ToolCallPart):
        call: JsonObject = {"type": "function_call", "id": part.call_id, "name": part.name}
        return {**call, "arguments": input_object(part.arguments)}
    if isinstance(part, OpaquePart) and isinstance(part.value, dict) and part.value.get("type"):
        return part.value
    return None


def _noted(part: Part, step: JsonObject) -> None:
    """Put the sources of a text back beside it."""
    value = part.value if isinstance(part, OpaquePart) else None
    texts = objects(step.get("content"))
    if isinstance(value, dict) and texts and value.get("annotations"):
        texts[-1]["annotations"] = value["annotations"]


def _usage(answer: ModelAnswer) -> JsonObject:
    usage = answer.usage
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    thought = usage.reasoning_tokens or 0
    return {
        "total_input_tokens": given,
        "total_cached_tokens": usage.cached_input_tokens or 0,
        "total_output_tokens": made - thought,
        "total_thought_tokens": thought,
        "total_tokens": given + made,
    }
