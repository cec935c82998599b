"""Answers as OpenAI chat completions write them, with the token fields that vLLM adds on request."""

from collections.abc import Sequence

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, as_text, objects
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
)
from trajectory.message import OpaquePart, ReasoningPart, ToolCallPart

RESPONSE_ID = "chatcmpl-"
CALL_ID = "call_"
_FINISH = {"tool": "tool_calls", "length": "length", "filter": "content_filter", "stop": "stop"}
_DONE = b"data: [DONE]\n\n"


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer whole, or as the events that the request asks for."""
    if asked.body.get("stream") is not True:
        return as_json(whole(answer, asked.body))
    return as_events([*(event(chunk) for chunk in chunks(answer, asked.body)), _DONE])


def open_stream(begun: ModelAnswer, asked: AnsweredRequest) -> AnswerStream | None:
    """Return what writes the answer as it grows; None where the request wants it whole."""
    return ChatStream(begun, asked.body) if asked.body.get("stream") is True else None


def error_body(kind: str, message: str, code: str | None = None) -> JsonObject:
    """Return an error as all of OpenAI's interfaces have it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def whole(answer: ModelAnswer, request: JsonObject) -> JsonObject:
    """Return a ``chat.completion``."""
    choice: JsonObject = {
        "index": 0,
        "message": _message(answer, request),
        "logprobs": _logprobs(answer.tokens, request),
        "finish_reason": finish(answer),
    }
    head: JsonObject = {**_head(answer, "chat.completion"), "choices": [choice]}
    if request.get("return_token_ids") and answer.tokens:
        choice["token_ids"] = [token.id for token in answer.tokens]
        head["prompt_token_ids"] = list(answer.prompt_ids)
    return {**head, "usage": usage(answer)}


def token_fields(answer: ModelAnswer, request: JsonObject) -> JsonObject:
    """Return exact tokens beside an answer without choices, named as those of a chat are."""
    if not request.get("return_token_ids") or not answer.tokens:
        return {}
    found: JsonObject = {"prompt_token_ids": list(answer.prompt_ids)}
    found["token_ids"] = [token.id for token in answer.tokens]
    if request.get("logprobs"):
        found["logprobs"] = _logprobs(answer.tokens, request)
    return found


def chunks(answer: ModelAnswer, request: JsonObject) -> list[JsonObject]:
    """Return the chunks of a finished answer's stream."""
    stream = ChatStream(answer, request)
    message = _message(answer, request)
    deltas: list[JsonObject] = []
    for name in ("reasoning_content", "content", "refusal"):
        deltas.extend({name: piece} for piece in in_pieces(as_text(message.get(name)) or ""))
    for index, call in enumerate(objects(message.get("tool_calls"))):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    return [stream.first(), *(stream.chunk(delta) for delta in deltas), *stream.last(answer)]


class ChatStream:
    """Writes a chat completion as it grows."""

    content_type = EVENTS

    def __init__(self, begun: ModelAnswer, request: JsonObject) -> None:
        """Begin the answer that ``begun`` names, to a request with this body."""
        self._begun = begun
        self._request = request
        self._head = _head(begun, "chat.completion.chunk")
        self._calls = 0

    def start(self) -> bytes:
        """Return the chunk that names the role."""
        return event(self.first())

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:
        """Return a chunk for each piece; facts of the token go with the first, or alone."""
        deltas = [self._delta(piece) for piece in pieces]
        wanted = self._request.get("return_token_ids") or self._request.get("logprobs")
        if not deltas and token is not None and wanted:
            deltas = [{}]
        tokens = (token,) if token is not None else ()
        return b"".join(
            event(self.chunk(delta, tokens if place == 0 else ()))
            for place, delta in enumerate(deltas)
        )

    def end(self, answer: ModelAnswer) -> bytes:
        """Return the finish reason, the usage when asked for, and the end mark."""
        return b"".join(map(event, self.last(answer))) + _DONE

    def first(self) -> JsonObject:
        """Return the chunk that names the role."""
        chunk = self.chunk({"role": "assistant", "content": ""})
        if self._request.get("return_token_ids") and self._begun.prompt_ids:
            chunk["prompt_token_ids"] = list(self._begun.prompt_ids)
        return chunk

    def chunk(
        self,
        delta: JsonObject,
        tokens: Sequence[SampledToken] = (),
        finished: str | None = None,
    ) -> JsonObject:
        """Return one chunk."""
        logprobs = _logprobs(tokens, self._request) if tokens else None
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": logprobs}
        choice["finish_reason"] = finished
        if tokens and self._request.get("return_token_ids"):
            choice["token_ids"] = [token.id for token in tokens]
        return {**self._head, "choices": [choice]}

    def last(self, answer: ModelAnswer) -> list[JsonObject]:
        """Return the chunks that close the answer."""
        found = [self.chunk({}, finished=finish(answer))]
        if as_object(self._request.get("stream_options")).get("include_usage"):
            found.append({**self._head, "choices": [], "usage": usage(answer)})
        return found

    def _delta(self, piece: Piece) -> JsonObject:
        call: JsonObject
        match piece:
            case TextPiece(text=text):
                return {"content": text}
            case CallStart(call_id=call_id, name=name):
                self._calls += 1
                call = {"id": call_id, "type": "function"}
                function: JsonObject = {"name": name, "arguments": ""}
            case CallPiece(text=text):
                call, function = {}, {"arguments": text}
        return {"tool_calls": [{"index": self._calls - 1, **call, "function": function}]}


def finish(answer: ModelAnswer) -> str:
    """Return why the answer ended, in OpenAI's words."""
    return _FINISH[ended(answer)]


def _head(answer: ModelAnswer, kind: str) -> JsonObject:
    return {
        "id": answer.response_id,
        "object": kind,
        "created": answer.created,
        "model": answer.model,
    }


def _message(answer: ModelAnswer, request: JsonObject) -> JsonObject:
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


def _logprobs(tokens: Sequence[SampledToken], request: JsonObject) -> JsonValue:
    if not request.get("logprobs") or not tokens:
        return None
    content: list[JsonValue] = [
        {
            **_named_token(token.text, token.logprob),
            "top_logprobs": [_named_token(*other) for other in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _named_token(text: str, logprob: float) -> JsonObject:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace"))}


def usage(answer: ModelAnswer) -> JsonObject:
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
