"""Anthropic messages, as the provider and compatible servers speak it."""

from dataclasses import replace
from typing import cast

from trajectory.call import Call, CallKind, Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.anthropic_stream import assemble_events
from trajectory.dialects.hints import anthropic_user
from trajectory.dialects.openai_chat import read_tokens
from trajectory.dialects.reading import Yields, assistant, model_call, posted_to
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    as_integer,
    as_list,
    as_object,
    as_text,
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
    ToolCallPart,
    ToolResultPart,
)

_SAMPLING = names(
    "max_tokens temperature top_p top_k stop_sequences thinking tool_choice service_tier"
    " output_config effort"
)
_REQUEST_READ = _SAMPLING | names("messages system tools model stream metadata")
_RESPONSE_READ = names(
    "id type role model content stop_reason usage error token_ids prompt_token_ids logprobs"
)


class AnthropicMessages:
    """``POST …/messages``."""

    name = "anthropic.messages"
    yields = Yields(
        "`POST …/messages`",
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
        return (
            posted_to(exchange, "/messages")
            and "/threads/" not in exchange.request.path
            and b'"jsonrpc"' not in exchange.request.body[:4096]
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
    ext = without(request, _REQUEST_READ)
    if marks := _cache_marks(request):
        ext["cache_control"] = marks
    end_user, hints = anthropic_user(request)
    call = model_call(
        dialect, exchange, response, ext=ext, rest=without(value, _RESPONSE_READ), hints=hints
    )
    output = [_part(block) for block in objects(value.get("content")) if not _empty(block)]
    return replace(
        call,
        context=read_context(request),
        output=assistant(output),
        tools=tuple(objects(request.get("tools"))),
        sampling=only(request, _SAMPLING),
        model_requested=as_text(request.get("model")),
        model_served=as_text(value.get("model")),
        response_id=as_text(value.get("id")),
        finish_reason=as_text(value.get("stop_reason")),
        usage=_usage(value),
        tokens=read_tokens(value, value),
        end_user=end_user,
    )


def read_context(request: JsonObject) -> tuple[Message, ...]:
    """Return system prompt and messages; tool results become messages of their own."""
    messages: list[Message] = []
    if system := _parts(request.get("system")):
        messages.append(Message("system", tuple(system)))
    for item in objects(request.get("messages")):
        role = as_text(item.get("role")) or "user"
        messages.extend(split_results(role, _parts(item.get("content"))))
    return tuple(messages)


def split_results(role: str, parts: list[Part]) -> list[Message]:
    """Return one message, or several where tool results stand among its parts."""
    messages: list[Message] = []
    rest: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            if rest:
                messages.append(Message(role, tuple(rest)))
                rest = []
            messages.append(Message("tool", (part,)))
        else:
            rest.append(part)
    if rest or not messages:
        messages.append(Message(role, tuple(rest)))
    return messages


def _parts(content: JsonValue | None) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return [
        _part(block) if isinstance(block, dict) else OpaquePart(block)
        for block in as_list(content)
        if not _empty(block)
    ]


def _empty(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and block.get("text") == ""


def _part(block: JsonObject) -> Part:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str) and not block.get("citations"):
        return TextPart(cast(str, block["text"]))
    if kind == "thinking":
        return ReasoningPart(as_text(block.get("thinking")) or "", as_text(block.get("signature")))
    if kind == "redacted_thinking":
        return ReasoningPart("", as_text(block.get("data")))
    if kind == "tool_use":
        return _tool_use(block)
    if kind == "tool_result":
        call_id = as_text(block.get("tool_use_id")) or ""
        content = name_media(_unmarked(block.get("content")))
        return ToolResultPart(call_id, content, block.get("is_error") is True)
    if kind in ("image", "document"):
        source = as_object(block.get("source"))
        media_type = as_text(source.get("media_type")) or f"{kind}/*"
        if source.get("type") == "base64" and isinstance(source.get("data"), str):
            return media_bytes(cast(str, source["data"]), media_type)
        if source.get("type") == "url" and isinstance(source.get("url"), str):
            return media_part(cast(str, source["url"]), media_type)
    return OpaquePart(name_media(without(block, frozenset({"cache_control"}))))


def _tool_use(block: JsonObject) -> ToolCallPart:
    call_id, name = as_text(block.get("id")) or "", as_text(block.get("name")) or ""
    if isinstance(block.get("partial_input"), str):
        return ToolCallPart(call_id, name, block["partial_input"], arguments_valid=False)
    return ToolCallPart(call_id, name, block.get("input", {}))


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


def _usage(response: JsonObject) -> Usage:
    usage = as_object(response.get("usage"))
    fresh = as_integer(usage.get("input_tokens"))
    cached = as_integer(usage.get("cache_read_input_tokens"))
    written = as_integer(usage.get("cache_creation_input_tokens"))
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    return Usage(
        input_tokens=total,
        output_tokens=as_integer(usage.get("output_tokens")),
        cached_input_tokens=cached,
    )
