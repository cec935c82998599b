"""Answers as Amazon Bedrock's ``invoke`` writes them: the bodies are each model family's own."""

import base64

from trajectory.canonical import JsonObject
from trajectory.dialects.anthropic_messages import write as anthropic_messages
from trajectory.dialects.bedrock_converse import write as bedrock_converse
from trajectory.dialects.bedrock_converse.write import EVENT_STREAM, event_message, request_id
from trajectory.dialects.bedrock_invoke.read import is_converse
from trajectory.dialects.openai_chat import write as openai_chat
from trajectory.dialects.writer import (
    AnsweredRequest,
    ModelAnswer,
    WireResponse,
    as_json,
    ended,
    in_pieces,
    json_bytes,
)

_STOP = {"tool": "stop", "length": "length", "filter": "content_filtered", "stop": "stop"}
_TITAN_STOP = {**dict.fromkeys(_STOP, "FINISH"), "length": "LENGTH", "filter": "CONTENT_FILTERED"}


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer as the request's model family has it, and as the path asks for it."""
    if not asked.path.rstrip("/").endswith("-stream"):
        return as_json(_whole(answer, asked), request_id(answer), *_counts(answer))
    pieces = tuple(
        event_message("chunk", {"bytes": base64.b64encode(json_bytes(chunk)).decode()})
        for chunk in _chunks(answer, asked)
    )
    return WireResponse(EVENT_STREAM, pieces, (request_id(answer),))


def _whole(answer: ModelAnswer, asked: AnsweredRequest) -> JsonObject:
    body = asked.body
    if "anthropic_version" in body:
        return anthropic_messages.whole(answer)
    if "messages" in body and is_converse(body):
        return bedrock_converse.whole(answer)
    if "messages" in body:
        return openai_chat.whole(answer, body)
    return _prompted(answer, asked, answer.message.text(), last=True)


def _chunks(answer: ModelAnswer, asked: AnsweredRequest) -> list[JsonObject]:
    body = asked.body
    if "anthropic_version" in body:
        return anthropic_messages.payloads(answer)
    if "messages" in body and is_converse(body):
        return [{kind: payload} for kind, payload in bedrock_converse.events(answer)]
    if "messages" in body:
        return openai_chat.chunks(answer, body)
    pieces = in_pieces(answer.message.text()) or [""]
    return [
        _prompted(answer, asked, piece, last=at == len(pieces))
        for at, piece in enumerate(pieces, 1)
    ]


def _prompted(answer: ModelAnswer, asked: AnsweredRequest, text: str, *, last: bool) -> JsonObject:
    """Return text as Titan, Mistral and Llama give it; these are asked with a bare prompt."""
    usage = answer.usage
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    stop = _STOP[ended(answer)] if last else None
    if "inputText" in asked.body:
        reason = _TITAN_STOP[ended(answer)] if last else None
        part: JsonObject = {"outputText": text, "completionReason": reason}
        if asked.path.rstrip("/").endswith("-stream"):
            return {
                **part,
                "index": 0,
                "inputTextTokenCount": given,
                "totalOutputTextTokenCount": made,
            }
        return {"inputTextTokenCount": given, "results": [{**part, "tokenCount": made}]}
    if "mistral" in asked.path:
        return {"outputs": [{"text": text, "stop_reason": stop}]}
    counts: JsonObject = {"prompt_token_count": given, "generation_token_count": made}
    return {"generation": text, **counts, "stop_reason": stop}


def _counts(answer: ModelAnswer) -> tuple[tuple[str, str], ...]:
    usage = answer.usage
    return (
        ("x-amzn-bedrock-input-token-count", str(usage.input_tokens or 0)),
        ("x-amzn-bedrock-output-token-count", str(usage.output_tokens or 0)),
    )
