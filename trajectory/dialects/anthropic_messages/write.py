"""Answers as Anthropic messages write them."""

from collections.abc import Sequence

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.write import token_fields
from trajectory.dialects.wire import objects
from trajectory.dialects.writer import (
    EVENTS,
    AnsweredRequest,
    AnswerStream,
    CallPiece,
    CallStart,
    ModelAnswer,
    Piece,
    SampledToken,
    TextPiece,
    WireResponse,
    arguments_text,
    as_events,
    as_json,
    ended,
    event,
    in_pieces,
    input_object,
    new_id,
)
from trajectory.message import OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart, is_note

RESPONSE_ID = "msg_"
CALL_ID = "toolu_"
_STOP = {"tool": "tool_use", "length": "max_tokens", "filter": "refusal", "stop": "end_turn"}
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta"}


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer whole, or as the events that the request asks for."""
    if asked.body.get("stream") is not True:
        return as_json({**whole(answer), **token_fields(answer, asked.body)})
    return as_events([_named_event(payload) for payload in payloads(answer)])


def open_stream(begun: ModelAnswer, asked: AnsweredRequest) -> AnswerStream | None:
    """Return what writes the answer as it grows; None where the request wants it whole."""
    return MessagesStream(begun, asked.body) if asked.body.get("stream") is True else None


def error_body(kind: str, message: str) -> JsonObject:
    """Return an error as Anthropic has it."""
    error: JsonObject = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": new_id("req_")}


def whole(answer: ModelAnswer) -> JsonObject:
    """Return a ``message``."""
    blocks: list[JsonValue] = [*_blocks(answer)]
    return {**_head(answer), "content": blocks, **_stop(answer), "usage": _usage(answer)}


def payloads(answer: ModelAnswer) -> list[JsonObject]:
    """Return what the events of a finished answer's stream hold."""
    found = _opening(answer)
    for index, block in enumerate(_blocks(answer)):
        empty, deltas = _taken_apart(block)
        found.append(_payload("content_block_start", index=index, content_block=empty))
        found += [_payload("content_block_delta", index=index, delta=delta) for delta in deltas]
        found.append(_payload("content_block_stop", index=index))
    return [*found, *_closing(answer)]


class MessagesStream:
    """Writes a message as it grows; a block is closed when the next one begins."""

    content_type = EVENTS

    def __init__(self, begun: ModelAnswer, request: JsonObject) -> None:
        """Begin the answer that ``begun`` names; its usage counts the prompt."""
        self._begun = begun
        self._request = request
        self._index = -1
        self._open: str | None = None

    def start(self) -> bytes:
        """Return the events that open the message."""
        return b"".join(map(_named_event, _opening(self._begun)))

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:  # noqa: ARG002 - tokens come with the last event
        """Return the events of the pieces."""
        found: list[JsonObject] = []
        for piece in pieces:
            found += self._events(piece)
        return b"".join(map(_named_event, found))

    def end(self, answer: ModelAnswer) -> bytes:
        """Close the last block and the message."""
        said, end = _closing(answer)
        last = {**said, **token_fields(answer, self._request)}
        return b"".join(map(_named_event, [*self._close(), last, end]))

    def _events(self, piece: Piece) -> list[JsonObject]:
        match piece:
            case TextPiece(text=text):
                opened = self._begin({"type": "text", "text": ""}) if self._open != "text" else []
                return [*opened, self._delta({"type": "text_delta", "text": text})]
            case CallStart(call_id=call_id, name=name):
                return self._begin(_tool_use(ToolCallPart(call_id, name, {})))
            case CallPiece(text=text):
                return [self._delta({"type": "input_json_delta", "partial_json": text})]

    def _begin(self, block: JsonObject) -> list[JsonObject]:
        closed = self._close()
        self._index += 1
        self._open = str(block["type"])
        return [*closed, _payload("content_block_start", index=self._index, content_block=block)]

    def _delta(self, delta: JsonObject) -> JsonObject:
        return _payload("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> list[JsonObject]:
        if self._open is None:
            return []
        self._open = None
        return [_payload("content_block_stop", index=self._index)]


def _opening(answer: ModelAnswer) -> list[JsonObject]:
    usage = {**_usage(answer), "output_tokens": 1}
    message: JsonObject = {**_head(answer), "content": [], "stop_reason": None, "usage": usage}
    return [_payload("message_start", message=message), _payload("ping")]


def _closing(answer: ModelAnswer) -> list[JsonObject]:
    delta = _stop(answer)
    made: JsonObject = {"output_tokens": answer.usage.output_tokens or 0}
    return [_payload("message_delta", delta=delta, usage=made), _payload("message_stop")]


def _stop(answer: ModelAnswer) -> JsonObject:
    if answer.stop_text is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_text}
    return {"stop_reason": _STOP[ended(answer)], "stop_sequence": None}


def _payload(kind: str, **fields: JsonValue) -> JsonObject:
    return {"type": kind, **fields}


def _named_event(payload: JsonObject) -> bytes:
    return event(payload, str(payload["type"]))


def _taken_apart(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return a block as a stream begins it, and what it is filled with."""
    kind = str(block.get("type"))
    if kind in _DELTAS:
        text = str(block[kind])
        deltas: list[JsonObject] = [
            {"type": _DELTAS[kind], kind: piece} for piece in in_pieces(text)
        ]
        if kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        deltas.extend(
            {"type": "citations_delta", "citation": one} for one in objects(block.get("citations"))
        )
        return {"type": "text", "text": ""}, deltas
    if kind == "tool_use":
        text = arguments_text(block["input"])
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": piece} for piece in in_pieces(text)
        ]
    return block, []


def _blocks(answer: ModelAnswer) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    for part in answer.message.parts:
        if cited := _cited(part):
            blocks[-1:] = _cut_where_cited(blocks[-1:], cited)
        elif (block := _block(part)) is not None:
            blocks.append(block)
    return blocks


def _cited(part: Part) -> list[JsonObject]:
    value = part.value if isinstance(part, OpaquePart) and is_note(part) else None
    return objects(value.get("cited")) if isinstance(value, dict) else []


def _cut_where_cited(blocks: list[JsonObject], cited: list[JsonObject]) -> list[JsonObject]:
    """Return a text in blocks again, those with sources apart."""
    if not blocks or blocks[0].get("type") != "text":
        return blocks
    rest, found = str(blocks[0]["text"]), list[JsonObject]()
    for item in cited:
        words = str(item.get("text") or "")
        before, match, after = rest.partition(words) if words else (rest, "", "")
        if not match:
            continue
        found += [{"type": "text", "text": before}] if before else []
        found.append({"type": "text", "text": words, "citations": item.get("citations")})
        rest = after
    return [*found, {"type": "text", "text": rest}] if rest or not found else found


def _block(part: Part) -> JsonObject | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ReasoningPart):
        if not part.text and part.signature:
            return {"type": "redacted_thinking", "data": part.signature}
        return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
    if isinstance(part, ToolCallPart):
        return _tool_use(part)
    if is_note(part):
        return None
    if isinstance(part, OpaquePart) and isinstance(part.value, dict) and part.value.get("type"):
        return part.value
    return None


def _tool_use(part: ToolCallPart) -> JsonObject:
    given = input_object(part.arguments)
    return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": given}


def _head(answer: ModelAnswer) -> JsonObject:
    return {
        "id": answer.response_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "stop_sequence": None,
    }


def _usage(answer: ModelAnswer) -> JsonObject:
    cached = answer.usage.cached_input_tokens or 0
    return {
        "input_tokens": max(0, (answer.usage.input_tokens or 0) - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer.usage.output_tokens or 0,
    }
