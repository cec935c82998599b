"""Answers as OpenAI's older completions write them."""

from trajectory.canonical import JsonObject
from trajectory.dialects.openai_chat.write import finish, usage
from trajectory.dialects.wire import as_object
from trajectory.dialects.writer import (
    AnsweredRequest,
    ModelAnswer,
    WireResponse,
    as_events,
    as_json,
    event,
    in_pieces,
)


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer whole, or as the events that the request asks for."""
    text = answer.message.text()
    if asked.body.get("stream") is not True:
        return as_json({**_chunk(answer, text, finish(answer)), "usage": usage(answer)})
    chunks = [_chunk(answer, piece, None) for piece in in_pieces(text)]
    chunks.append(_chunk(answer, "", finish(answer)))
    if as_object(asked.body.get("stream_options")).get("include_usage"):
        chunks.append({**_chunk(answer, "", None), "choices": [], "usage": usage(answer)})
    return as_events([*(event(chunk) for chunk in chunks), b"data: [DONE]\n\n"])


def _chunk(answer: ModelAnswer, text: str, finished: str | None) -> JsonObject:
    choice: JsonObject = {"index": 0, "text": text, "logprobs": None, "finish_reason": finished}
    return {
        "id": answer.response_id,
        "object": "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
    }
