"""Answers as Gemini's ``generateContent`` writes them: whole, as server-sent events, as an array."""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.writer import (
    AnsweredRequest,
    ModelAnswer,
    WireResponse,
    as_events,
    as_json,
    ended,
    given_id,
    in_pieces,
    input_object,
    json_bytes,
)
from trajectory.message import OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart, is_note

_FINISH = {"tool": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "stop": "STOP"}


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer as the path and ``alt`` ask for it."""
    if not asked.path.endswith(":streamGenerateContent"):
        return as_json(_response(answer, _parts(answer), last=True))
    chunks = [json_bytes(chunk) for chunk in _chunks(answer)]
    if "alt=sse" in asked.query.split("&"):
        return as_events([b"data: " + chunk + b"\r\n\r\n" for chunk in chunks])
    array = [b"[" + chunks[0], *(b",\r\n" + chunk for chunk in chunks[1:]), b"]"]
    return WireResponse("application/json; charset=UTF-8", tuple(array))


def _chunks(answer: ModelAnswer) -> list[JsonObject]:
    parts = [piece for part in _parts(answer) for piece in _taken_apart(part)] or [{"text": ""}]
    last = len(parts) - 1
    return [_response(answer, [part], last=at == last) for at, part in enumerate(parts)]


def _taken_apart(part: JsonObject) -> list[JsonObject]:
    """Return a text in pieces; what proves it stands on the last one."""
    text = part.get("text")
    if not isinstance(text, str) or not text:
        return [part]
    proof = {name: value for name, value in part.items() if name == "thoughtSignature"}
    rest = {name: value for name, value in part.items() if name not in ("text", *proof)}
    pieces: list[JsonObject] = [{**rest, "text": piece} for piece in in_pieces(text)]
    if proof and "thought" not in part:  # It leads a text that is no thought.
        return [{**pieces[0], **proof}, *pieces[1:]]
    return [*pieces[:-1], {**pieces[-1], **proof}]


def _response(answer: ModelAnswer, parts: list[JsonObject], *, last: bool) -> JsonObject:
    content: JsonObject = {"role": "model", "parts": [*parts]}
    candidate: JsonObject = {"index": 0, "content": content}
    if last:
        candidate["finishReason"] = _FINISH[ended(answer)]
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(answer),
        "modelVersion": answer.model,
        "responseId": answer.response_id,
    }


def _parts(answer: ModelAnswer) -> list[JsonObject]:
    """Return the parts; the proof of hidden reasoning stands on the part that it led to."""
    out: list[JsonObject] = []
    proof: JsonObject = {}
    for part in answer.message.parts:
        if isinstance(part, ReasoningPart) and not part.text:
            proof = {"thoughtSignature": part.signature or ""}
        elif (written := _part(part)) is not None:
            out.append({**written, **proof})
            proof = {}
    return [*out, {"text": "", **proof}] if proof else out


def _part(part: Part) -> JsonObject | None:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ReasoningPart):
        thought: JsonObject = {"text": part.text, "thought": True}
        return {**thought, "thoughtSignature": part.signature} if part.signature else thought
    if isinstance(part, ToolCallPart):
        call: JsonObject = {"name": part.name, "args": input_object(part.arguments)}
        return {"functionCall": {**given_id(part), **call}}
    if isinstance(part, OpaquePart) and isinstance(part.value, dict) and not is_note(part):
        return part.value
    return None


def _usage(answer: ModelAnswer) -> JsonObject:
    usage = answer.usage
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    thought = usage.reasoning_tokens or 0
    counts: dict[str, JsonValue] = {
        "promptTokenCount": given,
        "candidatesTokenCount": made - thought,
        "totalTokenCount": given + made,
    }
    if thought:
        counts["thoughtsTokenCount"] = thought
    if usage.cached_input_tokens:
        counts["cachedContentTokenCount"] = usage.cached_input_tokens
    return counts
