"""Gemini's interactions: steps instead of contents, whole conversations or what is new in them."""

import re
from dataclasses import replace
from typing import cast

from trajectory.call import ELSEWHERE, Call, CallKind, SessionHint, Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.google_interactions.stream import assemble_events
from trajectory.dialects.hints import common_hints
from trajectory.dialects.reader import (
    DialectOutput,
    assistant,
    call_fields,
    model_call,
    unread_usage,
    with_fields,
)
from trajectory.dialects.resends import one_object, read_tools
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    UnreadableError,
    as_integer,
    as_list,
    as_object,
    as_text,
    error_of,
    media_bytes,
    media_part,
    name_media,
    names,
    objects,
    only,
    request_json,
    sum_of_counts,
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

_PATH = re.compile(r"/v\d[a-z0-9]*/(?:.+/)?interactions(/[^/:]+)?/?$")
_SAMPLING = names(
    "generation_config safety_settings response_format response_mime_type response_modalities"
    " service_tier agent_config"
)
_REQUEST_READ = _SAMPLING | names(
    "model agent input system_instruction tools stream previous_interaction_id"
)
_RESPONSE_READ = _REQUEST_READ | names(
    "id object status created updated steps usage errors error background store labels"
    " outputs output_text output_image output_audio output_video cached_content webhook_config"
)
_USAGE_READ = names(
    "total_input_tokens total_output_tokens total_cached_tokens total_thought_tokens"
    " total_tool_use_tokens total_tokens"
)
_RUNNING = names("in_progress requires_continuation")
_FAILED = names("failed cancelled")
_CALL_READ = names("type id name arguments signature")
_RESULT_READ = names("type call_id name result is_error signature")
_ASKED = names("user_input function_result")
_CONTENTS = names("text image audio video document")


class GoogleInteractions:
    """``POST …/interactions``, and the look-ups of those that run in the background."""

    name = "google.interactions"
    yields = DialectOutput(
        "`POST …/interactions` (Gemini API); look-ups (`GET …/interactions/<id>`) that bring the"
        " answer of one in the background",
        CallKind.MODEL,
        streams="SSE",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        errors="status and body, `error` event, status of the interaction",
        identity="`previous_interaction_id`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by method and path."""
        found = _PATH.search(exchange.request.path)
        wanted = {"POST": False, "GET": True}.get(exchange.request.method)
        return found is not None and bool(found[1]) is wanted

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        if exchange.request.method == "GET":
            return self._look_up(exchange)
        request = request_json(exchange)
        response = read_response(exchange, assemble_events)
        value = response.value or {}
        ext = without(request, _REQUEST_READ)
        if request.get("background") is True and as_text(value.get("status")) in _RUNNING:
            ext["answer"] = ELSEWHERE
        before = as_text(request.get("previous_interaction_id"))
        call = self._call(exchange, response, request, ext, before)
        return replace(call, context=read_context(request))

    def _look_up(self, exchange: Exchange) -> Call:
        try:
            response = read_response(exchange, assemble_events)
        except UnreadableError:
            response = ModelResponse(None)
        value = response.value or {}
        name, status = as_text(value.get("id")), as_text(value.get("status"))
        if name is None or status in (None, *_RUNNING):
            hints = common_hints(exchange)
            return Call(exchange, self.name, CallKind.CONTROL, hints=hints)
        labels = only(value, names("labels")) if value.get("labels") else {}
        return self._call(exchange, response, value, labels, name)

    def _call(
        self,
        exchange: Exchange,
        response: ModelResponse,
        asked: JsonObject,
        ext: JsonObject,
        before: str | None,
    ) -> Call:
        value = response.value or {}
        usage = as_object(value.get("usage"))
        hints = (SessionHint("previous_response_id", before, "response"),) if before else ()
        call = model_call(
            self.name,
            exchange,
            response,
            ext=ext,
            rest={**without(value, _RESPONSE_READ), **unread_usage(usage, _USAGE_READ)},
            hints=hints,
        )
        made = [item for item in _steps(value) if as_text(item.get("type")) not in _ASKED]
        sampling = only(asked, _SAMPLING)
        status = as_text(value.get("status"))
        return replace(
            call,
            output=assistant([part for item in made for part in _turn_parts(item)]),
            tools=read_tools(asked.get("tools")),
            sampling={**as_object(sampling.pop("generation_config", None)), **sampling},
            model_requested=as_text(asked.get("model")) or as_text(asked.get("agent")),
            model_served=as_text(value.get("model")) or as_text(value.get("agent")),
            response_id=as_text(value.get("id")),
            finish_reason=None if status in (None, *_RUNNING, *_FAILED) else status,
            usage=_usage(usage),
            error=response.error or _failure(value),
        )


def _steps(value: JsonObject) -> list[JsonObject]:
    """Return the steps of an interaction; the older form has the contents of its one turn instead."""
    if "steps" not in value and isinstance(value.get("outputs"), list):
        return [{"type": "model_output", "content": value["outputs"]}]
    return list(objects(value.get("steps")))


def read_context(request: JsonObject) -> tuple[Message, ...]:
    """Return system instruction and input; what the model made in one turn is one message."""
    messages: list[Message] = []
    if instruction := as_text(request.get("system_instruction")):
        messages.append(Message("system", (TextPart(instruction),)))
    given = request.get("input")
    items: list[JsonValue] = [given] if isinstance(given, dict) else as_list(given)
    if isinstance(given, str):
        messages.append(Message("user", (TextPart(given),)))
    elif all(as_text(as_object(item).get("type")) in _CONTENTS for item in items):
        messages += [Message("user", tuple(_content(items)))] if items else []
    else:
        messages += _read_steps(items)
    return one_object(messages)


def _read_steps(items: list[JsonValue]) -> list[Message]:
    messages: list[Message] = []
    turn: list[Part] = []
    for item in items:
        step = as_object(item)
        asked = _asked_message(step)
        if asked is None:
            turn += _turn_parts(step) if step else [OpaquePart(item)]
            continue
        if turn:
            messages.append(Message("assistant", tuple(turn)))
            turn = []
        messages.append(asked)
    return [*messages, Message("assistant", tuple(turn))] if turn else messages


def _asked_message(step: JsonObject) -> Message | None:
    """Return the message that a client's step is; None for a part of the model's turn."""
    kind = step.get("type")
    if kind == "user_input":
        return Message("user", tuple(_content(step.get("content"))))
    if kind == "function_result":
        call_id = as_text(step.get("call_id")) or ""
        failed = step.get("is_error") is True
        result = ToolResultPart(call_id, name_media(step.get("result")), failed)
        return Message("tool", (result, *call_fields(call_id, without(step, _RESULT_READ))))
    return None


def _turn_parts(step: JsonObject) -> list[Part]:
    kind = step.get("type")
    if kind == "model_output":
        return _content(step.get("content"))
    if kind == "thought":
        said = _content(step.get("summary"))
        texts = [part.text for part in said if isinstance(part, TextPart)]
        others = [part for part in said if not isinstance(part, TextPart)]
        return [ReasoningPart("\n".join(texts), as_text(step.get("signature"))), *others]
    if kind == "function_call":
        call_id, name = as_text(step.get("id")) or "", as_text(step.get("name")) or ""
        signature = as_text(step.get("signature"))
        lead: list[Part] = [ReasoningPart("", signature)] if signature else []
        arguments = step.get("arguments")
        call = ToolCallPart(
            call_id, name, {} if arguments is None else arguments, not isinstance(arguments, str)
        )
        return [*lead, call, *call_fields(call_id, without(step, _CALL_READ))]
    return [OpaquePart(name_media(step))]


def _content(content: JsonValue | None) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    parts: list[Part] = []
    for item in as_list(content):
        parts += _content_parts(item) if isinstance(item, dict) else [OpaquePart(item)]
    return parts


def _content_parts(item: JsonObject) -> list[Part]:
    kind, text = as_text(item.get("type")), item.get("text")
    if kind == "text" and isinstance(text, str):
        parts: list[Part] = [TextPart(text)] if text else []
        if item.get("annotations"):
            parts.append(OpaquePart({"type": "annotations", "annotations": item["annotations"]}))
        return parts
    if kind in _CONTENTS:
        media_type = as_text(item.get("mime_type")) or f"{kind}/*"
        if isinstance(item.get("data"), str):
            named = media_bytes(cast(str, item["data"]), media_type)
            return with_fields(named, without(item, names("type mime_type data")))
        if uri := as_text(item.get("uri")):
            return with_fields(
                media_part(uri, media_type), without(item, names("type mime_type uri"))
            )
    return [OpaquePart(name_media(item))]


def _failure(value: JsonObject) -> str | None:
    """Return the errors of an interaction that failed, or of a step that broke off."""
    told = [error_of(item) for item in objects(value.get("errors"))]
    told += [
        error_of(as_object(step["error"]))
        for step in objects(value.get("steps"))
        if as_object(step.get("error"))
    ]
    status = as_text(value.get("status"))
    return next((text for text in told if text), status if status in _FAILED else None)


def _usage(usage: JsonObject) -> Usage:
    return Usage(
        input_tokens=sum_of_counts(usage, "total_input_tokens", "total_tool_use_tokens"),
        output_tokens=sum_of_counts(usage, "total_output_tokens", "total_thought_tokens"),
        cached_input_tokens=as_integer(usage.get("total_cached_tokens")),
        reasoning_tokens=as_integer(usage.get("total_thought_tokens")),
    )
