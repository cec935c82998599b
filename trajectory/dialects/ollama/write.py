"""Answers as Ollama's ``/api/chat`` and ``/api/generate`` write them: JSON lines unless refused."""

from datetime import UTC, datetime

from trajectory.canonical import JsonObject
from trajectory.dialects.writer import (
    AnsweredRequest,
    ModelAnswer,
    WireResponse,
    as_json,
    ended,
    given_id,
    in_pieces,
    input_object,
    json_bytes,
)
from trajectory.message import ReasoningPart


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer streamed, as Ollama does by itself, or whole."""
    generated = asked.path.rstrip("/").endswith("/api/generate")
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
    return WireResponse("application/x-ndjson", tuple(json_bytes(line) + b"\n" for line in lines))


def _pieces(answer: ModelAnswer) -> list[JsonObject]:
    """Return the messages of a stream: thoughts, then words, then tool calls."""
    message = answer.message
    base: JsonObject = {"role": "assistant", "content": ""}
    thought = "\n".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    pieces: list[JsonObject] = [{**base, "thinking": piece} for piece in in_pieces(thought)]
    pieces += [{**base, "content": piece} for piece in in_pieces(message.text())]
    if calls := message.tool_calls():
        asked: list[JsonObject] = [
            {
                **given_id(call),
                "function": {"name": call.name, "arguments": input_object(call.arguments)},
            }
            for call in calls
        ]
        pieces.append({**base, "tool_calls": [*asked]})
    return pieces


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
