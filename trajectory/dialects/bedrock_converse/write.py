"""Answers as Amazon Bedrock's ``converse`` and ``converse-stream`` write them."""

import base64
import binascii
from collections.abc import Iterator

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.event_stream import encode_message
from trajectory.dialects.wire import as_object, as_text
from trajectory.dialects.writer import (
    AnsweredRequest,
    ModelAnswer,
    WireResponse,
    arguments_text,
    as_json,
    ended,
    in_pieces,
    input_object,
    json_bytes,
)
from trajectory.message import OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart, is_note

EVENT_STREAM = "application/vnd.amazon.eventstream"
_STOP = {
    "tool": "tool_use",
    "length": "max_tokens",
    "filter": "content_filtered",
    "stop": "end_turn",
}


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer as the path asks for it."""
    if not asked.path.rstrip("/").endswith("-stream"):
        return as_json(whole(answer), request_id(answer))
    pieces = [event_message(kind, payload) for kind, payload in events(answer)]
    return WireResponse(EVENT_STREAM, tuple(pieces), (request_id(answer),))


def request_id(answer: ModelAnswer) -> tuple[str, str]:
    """Return the header that names an answer: the body has no place for it."""
    return "x-amzn-RequestId", answer.response_id


def event_message(kind: str, payload: JsonObject) -> bytes:
    """Return one event of the binary stream."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return encode_message(headers, json_bytes(payload))


def whole(answer: ModelAnswer) -> JsonObject:
    """Return the body of ``converse``."""
    message: JsonObject = {"role": "assistant", "content": [*_blocks(answer)]}
    return {"output": {"message": message}, "stopReason": _STOP[ended(answer)], **_counted(answer)}


def events(answer: ModelAnswer) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of ``converse-stream``: kind and payload."""
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(_blocks(answer)):
        place: JsonObject = {"contentBlockIndex": index}
        start, deltas = _taken_apart(block)
        if start:
            yield "contentBlockStart", {**place, "start": start}
        for delta in deltas:
            yield "contentBlockDelta", {**place, "delta": delta}
        yield "contentBlockStop", place
    yield "messageStop", {"stopReason": _STOP[ended(answer)]}
    yield "metadata", _counted(answer)


def _taken_apart(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return what a stream begins a block with, and what it is filled with."""
    if isinstance(block.get("text"), str):
        return {}, [{"text": piece} for piece in in_pieces(str(block["text"]))]
    if use := as_object(block.get("toolUse")):
        text = arguments_text(use.get("input"))
        named: JsonObject = {name: value for name, value in use.items() if name != "input"}
        return {"toolUse": named}, [{"toolUse": {"input": piece}} for piece in in_pieces(text)]
    if reasoning := as_object(block.get("reasoningContent")):
        told = as_object(reasoning.get("reasoningText"))
        if not told:
            return {}, [{"reasoningContent": reasoning}]
        texts: list[JsonObject] = [{"text": piece} for piece in in_pieces(str(told["text"]))]
        if signature := as_text(told.get("signature")):
            texts.append({"signature": signature})
        return {}, [{"reasoningContent": text} for text in texts]
    return block, []


def _blocks(answer: ModelAnswer) -> list[JsonObject]:
    return [block for part in answer.message.parts if (block := _block(part)) is not None]


def _block(part: Part) -> JsonObject | None:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ReasoningPart):
        return {"reasoningContent": _reasoning(part)}
    if isinstance(part, ToolCallPart):
        use: JsonObject = {"toolUseId": part.call_id, "name": part.name}
        return {"toolUse": {**use, "input": input_object(part.arguments)}}
    if isinstance(part, OpaquePart) and isinstance(part.value, dict) and not is_note(part):
        return part.value
    return None


def _reasoning(part: ReasoningPart) -> JsonObject:
    if not part.text and part.signature and _is_base64(part.signature):
        return {"redactedContent": part.signature}
    told: JsonObject = {"text": part.text}
    return {"reasoningText": {**told, "signature": part.signature} if part.signature else told}


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        return False


def _counted(answer: ModelAnswer) -> JsonObject:
    usage = answer.usage
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    cached = usage.cached_input_tokens or 0
    counts: dict[str, JsonValue] = {"inputTokens": max(0, given - cached), "outputTokens": made}
    counts["totalTokens"] = given + made
    if cached:
        counts["cacheReadInputTokens"] = cached
    return {"usage": counts, "metrics": {"latencyMs": 1}}
