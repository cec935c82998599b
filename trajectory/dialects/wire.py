"""What all dialects share: lenient JSON from hostile bytes, typed access, headers, error bodies.

JSON read here is safe for everything that follows: finite numbers, bounded depth, no lone
surrogates. Numbers that JSON cannot hold exactly (NaN, infinities) become their text.
"""

import json
import math
import re
from base64 import b64decode
from binascii import Error as Base64Error
from hashlib import sha256
from json.scanner import make_scanner
from typing import Any, cast

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.content_encoding import decode_body
from trajectory.dialects.resends import Bodies, Scan, UnusualError
from trajectory.dialects.sse import SseEvent, decode_events
from trajectory.exchange import Exchange, Headers
from trajectory.message import MediaPart

DEPTH_LIMIT = 128
"""Levels of lists and objects; real traffic has fewer than thirty."""

_ERROR_TEXT_LIMIT = 4000
_INTEGER_LIMIT = 2**63
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]*={0,2}\s*")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89abAB]")
_SURROGATE_ESCAPE_IN_TEXT = re.compile(_SURROGATE_ESCAPE.pattern.decode())


class UnreadableError(ValueError):
    """A body that cannot be read; ``args[0]`` says why in fixed words (``request:not-json``)."""


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


_decoder = json.JSONDecoder(parse_constant=str, parse_float=_finite)


def parse_json(data: bytes, side: str) -> JsonValue:
    """Return the JSON value in ``data``, made safe.

    Raises:
        UnreadableError: not UTF-8, not JSON, nested too deep; ``side`` leads the words.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError(f"{side}:not-utf8") from None
    try:
        value: JsonValue = _decoder.decode(text)
    except RecursionError:
        raise UnreadableError(f"{side}:nested-too-deep") from None
    except ValueError:
        raise UnreadableError(f"{side}:not-json") from None
    if data.count(b"[") + data.count(b"{") > DEPTH_LIMIT and _depth_exceeded(value):
        raise UnreadableError(f"{side}:nested-too-deep")
    if _SURROGATE_ESCAPE.search(data):
        return _without_surrogates(value)
    return value


def parse_json_or_none(text: str) -> JsonValue | None:
    """Return the JSON value in ``text``; None when there is none (or when it is ``null``)."""
    try:
        return parse_json(text.encode("utf-8", "replace"), "text")
    except UnreadableError:
        return None


def parse_body(data: bytes, side: str) -> JsonValue:
    """Return what :func:`parse_json` returns; objects that were sent before are not parsed again."""
    try:
        return _bodies.parse(data.decode())  # a byte order mark is unusual
    except (UnusualError, UnicodeDecodeError):
        return parse_json(data, side)


def _made_safe(value: JsonValue, text: str, depth: int) -> JsonValue:
    limit = DEPTH_LIMIT - depth
    if text.count("[") + text.count("{") > limit and _depth_exceeded(value, limit):
        raise UnusualError("nested too deep")
    if _SURROGATE_ESCAPE_IN_TEXT.search(text):
        return _without_surrogates(value)
    return clean_text(value) if isinstance(value, str) else value


_bodies = Bodies(cast(Scan, make_scanner(cast(Any, _decoder))), _made_safe)


def _depth_exceeded(value: JsonValue, limit: int = DEPTH_LIMIT) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(limit):
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(child for child in item.values() if isinstance(child, dict | list))
            elif isinstance(item, list):
                below.extend(child for child in item if isinstance(child, dict | list))
        if not below:
            return False
        level = below
    return True


def clean_text(text: str) -> str:
    """Replace lone surrogates, which no encoding can write."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _without_surrogates(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(name): _without_surrogates(item) for name, item in value.items()}
    return value


def as_object(value: JsonValue | None) -> JsonObject:
    """Return ``value`` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue | None) -> list[JsonValue]:
    """Return ``value`` when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: JsonValue | None) -> str | None:
    """Return ``value`` when it is a string that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def as_id(value: JsonValue | None) -> str | None:
    """Return what a value names: a text that is not empty, or the digits of a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return as_text(value)


def as_integer(value: JsonValue | None) -> int | None:
    """Return ``value`` when it is an integer that fits 64 bits, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _INTEGER_LIMIT:
        return value
    return None


def sum_of_counts(usage: JsonObject, *fields: str) -> int | None:
    """Return the sum of the counts that stand in these fields; None where none does."""
    counts = [count for name in fields if (count := as_integer(usage.get(name))) is not None]
    return sum(counts) if counts else None


def names(text: str) -> frozenset[str]:
    """Return the words of ``text``: field names, written so that they can be read."""
    return frozenset(text.split())


def only(value: JsonObject, wanted: frozenset[str]) -> JsonObject:
    """Return the fields of ``value`` that are ``wanted`` and not null."""
    return {name: item for name, item in value.items() if name in wanted and item is not None}


def without(value: JsonObject, unwanted: frozenset[str]) -> JsonObject:
    """Return the fields of ``value`` that are not ``unwanted`` and not null."""
    return {name: item for name, item in value.items() if name not in unwanted and item is not None}


def objects(value: JsonValue | None) -> list[JsonObject]:
    """Return the objects in the list ``value``; nothing when it is no list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of the header ``name`` (lower case), None when absent or empty."""
    for key, value in headers:
        if key == name and value.strip():
            return clean_text(_as_sent(value.strip()))
    return None


def _as_sent(value: str) -> str:
    """Return a header's text: bytes that are no UTF-8 are Latin-1, as browsers, Node and Python send it."""
    if value.isascii():
        return value
    try:
        raw = value.encode("utf-8", "surrogateescape")
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
    except UnicodeEncodeError:  # no escaped bytes
        return value


def request_json(exchange: Exchange) -> JsonObject:
    """Return the request's body as an object.

    Raises:
        UnreadableError: it is none.
    """
    body = decode_body(exchange.request.body, header(exchange.request.headers, "content-encoding"))
    if body.problem is not None:
        raise UnreadableError(f"request:{body.problem}")
    value = parse_body(body.data, "request")
    if not isinstance(value, dict):
        raise UnreadableError("request:not-an-object")
    return value


def response_bytes(exchange: Exchange) -> bytes:
    """Return the response's body without its content encoding; empty when there is none.

    Raises:
        UnreadableError: it cannot be decoded.
    """
    if exchange.response is None:
        return b""
    body = decode_body(
        exchange.response.body, header(exchange.response.headers, "content-encoding")
    )
    if body.problem is not None:
        raise UnreadableError(f"response:{body.problem}")
    return body.data


def is_event_stream(exchange: Exchange) -> bool:
    """Tell whether the response says that it is a stream of server-sent events."""
    if exchange.response is None:
        return False
    content_type = header(exchange.response.headers, "content-type") or ""
    return content_type.lower().startswith("text/event-stream")


def event_objects(events: list[SseEvent], *, whole: bool = False) -> list[JsonObject]:
    """Return the JSON objects that events carry; others (``[DONE]``, a cut one) are left out.

    Raises:
        UnreadableError: the stream should be whole and an object in it is no JSON.
    """
    found: list[JsonObject] = []
    for event in events:
        if event.data[:1] == "{":
            value = parse_json_or_none(event.data)
            if isinstance(value, dict):
                found.append(value)
            elif whole and event.complete:
                raise UnreadableError("response:event-not-json")
    return found


def stream_objects(data: bytes, *, whole: bool = False) -> list[JsonObject]:
    """Return the JSON objects of a whole stream; see :func:`event_objects`."""
    return event_objects(decode_events(data), whole=whole)


def error_text(data: bytes, status: int | None, headers: Headers = ()) -> str:
    """Return type and message of an error body in any provider's shape.

    AWS names the type in a header, sometimes with an address behind it.
    """
    kind = (header(headers, "x-amzn-errortype") or "").partition(":")[0]
    text = _error_text(data, status)
    return f"{kind}: {text}" if kind else text


def _error_text(data: bytes, status: int | None) -> str:
    try:
        value = parse_json(data, "response")
    except UnreadableError:
        text = data.decode("utf-8", "replace").strip()
    else:
        text = error_of(value)
    return (text or f"HTTP {status}")[:_ERROR_TEXT_LIMIT]


def error_of(value: JsonValue) -> str:
    """Return type and message of an error value (``{"error": {"type", "message", "code"}}``)."""
    if isinstance(value, str):
        return value
    fields = as_object(value)
    inner = fields.get("error", fields.get("detail"))
    if isinstance(inner, str):
        return inner
    if isinstance(inner, dict):
        fields = inner
    words = [
        str(fields[name])
        for name in ("type", "code", "status", "message")
        if isinstance(fields.get(name), str | int) and fields.get(name) != ""
    ]
    return ": ".join(dict.fromkeys(words))


def media_part(url: str, media_type: str | None = None) -> MediaPart:
    """Return a media part for a URL; a ``data:`` URL is named by hash and size."""
    if not url.startswith("data:"):
        return MediaPart(media_type or "application/octet-stream", None, None, url=url)
    head, _, payload = url[5:].partition(",")
    kind = head.partition(";")[0] or media_type or "application/octet-stream"
    return media_bytes(payload, kind)


def media_file(data: str) -> MediaPart:
    """Return a media part for a file's bytes: a ``data:`` URL, or base64 alone."""
    if data.startswith("data:"):
        return media_part(data)
    return media_bytes(data, "application/octet-stream")


def media_bytes(payload: str, media_type: str) -> MediaPart:
    """Return a media part for base64 text."""
    try:
        data = b64decode(payload.encode("utf-8", "replace"), validate=False)
    except (Base64Error, ValueError):
        data = payload.encode("utf-8", "replace")
    return MediaPart(media_type, sha256(data).hexdigest(), len(data))


def media_bytes_of(data: bytes, media_type: str) -> JsonObject:
    """Return the name of bytes that are no text: type, hash and size."""
    return _named(MediaPart(media_type, sha256(data).hexdigest(), len(data)))


def name_media(value: JsonValue | None) -> JsonValue:
    """Return ``value`` with base64 media in its blocks replaced by type, hash and size."""
    if isinstance(value, list):
        return [name_media(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("media_type") or value.get("mimeType") or value.get("mime_type")
    holds_bytes = isinstance(kind, str) and value.get("type") != "text"
    out: JsonObject = {}
    for name, item in value.items():
        if holds_bytes and name in ("data", "blob") and isinstance(item, str):
            encoded = _is_encoded(item, str(kind))
            out[name] = _named(media_bytes(item, str(kind))) if encoded else item
        elif name == "file_data" and isinstance(item, str):
            out[name] = _named(media_file(item))
        elif name in ("image_url", "url") and isinstance(item, str):
            out[name] = _named(media_part(item)) if item.startswith("data:") else item
        else:
            out[name] = name_media(item) if isinstance(item, dict | list) else item
    return out


def _is_encoded(data: str, media_type: str) -> bool:
    """Tell whether a block's data are bytes in base64; a text may stand there as it is."""
    if not _BASE64.fullmatch(data):
        return False
    if not media_type.lower().startswith("text/"):
        return True
    try:
        b64decode("".join(data.split()), validate=True).decode("utf-8")
    except ValueError:
        return False
    return True


def _named(part: MediaPart) -> JsonObject:
    return {
        "type": "media",
        "media_type": part.media_type,
        "sha256": part.sha256,
        "size_bytes": part.size_bytes,
    }
