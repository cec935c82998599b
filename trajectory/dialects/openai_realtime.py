"""OpenAI Realtime: a turn of a conversation, as ``trajectory.dialects.websocket_turns`` gathers it."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import parse_qs

from trajectory.call import Call, CallKind, Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.hints import realtime_hints, users_in
from trajectory.dialects.openai_responses.read import read_finish, read_items, turn_of
from trajectory.dialects.openai_responses.stream import assemble_events
from trajectory.dialects.reader import DialectOutput, assistant, model_call, posted_to
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import (
    as_integer,
    as_list,
    as_object,
    as_text,
    names,
    objects,
    only,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import Message, TextPart

_SAMPLING = names(
    "temperature max_output_tokens max_response_output_tokens output_modalities modalities"
    " tool_choice voice speed audio reasoning truncation"
)
_RESPONSE_READ = names("id object status status_details output usage conversation_id metadata")


class OpenAIRealtime:
    """One response of a Realtime conversation."""

    name = "openai.realtime"
    yields = DialectOutput(
        "WebSocket `…/realtime`, one call for each response; speech by its transcript",
        CallKind.MODEL,
        streams="WebSocket",
        text=True,
        tool_calls=True,
        usage=True,
        errors="`error` event, status of the response",
        identity="the session's id",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path; only turns have this shape."""
        return posted_to(exchange, "/realtime")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        request = request_json(exchange)
        session = as_object(request.get("session"))
        asked = {**session, **as_object(request.get("response"))}
        response = read_response(exchange, assemble_events)
        value = response.value or {}
        call = model_call(
            self.name,
            exchange,
            response,
            ext=only(as_object(request.get("response")), names("metadata")),
            rest=without(value, _RESPONSE_READ | frozenset(asked)),
            hints=realtime_hints(session),
        )
        model = (
            as_text(asked.get("model")) or parse_qs(exchange.request.query).get("model", [""])[0]
        )
        return replace(
            call,
            also_named=tuple(_people(request)),
            context=_context(asked, request),
            output=assistant(turn_of(as_list(value.get("output")))),
            tools=tuple(objects(asked.get("tools"))),
            sampling=only(asked, _SAMPLING),
            model_requested=model or None,
            model_served=as_text(session.get("model")),
            response_id=as_text(value.get("id")),
            finish_reason=_finish_reason(value),
            usage=_usage(value),
            error=call.error or _failure(value),
        )


def _people(request: JsonObject) -> Iterator[str]:
    """Yield whom a response names as the one who used the application, or the tracing of its session."""
    tracing = as_object(as_object(request.get("session")).get("tracing"))
    for holder in (as_object(request.get("response")), tracing):
        yield from users_in(as_object(holder.get("metadata")))


def _context(asked: JsonObject, request: JsonObject) -> tuple[Message, ...]:
    said = read_items(as_list(request.get("items")))
    if instructions := as_text(asked.get("instructions")):
        return (Message("system", (TextPart(instructions),)), *said)
    return tuple(said)


def _finish_reason(value: JsonObject) -> str | None:
    reason = as_text(as_object(value.get("status_details")).get("reason"))
    return reason or read_finish(value)


def _failure(value: JsonObject) -> str | None:
    if value.get("status") != "failed":
        return None
    error = as_object(as_object(value.get("status_details")).get("error"))
    words = [text for name in ("type", "code", "message") if (text := as_text(error.get(name)))]
    return ": ".join(words) or "failed"


def _usage(value: JsonObject) -> Usage:
    usage = as_object(value.get("usage"))
    return Usage(
        as_integer(usage.get("input_tokens")),
        as_integer(usage.get("output_tokens")),
        as_integer(as_object(usage.get("input_token_details")).get("cached_tokens")),
    )
