"""JSON-RPC 2.0 over HTTP, as MCP and A2A use it: requests, and the answers with their ids."""

import re
from dataclasses import dataclass, field

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.content_encoding import decode_body
from trajectory.dialects.wire import (
    UnreadableError,
    as_object,
    as_text,
    error_of,
    error_text,
    header,
    is_event_stream,
    objects,
    parse_json,
    response_bytes,
    stream_objects,
)
from trajectory.exchange import Exchange

_ERROR_LIMIT = 4000
_KEY = b'"jsonrpc"'
_BEGINS = re.compile(rb'\s*\[?\s*\{\s*"jsonrpc"')


@dataclass(frozen=True, slots=True)
class JsonRpcAnswer:
    """What came back for one request."""

    result: JsonValue = field(default=None, repr=False)
    error: str | None = field(default=None, repr=False)
    elsewhere: bool = False
    """The answer was not here: it may have come on another stream of the session."""


def posts_json_rpc(exchange: Exchange) -> bool:
    """Tell whether the posted body is JSON-RPC: the message itself has the key, not a part of it."""
    body = exchange.request.body
    if exchange.request.method != "POST" or _KEY not in body:
        return False
    if _BEGINS.match(body):
        return True
    try:
        value = parse_json(body, "request")
    except UnreadableError:
        return False
    return any("jsonrpc" in item for item in (objects(value) or [as_object(value)]))


def request_objects(exchange: Exchange) -> list[JsonObject]:
    """Return the messages that were posted: one, or those of a batch.

    Raises:
        UnreadableError: the body holds none.
    """
    encoding = header(exchange.request.headers, "content-encoding")
    body = decode_body(exchange.request.body, encoding)
    if body.problem is not None:
        raise UnreadableError(f"request:{body.problem}")
    value = parse_json(body.data, "request")
    if isinstance(value, dict):
        return [value]
    found = objects(value)
    if not found:
        raise UnreadableError("request:not-json-rpc")
    return found


def method_of(messages: list[JsonObject]) -> str:
    """Return the first method that messages name; answers name none."""
    return next((text for item in messages if (text := as_text(item.get("method")))), "response")


def answer_to(exchange: Exchange, request_id: JsonValue | None) -> JsonRpcAnswer:
    """Return what came back for the request with this id."""
    response = exchange.response
    if response is None:
        return JsonRpcAnswer(error=f"no response: {exchange.outcome.value}")
    if response.status == 202 and not is_event_stream(exchange):
        return JsonRpcAnswer(elsewhere=True)
    try:
        data = response_bytes(exchange)
        if response.status >= 400:
            return JsonRpcAnswer(error=error_text(data, response.status))
        answers = answer_objects(exchange, data)
    except UnreadableError as error:
        return JsonRpcAnswer(error=f"unreadable {error.args[0]}")
    for answer in answers:
        if answer.get("id") == request_id and is_answer(answer):
            return read_answer(answer)
    return JsonRpcAnswer(
        error=f"no answer: {exchange.outcome.value}", elsewhere=is_event_stream(exchange)
    )


def answer_objects(exchange: Exchange, data: bytes) -> list[JsonObject]:
    """Return the messages of a response, from a stream or in one piece.

    Raises:
        UnreadableError: it is no JSON.
    """
    if is_event_stream(exchange):
        return stream_objects(data)
    value = parse_json(data, "response")
    return objects(value) if isinstance(value, list) else [as_object(value)]


def is_answer(message: JsonObject) -> bool:
    """Tell whether a message answers a request."""
    return "result" in message or "error" in message


def read_answer(message: JsonObject) -> JsonRpcAnswer:
    """Return what an answer says."""
    if message.get("error"):
        return JsonRpcAnswer(error=(error_of(message) or "error")[:_ERROR_LIMIT])
    return JsonRpcAnswer(message.get("result"))
