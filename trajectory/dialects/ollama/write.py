"""Answers as Ollama's ``/api/chat`` and ``/api/generate`` write them: JSON lines unless refused."""

from collections.abc import Sequence
from datetime import UTC, datetime

from trajectory.canonical import JsonObject
from trajectory.dialects.writer import (
    AnsweredRequest,
    AnswerStream,
    ModelAnswer,
    Piece,
    SampledToken,
    WholeCalls,
    WireResponse,
    as_json,
    ended,
    given_id,
    in_pieces,
    input_object,
    json_bytes,
)
from trajectory.message import ReasoningPart, TextPart, ToolCallPart

_LINES = "application/x-ndjson"


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer streamed, as Ollama does by itself, or whole."""
    generated = _generates(asked)
    if asked.body.get("stream") is False:
        pieces = _pieces(answer)
        joined: JsonObject = {"role": "assistant", "content": answer.message.text()}
        for name in ("thinking", "tool_calls"):
            if found := [piece[name] for piece in pieces if name in piece]:
                joined[name] = "".join(map(str, found)) if name == "thinking" else found[0]
        return as_json(_line(answer, joined, generated=generated, done=True))
    ending: JsonObject = {"role": "assistant", "content": ""}
    lines = [_line(answer, piece, generated=generated, done=False) for piece in _pieces(answer)]
    lines.append(_line(answer, ending, generated=generated, done=True))
    return WireResponse(_LINES, tuple(json_bytes(line) + b"\n" for line in lines))


def open_stream(begun: ModelAnswer, asked: AnsweredRequest) -> AnswerStream | None:
    """Return what writes the answer as it grows; None where the request wants it whole."""
    return OllamaStream(begun, asked) if asked.body.get("stream") is not False else None


class OllamaStream:
    """Writes an answer as it grows, a line for each piece; a tool call comes in one piece."""

    content_type = _LINES

    def __init__(self, begun: ModelAnswer, asked: AnsweredRequest) -> None:
        """Begin the answer that ``begun`` names."""
        self._begun = begun
        self._generated = _generates(asked)
        self._calls = WholeCalls()

    def start(self) -> bytes:
        """Return nothing: this API begins with the first words."""
        return b""

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:  # noqa: ARG002 - this API tells no tokens
        """Return a line for each part that the pieces complete."""
        return b"".join(self._part(part) for part in self._calls.take(pieces))

    def end(self, answer: ModelAnswer) -> bytes:
        """Return the call that was still open, and the line with the counts."""
        calls = b"".join(self._part(part) for part in self._calls.end())
        ending: JsonObject = {"role": "assistant", "content": ""}
        line = _line(answer, ending, generated=self._generated, done=True)
        return calls + json_bytes(line) + b"\n"

    def _part(self, part: TextPart | ToolCallPart) -> bytes:
        message: JsonObject = {"role": "assistant", "content": ""}
        if isinstance(part, TextPart):
            message["content"] = part.text
        else:
            message["tool_calls"] = [_call(part)]
        line = _line(self._begun, message, generated=self._generated, done=False)
        return json_bytes(line) + b"\n"


def _generates(asked: AnsweredRequest) -> bool:
    return asked.path.rstrip("/").endswith("/api/generate")


def _pieces(answer: ModelAnswer) -> list[JsonObject]:
    """Return the messages of a stream: thoughts, then words, then tool calls."""
    message = answer.message
    base: JsonObject = {"role": "assistant", "content": ""}
    thought = "\n".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    pieces: list[JsonObject] = [{**base, "thinking": piece} for piece in in_pieces(thought)]
    pieces += [{**base, "content": piece} for piece in in_pieces(message.text())]
    if calls := message.tool_calls():
        pieces.append({**base, "tool_calls": [_call(call) for call in calls]})
    return pieces


def _call(part: ToolCallPart) -> JsonObject:
    function: JsonObject = {"name": part.name, "arguments": input_object(part.arguments)}
    return {**given_id(part), "function": function}


def _line(answer: ModelAnswer, message: JsonObject, *, generated: bool, done: bool) -> JsonObject:
    made = datetime.fromtimestamp(answer.created, UTC).isoformat().replace("+00:00", "Z")
    line: JsonObject = {"model": answer.model, "created_at": made}
    if generated:
        line["response"] = message["content"]
        line |= {"thinking": message["thinking"]} if "thinking" in message else {}
    else:
        line["message"] = message
    line["done"] = done
    if done:
        line["done_reason"] = "length" if ended(answer) == "length" else "stop"
        line["prompt_eval_count"] = answer.usage.input_tokens or 0
        line["eval_count"] = answer.usage.output_tokens or 0
    return line
