"""Amazon Bedrock's ``invoke``: the bodies are each model family's own."""

from dataclasses import replace

from trajectory.call import Call, CallKind, Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.anthropic_messages import stream as anthropic_stream
from trajectory.dialects.anthropic_messages.read import read_messages
from trajectory.dialects.bedrock_converse import stream as converse_stream
from trajectory.dialects.bedrock_converse.read import bedrock_operation, read_converse, request_id
from trajectory.dialects.hints import common_hints
from trajectory.dialects.openai_chat import stream as chat_stream
from trajectory.dialects.openai_chat.read import read_chat
from trajectory.dialects.reader import DialectOutput, assistant, model_call
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    UnreadableError,
    as_integer,
    as_list,
    as_text,
    header,
    names,
    objects,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import Message, TextPart

_EMBEDDING = names("embedding embeddings embeddingsByType")
_INPUT = "x-amzn-bedrock-input-token-count"
_OUTPUT = "x-amzn-bedrock-output-token-count"


class BedrockInvoke:
    """``POST /model/<model>/invoke`` and ``/invoke-with-response-stream``."""

    name = "bedrock.invoke"
    yields = DialectOutput(
        "`POST /model/<model>/invoke`, `/invoke-with-response-stream`: bodies of Anthropic, Nova,"
        " OpenAI and Mistral chat, prompts of Llama, Titan and Mistral",
        CallKind.MODEL,
        streams="AWS event stream",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        errors="status and body, exception event",
        identity="Anthropic's `metadata.user_id`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        operation = bedrock_operation(exchange)
        return operation is not None and operation[1].startswith("invoke")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        request = request_json(exchange)
        call = self._read(exchange, request)
        operation = bedrock_operation(exchange)
        return replace(
            call,
            model_requested=operation[0] if operation else None,
            response_id=call.response_id or request_id(exchange),
            usage=_usage(exchange, call.usage),
        )

    def _read(self, exchange: Exchange, request: JsonObject) -> Call:
        if "anthropic_version" in request:
            response = read_response(exchange, anthropic_stream.assemble_events)
            return read_messages(self.name, exchange, request, response)
        if "messages" in request and is_converse(request):
            response = read_response(exchange, converse_stream.assemble_events)
            return read_converse(self.name, exchange, request, response)
        if "messages" in request:
            response = read_response(exchange, chat_stream.assemble_chunks)
            return read_chat(self.name, exchange, request, response)
        prompt = as_text(request.get("prompt")) or as_text(request.get("inputText"))
        response = read_response(exchange, _assemble_texts)
        if response.value is not None and _EMBEDDING & frozenset(response.value):
            return Call(exchange, self.name, CallKind.CONTROL, hints=common_hints(exchange))
        if prompt is None:
            raise UnreadableError("request:unknown-model-family")
        return self._prompted(exchange, request, prompt, response)

    def _prompted(
        self, exchange: Exchange, request: JsonObject, prompt: str, response: ModelResponse
    ) -> Call:
        value = response.value or {}
        made = _completion(value)
        call = model_call(self.name, exchange, response, ext={}, rest={})
        text = next((t for name in _TEXTS if (t := as_text(made.get(name)))), None)
        reason = as_text(made.get("stop_reason")) or as_text(made.get("completionReason"))
        return replace(
            call,
            context=(Message("user", (TextPart(prompt),)),),
            output=assistant([TextPart(text)] if text else []),
            sampling=without(request, frozenset({"prompt", "inputText"})),
            finish_reason=reason,
            usage=Usage(
                as_integer(value.get("prompt_token_count", value.get("inputTextTokenCount"))),
                as_integer(value.get("generation_token_count", made.get("tokenCount"))),
            ),
        )


_TEXTS = ("generation", "outputText", "text", "completion")


def _completion(value: JsonObject) -> JsonObject:
    """Return the object that holds the text: Titan and Mistral give a list of one."""
    listed = objects(value.get("results")) or objects(value.get("outputs"))
    return listed[0] if listed else value


def is_converse(request: JsonObject) -> bool:
    """Tell Nova's request bodies: blocks of content have no type."""
    if "schemaVersion" in request or "inferenceConfig" in request:
        return True
    return any(
        "type" not in block
        for item in objects(request.get("messages"))
        for block in objects(as_list(item.get("content")))
    )


def _assemble_texts(events: list[JsonObject]) -> JsonObject | None:
    """Join the chunks of a prompted model."""
    whole: JsonObject = {}
    text = ""
    for event in events:
        piece = _completion(event)
        text += next((t for name in _TEXTS if (t := as_text(piece.get(name)))), "")
        whole.update({k: v for k, v in {**event, **piece}.items() if v is not None})
    for name in ("outputs", "results"):
        whole.pop(name, None)
    return {**whole, "generation": text} if events else None


def _usage(exchange: Exchange, told: Usage) -> Usage:
    """Return the usage of the body; where it has none, of the headers or the stream's end."""
    if exchange.response is None or told.input_tokens is not None:
        return told
    headers = exchange.response.headers
    return replace(
        told,
        input_tokens=_count(header(headers, _INPUT)),
        output_tokens=_count(header(headers, _OUTPUT)),
    )


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
