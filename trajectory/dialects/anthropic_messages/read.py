"""Anthropic messages, as the provider and compatible servers speak it."""

import re
from dataclasses import replace
from typing import cast
from urllib.parse import unquote

from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.anthropic_messages.stream import assemble_events
from trajectory.dialects.blocks import (
    cached_usage,
    cited_text,
    read_blocks,
    read_conversation,
    tool_use,
)
from trajectory.dialects.hints import anthropic_user
from trajectory.dialects.jsonrpc import posts_json_rpc
from trajectory.dialects.openai_chat.read import read_tokens
from trajectory.dialects.reader import (
    DialectOutput,
    assistant,
    call_fields,
    model_call,
    posted_to,
    unread_usage,
    with_fields,
)
from trajectory.dialects.resends import read_tools
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    as_list,
    as_object,
    as_text,
    clean_text,
    media_bytes,
    media_part,
    name_media,
    names,
    only,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import (
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolResultPart,
)

_SAMPLING = names(
    "max_tokens temperature top_p top_k stop_sequences thinking tool_choice service_tier"
    " output_config effort return_token_ids logprobs top_logprobs"
)
_REQUEST_READ = _SAMPLING | names("messages system tools model stream metadata anthropic_version")
_RESPONSE_READ = names(
    "id type role model content stop_reason usage error token_ids prompt_token_ids logprobs"
)
_USAGE_READ = names("input_tokens output_tokens cache_read_input_tokens output_tokens_details")
_RESULT_READ = names("type tool_use_id content is_error cache_control")
_MEDIA_READ = names("type source cache_control")
_BILLING = "x-anthropic-billing-header:"
_VERTEX = re.compile(
    r"/publishers/anthropic/models/(?!count-tokens:)([^/:]+):(?:r|streamR)awPredict$"
)


class AnthropicMessages:
    """``POST …/messages``."""

    name = "anthropic.messages"
    yields = DialectOutput(
        "`POST …/messages`; on Vertex AI `…/publishers/anthropic/models/<model>:rawPredict`,"
        " `:streamRawPredict`",
        CallKind.MODEL,
        streams="SSE",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        tokens="servers that add `token_ids`",
        logprobs="with the tokens",
        errors="status and body, `error` event",
        identity="`metadata.user_id` (account and session)",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path; OpenAI's threads have messages too, and MCP's older transport."""
        if exchange.request.method == "POST" and _VERTEX.search(exchange.request.path):
            return True
        return (
            posted_to(exchange, "/messages")
            and "/threads/" not in exchange.request.path
            and not posts_json_rpc(exchange)
        )

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        request = request_json(exchange)
        return read_messages(self.name, exchange, request, read_response(exchange, assemble_events))


def read_messages(
    dialect: str, exchange: Exchange, request: JsonObject, response: ModelResponse
) -> Call:
    """Return the call that a request for a message is."""
    value = response.value or {}
    usage = as_object(value.get("usage"))
    ext = without(request, _REQUEST_READ)
    system, billing = _without_billing(request.get("system"))
    if billing:
        ext["billing"] = billing
    if marks := _cache_marks(request):
        ext["cache_control"] = marks
    end_user, hints = anthropic_user(request)
    call = model_call(
        dialect,
        exchange,
        response,
        ext=ext,
        rest={**without(value, _RESPONSE_READ), **unread_usage(usage, _USAGE_READ)},
        hints=hints,
    )
    return replace(
        call,
        context=read_conversation({**request, "system": system}, _parts),
        output=assistant(_parts(value.get("content"))),
        tools=read_tools(request.get("tools")),
        sampling=only(request, _SAMPLING),
        model_requested=as_text(request.get("model")) or _vertex_model(exchange),
        model_served=as_text(value.get("model")),
        response_id=as_text(value.get("id")),
        finish_reason=as_text(value.get("stop_reason")),
        usage=cached_usage(
            usage,
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        ),
        tokens=read_tokens(value, value),
        end_user=end_user,
    )


def _vertex_model(exchange: Exchange) -> str | None:
    found = _VERTEX.search(exchange.request.path)
    return clean_text(unquote(found[1], errors="replace")) if found else None


def _without_billing(system: JsonValue | None) -> tuple[JsonValue | None, str]:
    """Take the line of a client's billing out of a system prompt: it differs in each conversation."""
    kept: list[JsonValue] = []
    billing = ""
    for block in as_list(system):
        text = as_text(as_object(block).get("text")) or ""
        if text.startswith(_BILLING):
            billing = text
        else:
            kept.append(block)
    return (kept, billing) if billing else (system, "")


def _parts(content: JsonValue | None) -> list[Part]:
    return read_blocks(content, _block, left_out=_empty)


def _empty(block: JsonObject) -> bool:
    return block.get("type") == "text" and block.get("text") == ""


def _block(block: JsonObject) -> list[Part]:
    kind, text = block.get("type"), block.get("text")
    if kind == "text" and isinstance(text, str):
        cited = block.get("citations")
        return cited_text(text, cited) if cited else [TextPart(text)]
    if kind == "tool_use":
        return tool_use(block, "id", "partial_input")
    if kind == "tool_result":
        part = _part(block)
        if block.keys() <= _RESULT_READ:
            return [part]
        return [
            part,
            *call_fields(as_text(block.get("tool_use_id")) or "", without(block, _RESULT_READ)),
        ]
    if kind == "document" and (words := _document(block)):
        return words
    if kind in ("image", "document") and (media := _media(block)) is not None:
        return with_fields(media, without(block, _MEDIA_READ))
    return [_part(block)]


def _part(block: JsonObject) -> Part:
    kind = block.get("type")
    if kind == "thinking":
        return ReasoningPart(as_text(block.get("thinking")) or "", as_text(block.get("signature")))
    if kind == "redacted_thinking":
        return ReasoningPart("", as_text(block.get("data")))
    if kind == "tool_result":
        call_id = as_text(block.get("tool_use_id")) or ""
        content = name_media(_unmarked(block.get("content")))
        return ToolResultPart(call_id, content, block.get("is_error") is True)
    return OpaquePart(name_media(without(block, frozenset({"cache_control"}))))


def _document(block: JsonObject) -> list[Part]:
    """Return the words of a document that is text, with what is said of it; nothing for any other."""
    source = as_object(block.get("source"))
    given = source.get(
        {"text": "data", "content": "content"}.get(as_text(source.get("type")) or "", "")
    )
    words = _parts(given)
    if not words:
        return []
    kind: JsonObject = {"kind": "document", "media_type": source.get("media_type") or "text/plain"}
    return [*words[:-1], *with_fields(words[-1], {**kind, **without(block, _MEDIA_READ)})]


def _media(block: JsonObject) -> Part | None:
    source = as_object(block.get("source"))
    media_type = as_text(source.get("media_type")) or f"{block.get('type')}/*"
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return media_bytes(cast(str, source["data"]), media_type)
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return media_part(cast(str, source["url"]), media_type)
    return None


def _unmarked(content: JsonValue | None) -> JsonValue:
    """Take cache marks out of a result's blocks: they move between calls and are not content."""
    if not isinstance(content, list):
        return content
    return [
        {k: v for k, v in block.items() if k != "cache_control"}
        if isinstance(block, dict)
        else block
        for block in content
    ]


def _cache_marks(request: JsonObject) -> list[JsonValue]:
    """Return where cache marks stood: message index (-1 for the system prompt), block index, mark."""
    rows: list[tuple[int, JsonValue | None]] = [(-1, request.get("system"))]
    rows += [
        (index, as_object(item).get("content"))
        for index, item in enumerate(as_list(request.get("messages")))
    ]
    return [
        [index, position, block["cache_control"]]
        for index, content in rows
        for position, block in enumerate(as_list(content))
        if isinstance(block, dict) and block.get("cache_control") is not None
    ]
