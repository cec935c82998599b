"""OpenAI responses: items instead of messages, whole conversations or deltas."""

import re
from dataclasses import replace
from typing import cast

from trajectory.call import ELSEWHERE, Call, CallKind, SessionHint
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import common_hints, openai_hints
from trajectory.dialects.openai_chat.read import (
    azure_fields,
    openai_fields,
    read_arguments,
    read_tokens,
    unread_counts,
)
from trajectory.dialects.openai_responses.stream import assemble_events
from trajectory.dialects.reader import (
    DialectOutput,
    assistant,
    call_fields,
    mean_logprob,
    model_call,
    posted_to,
    with_fields,
)
from trajectory.dialects.resends import one_object, read_tools
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    UnreadableError,
    as_list,
    as_object,
    as_text,
    media_file,
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
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_SAMPLING = names(
    "temperature top_p max_output_tokens max_tool_calls reasoning text tool_choice top_logprobs"
    " parallel_tool_calls truncation service_tier seed include return_token_ids logprobs"
)
_REQUEST_READ = _SAMPLING | names(
    "input instructions tools model stream user previous_response_id conversation"
)
_RESPONSE_READ = _REQUEST_READ | names(
    "id object created_at completed_at status output usage error incomplete_details metadata store"
    " background prompt_token_ids token_ids logprobs prompt_cache_key safety_identifier"
    " frequency_penalty presence_penalty prompt_cache_retention"
)
_CLIENT_RUN_CALLS = names(
    "function_call custom_tool_call local_shell_call shell_call apply_patch_call computer_call"
)
_CALL_READ = names("id object call_id type status name namespace arguments input")
_RESULT_READ = names("id object call_id type status output")
_RUNNING = names("in_progress queued")
_UNFINISHED = _RUNNING | names("failed cancelled")
_LOOK_UP = re.compile(r"/responses/[^/]+/?$")
_SPEECH = names("input_audio output_audio audio")


class OpenAIResponses:
    """``POST …/responses``; turns of its WebSocket come in the same shape."""

    name = "openai.responses"
    yields = DialectOutput(
        "`POST …/responses`, `…/responses/compact`; its WebSocket, one call for each `response.create`; look-ups"
        " (`GET …/responses/<id>`) that bring the answer of a background response",
        CallKind.MODEL,
        streams="SSE, WebSocket",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        tokens="servers that add `token_ids`",
        logprobs="their mean; each with the tokens",
        errors="status and body, `error` event, status of the response",
        identity="`previous_response_id`, `conversation`, `user`, `safety_identifier`, "
        "`metadata.session_id`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/responses", "/responses/compact") or _looks_up(exchange)

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        if _looks_up(exchange):
            return self._look_up(exchange)
        request = request_json(exchange)
        response = read_response(exchange, assemble_events)
        value = response.value or {}
        # A compaction gives back the user's own messages too.
        output = as_list(value.get("output"))
        made = [item for item in output if as_object(item).get("role") in (None, "assistant")]
        kept = [item for item in output if item not in made]
        awaited: JsonObject = {}
        if value.get("background") is True and as_text(value.get("status")) in _RUNNING:
            awaited["answer"] = ELSEWHERE
        call = model_call(
            self.name,
            exchange,
            response,
            ext={**without(request, _REQUEST_READ), **azure_fields(exchange), **awaited},
            rest={
                **without(value, _RESPONSE_READ | frozenset(request)),
                **unread_counts(value.get("usage")),
                **({"retained": kept} if kept else {}),
                **_told_first(request, value),
            },
            hints=openai_hints(request),
        )
        return replace(
            openai_fields(call, request, value),
            context=read_context(request),
            output=assistant(turn_of(made)),
            tools=read_tools(request.get("tools")),
            sampling=only(request, _SAMPLING),
            finish_reason=read_finish(value),
            error=response.error or _failure(value),
            tokens=read_tokens(value, value),
            mean_logprob=mean_logprob(_logprobs(made)),
        )

    def _look_up(self, exchange: Exchange) -> Call:
        """Read a look-up: it brings the answer of a background response, or nothing new."""
        try:
            response = read_response(exchange, assemble_events)
        except UnreadableError:
            response = ModelResponse(None)
        value = response.value or {}
        name = as_text(value.get("id"))
        status = as_text(value.get("status"))
        if value.get("background") is not True or name is None or status in (None, *_RUNNING):
            hints = common_hints(exchange)
            return Call(exchange, self.name, CallKind.CONTROL, hints=hints)
        call = model_call(
            self.name,
            exchange,
            response,
            ext=only(value, names("metadata")) if value.get("metadata") else {},
            rest=without(value, _RESPONSE_READ | names("instructions")),
            hints=(SessionHint("previous_response_id", name, "response"),),
        )
        return replace(
            openai_fields(call, value, value),
            output=assistant(turn_of(as_list(value.get("output")))),
            tools=read_tools(value.get("tools")),
            sampling=only(value, _SAMPLING),
            finish_reason=read_finish(value),
            error=response.error or _failure(value),
            tokens=read_tokens(value, value),
            mean_logprob=mean_logprob(_logprobs(as_list(value.get("output")))),
        )


def _told_first(request: JsonObject, value: JsonObject) -> JsonObject:
    """Return what only the answer tells of the question: a stored prompt's instructions and tools."""
    unread = {name: value.get(name) for name in ("instructions", "tools") if not request.get(name)}
    return {name: item for name, item in unread.items() if item}


def _logprobs(output: list[JsonValue]) -> list[JsonValue]:
    """Return the log probability of each token of the texts."""
    return [
        token.get("logprob")
        for item in objects(output)
        for part in objects(item.get("content"))
        for token in objects(part.get("logprobs"))
    ]


def _looks_up(exchange: Exchange) -> bool:
    return exchange.request.method == "GET" and bool(_LOOK_UP.search(exchange.request.path))


def read_context(request: JsonObject) -> tuple[Message, ...]:
    """Return instructions and input as messages."""
    messages: list[Message] = []
    if instructions := as_text(request.get("instructions")):
        messages.append(Message("system", (TextPart(instructions),)))
    given = request.get("input")
    if isinstance(given, str):
        messages.append(Message("user", (TextPart(given),)))
    else:
        messages.extend(read_items(as_list(given)))
    return one_object(messages)


def read_items(items: list[JsonValue]) -> list[Message]:
    """Return items as messages; what the model made in one turn becomes one assistant message."""
    messages: list[Message] = []
    turn: list[Part] = []
    for item in items:
        message = _message_of(item)
        if message is not None and message.role != "assistant":
            if turn:
                messages.append(Message("assistant", tuple(turn)))
                turn = []
            messages.append(message)
        else:
            turn.extend(_turn_parts(item) if message is None else message.parts)
    if turn:
        messages.append(Message("assistant", tuple(turn)))
    return messages


def _message_of(item: JsonValue) -> Message | None:
    """Return the message that an item is on its own; None for a part of the model's turn."""
    if not isinstance(item, dict):
        return Message("user", (OpaquePart(item),))
    kind = as_text(item.get("type")) or "message"
    if kind == "message" and ("role" in item or "content" in item):
        said = _content(item.get("content"))
        if phase := as_text(item.get("phase")):
            said.append(OpaquePart({"type": "phase", "phase": phase}))
        return Message(as_text(item.get("role")) or "user", tuple(said))
    if kind.endswith("_call_output"):
        # A local shell's result has its call's id as its own.
        own = item.get("id") if kind == "local_shell_call_output" else None
        call_id = as_text(item.get("call_id")) or as_text(own) or ""
        failed = item.get("status") == "failed"
        result = ToolResultPart(call_id, name_media(item.get("output")), failed)
        return Message("tool", (result, *call_fields(call_id, without(item, _RESULT_READ))))
    return None


def _turn_parts(item: JsonValue) -> list[Part]:
    value = as_object(item)
    kind = as_text(value.get("type")) or ""
    if kind == "reasoning":
        return [_reasoning(value)]
    if kind in _CLIENT_RUN_CALLS:
        return _tool_call(value, kind)
    if kind == "image_generation_call" and isinstance(value.get("result"), str):
        image = {
            "data": value["result"],
            "media_type": f"image/{value.get('output_format') or 'png'}",
        }
        value = {**value, "result": as_object(name_media(image))["data"]}
    return [OpaquePart({k: v for k, v in value.items() if v is not None})]


def _reasoning(item: JsonObject) -> ReasoningPart:
    texts = [
        cast(str, part["text"])
        for name in ("summary", "content")
        for part in objects(item.get(name))
        if isinstance(part.get("text"), str)
    ]
    signature = as_text(item.get("encrypted_content")) or as_text(item.get("id"))
    return ReasoningPart("\n".join(texts), signature)


def _tool_call(item: JsonObject, kind: str) -> list[Part]:
    call_id = as_text(item.get("call_id")) or as_text(item.get("id")) or ""
    # Functions of two namespaces may share a name; a function's own name has no dot.
    name = ".".join(
        text for key in ("namespace", "name") if (text := as_text(item.get(key))) is not None
    )
    beside = call_fields(call_id, without(item, _CALL_READ))
    if kind == "function_call":
        return [ToolCallPart(call_id, name, *read_arguments(item.get("arguments"))), *beside]
    if kind == "custom_tool_call":
        return [ToolCallPart(call_id, name, item.get("input")), *beside]
    arguments = without(item, frozenset({"id", "call_id", "type", "status"}))
    return [ToolCallPart(call_id, kind.removesuffix("_call"), arguments)]


def _content(content: JsonValue | None) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    parts: list[Part] = []
    for item in as_list(content):
        if isinstance(item, dict):
            parts.extend(_content_parts(item))
        else:
            parts.append(OpaquePart(item))
    return parts


def _content_parts(item: JsonObject) -> list[Part]:
    kind = item.get("type")
    if kind in ("input_text", "output_text", "text") and isinstance(item.get("text"), str):
        text: list[Part] = [TextPart(cast(str, item["text"]))]
        if item.get("annotations"):
            text.append(OpaquePart({"type": "annotations", "annotations": item["annotations"]}))
        return text if item["text"] else text[1:]
    if kind in _SPEECH:
        # Speech by its words; without a transcript, only that there was some.
        words = as_text(item.get("transcript"))
        return [TextPart(words)] if words else [MediaPart("audio/*", None, None)]
    if kind == "input_image":
        if url := as_text(item.get("image_url")):
            return with_fields(media_part(url, "image/*"), without(item, names("type image_url")))
    elif kind == "input_file":
        data = as_text(item.get("file_data"))
        if data:
            return with_fields(media_file(data), without(item, names("type file_data")))
    return [OpaquePart(name_media(item))]


def turn_of(items: list[JsonValue]) -> list[Part]:
    """Return the parts of what the model made in one response."""
    return [part for message in read_items(items) for part in message.parts]


def _failure(response: JsonObject) -> str | None:
    status = as_text(response.get("status"))
    return status if status in ("failed", "cancelled") else None


def read_finish(response: JsonObject) -> str | None:
    """Return why a response ended; None while it had not, and where it failed."""
    status = as_text(response.get("status"))
    if response.get("object") == "response.compaction":
        return "completed"
    if status == "incomplete":
        return as_text(as_object(response.get("incomplete_details")).get("reason")) or status
    return status if status not in _UNFINISHED else None
