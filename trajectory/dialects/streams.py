"""Streamed answers as JSON objects, whatever carries them: SSE, JSON lines, arrays, AWS events."""

import json
from base64 import b64decode
from binascii import Error as Base64Error

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.event_stream import EventMessage, EventStreamDecoder
from trajectory.dialects.wire import (
    UnreadableError,
    as_object,
    as_text,
    header,
    parse_json,
    parse_json_or_none,
    stream_objects,
)
from trajectory.exchange import Exchange, ExchangeOutcome

_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_EVENTS = "application/vnd.amazon.eventstream"


def streamed_objects(exchange: Exchange, data: bytes) -> list[JsonObject] | None:
    """Return the objects of a streamed body; None when the body is one JSON value.

    Raises:
        UnreadableError: a complete stream is damaged.
    """
    kind = content_type(exchange)
    whole = exchange.outcome is ExchangeOutcome.COMPLETE
    if kind == "text/event-stream" or data.lstrip()[:6] in (b"data: ", b"event:"):
        return stream_objects(data, whole=whole)
    if kind in _LINES:
        return line_objects(data, whole=whole)
    if kind == _EVENTS:
        return event_stream_objects(data, whole=whole)
    return None


def content_type(exchange: Exchange) -> str:
    """Return the response's media type without its parameters, empty when there is none."""
    if exchange.response is None:
        return ""
    value = header(exchange.response.headers, "content-type") or ""
    return value.partition(";")[0].strip().lower()


def line_objects(data: bytes, *, whole: bool) -> list[JsonObject]:
    """Return the objects of JSON lines; what is none (a last line cut off) is left out.

    Raises:
        UnreadableError: the stream should be whole and a line is no JSON.
    """
    found: list[JsonObject] = []
    for line in data.split(b"\n"):
        value = parse_json_or_none(line.decode("utf-8", "replace"))
        if isinstance(value, dict):
            found.append(value)
        elif whole and line.strip():
            raise UnreadableError("response:line-not-json")
    return found


def array_objects(data: bytes) -> list[JsonObject]:
    """Return the objects of a JSON array as far as it goes: streams send one piece by piece."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    decoder = json.JSONDecoder(parse_constant=str)
    found: list[JsonObject] = []
    at = 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            _, end = decoder.raw_decode(text, at)
            value: JsonValue = parse_json(text[at:end].encode("utf-8", "replace"), "response")
        except (ValueError, RecursionError):  # the end, or a piece cut off
            return found
        if isinstance(value, dict):
            found.append(value)
        at = end


def event_stream_objects(data: bytes, *, whole: bool) -> list[JsonObject]:
    """Return the events of an AWS event stream as ``{type: payload}``, model chunks unwrapped.

    Raises:
        UnreadableError: the stream should be whole and is damaged or ends inside a message.
    """
    decoder = EventStreamDecoder()
    messages = decoder.feed(data)
    if whole and (decoder.problem or decoder.cut):
        raise UnreadableError(f"response:{decoder.problem or 'event-stream:cut'}")
    return [_event_object(message) for message in messages]


def _event_object(message: EventMessage) -> JsonObject:
    payload = as_object(parse_json_or_none(message.payload.decode("utf-8", "replace")))
    kind = message.header(":event-type")
    if message.header(":message-type") in ("exception", "error"):
        name = message.header(":exception-type") or message.header(":error-code")
        text = as_text(payload.get("message")) or message.header(":error-message")
        return {"error": {"type": name, "message": text}}
    if kind == "chunk":
        try:
            inner = b64decode(as_text(payload.get("bytes")) or "", validate=True)
        except (Base64Error, ValueError):
            return {"error": {"type": "chunk", "message": "not base64"}}
        return as_object(parse_json_or_none(inner.decode("utf-8", "replace")))
    return {kind: payload}
