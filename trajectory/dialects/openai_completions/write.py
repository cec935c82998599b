"""Answers as OpenAI's older completions write them, with the token fields that vLLM adds on request."""

from collections.abc import Sequence

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.write import finish, usage
from trajectory.dialects.wire import as_object
from trajectory.dialects.writer import (
    EVENTS,
    AnsweredRequest,
    AnswerStream,
    ModelAnswer,
    Piece,
    SampledToken,
    TextPiece,
    WireResponse,
    as_events,
    as_json,
    event,
    in_pieces,
)

_DONE = b"data: [DONE]\n\n"


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer whole, or as the events that the request asks for."""
    text = answer.message.text()
    if asked.body.get("stream") is not True:
        choice = _choice(text, finish(answer), answer.tokens, asked.body)
        if asked.body.get("return_token_ids") and answer.tokens:
            choice["prompt_token_ids"] = list(answer.prompt_ids)
        return as_json({**_head(answer), "choices": [choice], "usage": usage(answer)})
    stream = CompletionsStream(answer, asked.body)
    events = [stream.take([TextPiece(piece)]) for piece in in_pieces(text)]
    return as_events([*events, *stream.closing(answer)])


def open_stream(begun: ModelAnswer, asked: AnsweredRequest) -> AnswerStream | None:
    """Return what writes the answer as it grows; None where the request wants it whole."""
    return CompletionsStream(begun, asked.body) if asked.body.get("stream") is True else None


class CompletionsStream:
    """Writes a completion as it grows; this API has no tool calls."""

    content_type = EVENTS

    def __init__(self, begun: ModelAnswer, request: JsonObject) -> None:
        """Begin the answer that ``begun`` names, to a request with this body."""
        self._begun = begun
        self._request = request
        self._prompt_told = not (request.get("return_token_ids") and begun.prompt_ids)

    def start(self) -> bytes:
        """Return nothing: this API begins with the first text."""
        return b""

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:
        """Return a chunk for the text; facts of the token go with it, or alone."""
        text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        asked = self._request
        wanted = asked.get("return_token_ids") or asked.get("logprobs") is not None
        if not text and not (token is not None and wanted):
            return b""
        choice = _choice(text, None, () if token is None else (token,), self._request)
        if not self._prompt_told:
            choice["prompt_token_ids"] = list(self._begun.prompt_ids)
            self._prompt_told = True
        return event({**_head(self._begun), "choices": [choice]})

    def end(self, answer: ModelAnswer) -> bytes:
        """Return the finish reason, the usage when asked for, and the end mark."""
        return b"".join(self.closing(answer))

    def closing(self, answer: ModelAnswer) -> list[bytes]:
        """Return the events that close the answer."""
        last = _choice("", finish(answer), (), self._request)
        found = [event({**_head(answer), "choices": [last]})]
        if as_object(self._request.get("stream_options")).get("include_usage"):
            found.append(event({**_head(answer), "choices": [], "usage": usage(answer)}))
        return [*found, _DONE]


def _head(answer: ModelAnswer) -> JsonObject:
    return {
        "id": answer.response_id,
        "object": "text_completion",
        "created": answer.created,
        "model": answer.model,
    }


def _choice(
    text: str, finished: str | None, tokens: Sequence[SampledToken], request: JsonObject
) -> JsonObject:
    choice: JsonObject = {"index": 0, "text": text, "logprobs": _logprobs(tokens, request)}
    choice["finish_reason"] = finished
    if request.get("return_token_ids") and tokens:
        choice["token_ids"] = [token.id for token in tokens]
    return choice


def _logprobs(tokens: Sequence[SampledToken], request: JsonObject) -> JsonValue:
    if request.get("logprobs") is None or not tokens:
        return None
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.top) for token in tokens],
    }
