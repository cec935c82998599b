"""Amazon Bedrock's ``converse`` and ``converse-stream``: one shape for all its models."""

import re
from dataclasses import replace
from typing import cast
from urllib.parse import unquote

from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.bedrock_converse.stream import assemble_events
from trajectory.dialects.blocks import (
    cached_usage,
    cited_text,
    read_blocks,
    read_conversation,
    tool_use,
)
from trajectory.dialects.hints import bedrock_hints
from trajectory.dialects.reader import (
    DialectOutput,
    assistant,
    model_call,
    unread_usage,
    with_fields,
)
from trajectory.dialects.resends import read_tools
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    as_object,
    as_text,
    clean_text,
    header,
    media_bytes,
    media_part,
    name_media,
    names,
    objects,
    only,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import (
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolResultPart,
)

_PATH = re.compile(r"/model/(.+)/(converse|converse-stream|invoke|invoke-with-response-stream)$")
_SAMPLING = names("additionalModelRequestFields performanceConfig serviceTier outputConfig")
_REQUEST_READ = _SAMPLING | names("messages system toolConfig inferenceConfig schemaVersion")
_RESPONSE_READ = names("output stopReason usage message")
_USAGE_READ = names("inputTokens outputTokens totalTokens cacheReadInputTokens")
_MEDIA = names("image document video audio")
_MEDIA_READ = names("format source")


def bedrock_operation(exchange: Exchange) -> tuple[str, str] | None:
    """Return model and operation that a Bedrock path names; None for any other request."""
    if exchange.request.method != "POST":
        return None
    found = _PATH.search(exchange.request.path.rstrip("/"))
    if found is None:
        return None
    return clean_text(unquote(found[1], errors="replace")), found[2]


def request_id(exchange: Exchange) -> str | None:
    """Return the name that AWS gave the request: the only one that its client sees."""
    if exchange.response is None:
        return None
    return header(exchange.response.headers, "x-amzn-requestid")


class BedrockConverse:
    """``POST /model/<model>/converse`` and ``/converse-stream``."""

    name = "bedrock.converse"
    yields = DialectOutput(
        "`POST /model/<model>/converse`, `/converse-stream`",
        CallKind.MODEL,
        streams="AWS event stream",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        errors="status and body, exception event",
        identity="`requestMetadata.session_id`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        operation = bedrock_operation(exchange)
        return operation is not None and operation[1].startswith("converse")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        request = request_json(exchange)
        return read_converse(self.name, exchange, request, read_response(exchange, assemble_events))


def read_converse(
    dialect: str, exchange: Exchange, request: JsonObject, response: ModelResponse
) -> Call:
    """Return the call that a request in converse's shape is."""
    value = response.value or {}
    message = as_object(as_object(value.get("output")).get("message"))
    usage = as_object(value.get("usage"))
    ext = without(request, _REQUEST_READ)
    choice = without(as_object(request.get("toolConfig")), frozenset({"tools"}))
    call = model_call(
        dialect,
        exchange,
        response,
        ext=ext,
        rest={**without(value, _RESPONSE_READ), **unread_usage(usage, _USAGE_READ)},
        hints=bedrock_hints(request),
    )
    operation = bedrock_operation(exchange)
    return replace(
        call,
        context=read_conversation(request, _parts),
        output=assistant(_parts(message.get("content"))),
        tools=read_tools(as_object(request.get("toolConfig")).get("tools")),
        sampling={
            **as_object(request.get("inferenceConfig")),
            **only(request, _SAMPLING),
            **choice,
        },
        model_requested=operation[0] if operation else None,
        response_id=request_id(exchange),
        finish_reason=as_text(value.get("stopReason")),
        usage=cached_usage(
            usage,
            "inputTokens",
            "cacheReadInputTokens",
            "cacheWriteInputTokens",
            "outputTokens",
        ),
    )


def _parts(content: JsonValue | None) -> list[Part]:
    # Marks of the cache move between calls and are no content.
    return read_blocks(content, _block, left_out=lambda block: set(block) == {"cachePoint"})


def _block(block: JsonObject) -> list[Part]:
    if use := as_object(block.get("toolUse")):
        return tool_use(use, "toolUseId", "partialInput")
    if cited := as_object(block.get("citationsContent")):
        texts = [
            text for item in objects(cited.get("content")) if (text := as_text(item.get("text")))
        ]
        return cited_text("".join(texts), cited.get("citations"))
    if isinstance(block.get("text"), str) and block.get("citations"):
        return cited_text(cast(str, block["text"]), block["citations"])
    for kind in _MEDIA:
        value = as_object(block.get(kind))
        if media := _media(kind, value):
            return with_fields(media, without(value, _MEDIA_READ))
    return [_part(block)]


def _part(block: JsonObject) -> Part:
    if isinstance(block.get("text"), str):
        return TextPart(cast(str, block["text"]))
    if result := as_object(block.get("toolResult")):
        call_id = as_text(result.get("toolUseId")) or ""
        failed = result.get("status") == "error"
        return ToolResultPart(call_id, _named(result.get("content")), failed)
    if reasoning := as_object(block.get("reasoningContent")):
        told = as_object(reasoning.get("reasoningText"))
        hidden = as_text(reasoning.get("redactedContent"))
        return ReasoningPart(
            as_text(told.get("text")) or "", as_text(told.get("signature")) or hidden
        )
    return OpaquePart(name_media(block))


def _media(kind: str, value: JsonObject) -> Part | None:
    source = as_object(value.get("source"))
    media_type = f"{kind}/{as_text(value.get('format')) or '*'}"
    if isinstance(source.get("bytes"), str):
        return media_bytes(cast(str, source["bytes"]), media_type)
    if uri := as_text(as_object(source.get("s3Location")).get("uri")):
        return media_part(uri, media_type)
    return None


def _named(content: JsonValue | None) -> JsonValue:
    """Return a result's blocks with media named instead of kept."""
    return [
        {kind: part_json(media)}
        if (kind := next((k for k in _MEDIA if k in block), None)) is not None
        and (media := _media(kind, as_object(block.get(kind)))) is not None
        else name_media(block)
        for block in objects(content)
    ]


def part_json(part: Part) -> JsonObject:
    """Return the JSON form of a part."""
    return cast(list[JsonObject], Message("tool", (part,)).to_json()["parts"])[0]
