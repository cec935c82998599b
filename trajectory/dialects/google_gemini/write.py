"""Answers as Gemini's ``generateContent`` writes them: whole, as server-sent events, as an array."""

from collections.abc import Sequence

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object
from trajectory.dialects.writer import (
    EVENTS,
    AnsweredRequest,
    AnswerStream,
    ModelAnswer,
    Piece,
    SampledToken,
    WholeCalls,
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

_ARRAY_END = b"]"
_FINISH = {"tool": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "stop": "STOP"}


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer as the path and ``alt`` ask for it."""
    if not asked.path.endswith(":streamGenerateContent"):
        return as_json(_response(answer, _parts(answer), answer.tokens, asked.body, last=True))
    stream = GeminiStream(answer, asked)
    events = [stream.event(chunk) for chunk in _chunks(answer, asked.body)]
    if stream.content_type == EVENTS:
        return as_events(events)
    return WireResponse(stream.content_type, (*events, _ARRAY_END))


def open_stream(begun: ModelAnswer, asked: AnsweredRequest) -> AnswerStream | None:
    """Return what writes the answer as it grows; None where the path wants it whole."""
    return GeminiStream(begun, asked) if asked.path.endswith(":streamGenerateContent") else None


class GeminiStream:
    """Writes an answer as it grows, as events or as one array; a function call comes in one piece."""

    def __init__(self, begun: ModelAnswer, asked: AnsweredRequest) -> None:
        """Begin the answer that ``begun`` names."""
        events = "alt=sse" in asked.query.split("&")
        self.content_type = EVENTS if events else "application/json; charset=UTF-8"
        self._begun = begun
        self._request = asked.body
        self._calls = WholeCalls()
        self._untold: list[SampledToken] = []
        self._chunks = 0

    def start(self) -> bytes:
        """Return nothing: this API begins with the first part."""
        return b""

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:
        """Return a chunk for the parts that the pieces complete."""
        self._untold += [] if token is None else [token]
        parts = [written for part in self._calls.take(pieces) if (written := _part(part))]
        if not parts:
            return b""
        told, self._untold = self._untold, []
        return self.event(_response(self._begun, parts, told, self._request, last=False))

    def end(self, answer: ModelAnswer) -> bytes:
        """Return the last chunk: the finish reason, and the call that was still open."""
        parts = [written for part in self._calls.end() if (written := _part(part))]
        parts = parts or [{"text": ""}]
        last = self.event(_response(answer, parts, self._untold, self._request, last=True))
        return last if self.content_type == EVENTS else last + _ARRAY_END

    def event(self, chunk: JsonObject) -> bytes:
        """Return a chunk as this stream carries it."""
        self._chunks += 1
        written = json_bytes(chunk)
        if self.content_type == EVENTS:
            return b"data: " + written + b"\r\n\r\n"
        return (b"[" if self._chunks == 1 else b",\r\n") + written


def _chunks(answer: ModelAnswer, request: JsonObject) -> list[JsonObject]:
    parts = [piece for part in _parts(answer) for piece in _taken_apart(part)] or [{"text": ""}]
    last = len(parts) - 1
    return [
        _response(answer, [part], answer.tokens if at == last else (), request, last=at == last)
        for at, part in enumerate(parts)
    ]


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


def _response(
    answer: ModelAnswer,
    parts: list[JsonObject],
    tokens: Sequence[SampledToken],
    request: JsonObject,
    *,
    last: bool,
) -> JsonObject:
    content: JsonObject = {"role": "model", "parts": [*parts]}
    candidate: JsonObject = {"index": 0, "content": content}
    if last:
        candidate["finishReason"] = _FINISH[ended(answer)]
    settings = as_object(request.get("generationConfig", request.get("generation_config")))
    if tokens and settings.get("responseLogprobs"):
        candidate["logprobsResult"] = _logprobs(tokens)
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


def _logprobs(tokens: Sequence[SampledToken]) -> JsonObject:
    chosen: list[JsonValue] = [
        {"token": token.text, "tokenId": token.id, "logProbability": token.logprob}
        for token in tokens
    ]
    top: list[JsonValue] = [
        {"candidates": [{"token": text, "logProbability": number} for text, number in token.top]}
        for token in tokens
    ]
    return {"chosenCandidates": chosen, "topCandidates": top}


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
