"""OTLP trace exports (protocol 1.x), as protobuf or as JSON, to and from plain spans."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import (
    UnreadableError,
    as_object,
    as_text,
    clean_text,
    objects,
    parse_json,
)

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
STATUS_ERROR = 2
_KIND_CLIENT = 3
_NANOSECONDS_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    at: int
    """Nanoseconds since 1970."""
    attributes: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class Span:
    """One span, its resource's and scope's attributes with it."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    parent_span_id: str | None
    name: str
    start: int
    """Nanoseconds since 1970."""
    end: int
    attributes: JsonObject = field(repr=False)
    events: tuple[SpanEvent, ...] = ()
    is_error: bool = False
    error: str | None = field(default=None, repr=False)
    """Description of the error status."""
    resource: JsonObject = field(default_factory=dict, repr=False)
    scope: str = ""
    """Name of the instrumentation."""
    schema_url: str = ""


def decode_export(body: bytes, content_type: str) -> list[Span]:
    """Return the spans of an ``ExportTraceServiceRequest``.

    Raises:
        UnreadableError: it is none, in fixed words.
    """
    if content_type.partition(";")[0].strip().lower() == JSON:
        value = parse_json(body, "request")
        if not isinstance(value, dict):
            raise UnreadableError("request:not-an-object")
        return decode_json(value)
    return _decode_protobuf(body)


def decode_json(value: JsonObject) -> list[Span]:
    """Return the spans of an export in OTLP's JSON form (lower camel case, hexadecimal ids)."""
    spans: list[Span] = []
    for group in objects(value.get("resourceSpans")):
        resource = _attributes(as_object(group.get("resource")).get("attributes"))
        for scoped in objects(group.get("scopeSpans")):
            scope = as_text(as_object(scoped.get("scope")).get("name")) or ""
            url = as_text(scoped.get("schemaUrl")) or as_text(group.get("schemaUrl")) or ""
            spans += [
                _json_span(span, resource, scope, url) for span in objects(scoped.get("spans"))
            ]
    return spans


def _json_span(span: JsonObject, resource: JsonObject, scope: str, url: str) -> Span:
    status = as_object(span.get("status"))
    return Span(
        trace_id=(as_text(span.get("traceId")) or "").lower(),
        span_id=(as_text(span.get("spanId")) or "").lower(),
        parent_span_id=(as_text(span.get("parentSpanId")) or "").lower() or None,
        name=as_text(span.get("name")) or "",
        start=_integer(span.get("startTimeUnixNano")),
        end=_integer(span.get("endTimeUnixNano")),
        attributes=_attributes(span.get("attributes")),
        events=tuple(
            SpanEvent(
                as_text(event.get("name")) or "",
                _integer(event.get("timeUnixNano")),
                _attributes(event.get("attributes")),
            )
            for event in objects(span.get("events"))
        ),
        is_error=status.get("code") in (STATUS_ERROR, "STATUS_CODE_ERROR"),
        error=as_text(status.get("message")),
        resource=resource,
        scope=scope,
        schema_url=url,
    )


def _integer(value: JsonValue | None) -> int:
    """Return a 64-bit integer; OTLP's JSON writes them as text."""
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NANOSECONDS_LIMIT:
        return value
    return 0


def _attributes(value: JsonValue | None) -> JsonObject:
    return {
        str(item["key"]): _json_value(item.get("value"))
        for item in objects(value)
        if isinstance(item.get("key"), str)
    }


def _json_value(value: JsonValue | None) -> JsonValue:
    """Return the value of an ``AnyValue`` in its JSON form."""
    for name, item in as_object(value).items():
        match name:
            case "intValue":
                return _integer(item)
            case "arrayValue":
                return [_json_value(one) for one in objects(as_object(item).get("values"))]
            case "kvlistValue":
                return _attributes(as_object(item).get("values"))
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return item
            case _:
                continue
    return None


def _decode_protobuf(body: bytes) -> list[Span]:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise UnreadableError("request:not-otlp") from None
    spans: list[Span] = []
    for group in request.resource_spans:
        resource = _pairs(group.resource.attributes)
        for scoped in group.scope_spans:
            url = scoped.schema_url or group.schema_url
            spans += [_proto_span(span, resource, scoped.scope.name, url) for span in scoped.spans]
    return spans


def _proto_span(span: Any, resource: JsonObject, scope: str, url: str) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() or None,
        name=clean_text(span.name),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_pairs(span.attributes),
        events=tuple(
            SpanEvent(clean_text(event.name), event.time_unix_nano, _pairs(event.attributes))
            for event in span.events
        ),
        is_error=span.status.code == STATUS_ERROR,
        error=span.status.message or None,
        resource=resource,
        scope=scope,
        schema_url=url,
    )


def _pairs(pairs: Iterable[Any]) -> JsonObject:
    return {pair.key: _proto_value(pair.value) for pair in pairs}


def _proto_value(value: Any) -> JsonValue:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    item = getattr(value, kind)
    match kind:
        case "array_value":
            return [_proto_value(one) for one in item.values]
        case "kvlist_value":
            return _pairs(item.values)
        case "bytes_value":
            return b64encode(item).decode()
        case "double_value":
            return item if abs(item) < float("inf") else str(item)
        case _:
            plain: JsonValue = item  # text, true or false, an integer
            return plain


def encode_json(spans: Sequence[Span]) -> JsonObject:
    """Return spans of one resource and scope as an export in OTLP's JSON form."""
    first = spans[0]
    scoped: JsonObject = {"scope": {"name": first.scope}, "spans": [_span_json(s) for s in spans]}
    if first.schema_url:
        scoped["schemaUrl"] = first.schema_url
    resource: JsonObject = {"attributes": _attributes_json(first.resource)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}


def _span_json(span: Span) -> JsonObject:
    out: JsonObject = {"traceId": span.trace_id, "spanId": span.span_id}
    if span.parent_span_id:
        out["parentSpanId"] = span.parent_span_id
    out |= {
        "name": span.name,
        "kind": _KIND_CLIENT,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes_json(span.attributes),
    }
    if span.events:
        out["events"] = [
            {
                "name": event.name,
                "timeUnixNano": str(event.at),
                "attributes": _attributes_json(event.attributes),
            }
            for event in span.events
        ]
    if span.is_error:
        out["status"] = {"code": STATUS_ERROR, **({"message": span.error} if span.error else {})}
    return out


def _attributes_json(attributes: JsonObject) -> JsonValue:
    return [{"key": name, "value": _value_json(value)} for name, value in attributes.items()]


def _value_json(value: JsonValue) -> JsonObject:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value_json(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": _attributes_json(value)}}
        case None:
            return {}
        case str():
            return {"stringValue": value}


__all__ = ["JSON", "PROTOBUF", "Span", "SpanEvent", "decode_export", "decode_json", "encode_json"]
