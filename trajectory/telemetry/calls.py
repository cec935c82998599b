"""A trace export that came over the wire, as calls and feedback: one call for each model or tool span.

Identity is by trace and span: an export that is sent again gives the same calls, which are stored
once. Spans that are neither (agents, chains, HTTP clients) leave only their count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from trajectory.call import Call, CallKind, SessionHint, SpanName, ToolDispatch, TraceSpan
from trajectory.canonical import JsonObject, canonical_json
from trajectory.dialects.agents import with_agent
from trajectory.dialects.content_encoding import decode_body
from trajectory.dialects.hints import common_hints, with_people
from trajectory.dialects.wire import UnreadableError, as_text, header
from trajectory.exchange import Exchange, ExchangeOutcome, Feedback, HttpRequest, HttpResponse
from trajectory.json_form import time_text
from trajectory.telemetry import genai, openinference
from trajectory.telemetry.span_content import (
    Judgement,
    ModelFacts,
    SpanFacts,
    ToolFacts,
    people_of,
)
from trajectory.telemetry.spans import PROTOBUF, Span, decode_export

TRACES_PATH = "/v1/traces"
MODE = "otlp"
DECODED_LIMIT = 64 * 1024 * 1024
UNREPORTED = "unreported"
"""Finish reason of an answer whose span ended well and names none: it was not cut off."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERROR_LIMIT = 4000
_LONGEST_SECONDS = 86_400
_OF_THE_EXPORTER = frozenset({"baggage", "user-agent"})
"""Headers that say who exports. All others hold for the spans: policy names those that take purposes away."""
_NESTED = 64
"""How many spans around one are looked at for the agent's name."""


def is_export(exchange: Exchange) -> bool:
    """Tell whether the gateway took this exchange as a trace export."""
    return exchange.mode == MODE


def facts_of(span: Span) -> SpanFacts | None:
    """Return what a span says in the convention it follows; None when it follows none."""
    return openinference.read(span) or genai.read(span)


def read_export(exchange: Exchange) -> tuple[tuple[Call, ...], tuple[Feedback, ...]]:
    """Return the calls and the feedback in an export, and one call for the export itself.

    Never raises: an export that cannot be read is one opaque call.
    """
    if exchange.outcome is not ExchangeOutcome.COMPLETE:
        return (Call(exchange, MODE, CallKind.CONTROL, error="refused by the gateway"),), ()
    try:
        return _read(exchange)
    except UnreadableError as error:
        problem = str(error.args[0])
    except Exception as error:  # noqa: BLE001 - hostile bytes must cost one row, never the batch
        problem = f"otlp:{type(error).__name__}"
    return (Call(exchange, MODE, CallKind.OPAQUE, problem=problem),), ()


def _read(exchange: Exchange) -> tuple[tuple[Call, ...], tuple[Feedback, ...]]:
    headers = exchange.request.headers
    body = decode_body(
        exchange.request.body, header(headers, "content-encoding"), limit=DECODED_LIMIT
    )
    if body.problem is not None or body.truncated:
        raise UnreadableError(f"request:{body.problem or 'encoding:truncated'}")
    spans = decode_export(body.data, header(headers, "content-type") or PROTOBUF)
    ahead = _ahead(spans, exchange.started_at)
    hints = tuple(h for h in common_hints(exchange) if h.source.startswith("header:x-headrace-"))
    calls: list[Call] = []
    feedback: list[Feedback] = []
    read = [(span, facts_of(span)) for span in spans]
    agents = _nearest(
        spans, {_name(span): facts.agent_name for span, facts in read if facts is not None}
    )
    for span, facts in read:
        if facts is None:
            continue
        if facts.what is not None and not _is_empty(span, facts.what):
            call = _call(exchange, span, facts, hints, ahead[id(span.resource)])
            call = replace(
                call,
                agent=agents.get(_name(span)),
                also_named=people_of(span.attributes),
                span=_span_name(exchange, span),
            )
            calls.append(with_agent(with_people(call)))
        feedback += [
            _feedback(exchange, span, facts, judgement, index)
            for index, judgement in enumerate(facts.judgements)
        ]
    ext: JsonObject = {"spans": len(spans), "calls": len(calls), "judgements": len(feedback)}
    own = Call(exchange, MODE, CallKind.CONTROL, ext=ext, spans=_trace_spans(exchange, spans))
    return (own, *calls), tuple(feedback)


def _name(span: Span) -> SpanName:
    """Return trace and span: some exporters number the spans of each trace."""
    return SpanName(span.trace_id, span.span_id)


def _span_name(exchange: Exchange, span: Span) -> SpanName | None:
    """Return what tells a span from those of all exports; without a trace, the export stands for one."""
    if not span.span_id:
        return None
    return SpanName(
        span.trace_id if span.trace_id.strip("0") else exchange.exchange_id, span.span_id
    )


def _trace_spans(exchange: Exchange, spans: Sequence[Span]) -> tuple[TraceSpan, ...]:
    named = ((_span_name(exchange, span), span) for span in spans)
    return tuple(
        TraceSpan(name, span.parent_span_id, people_of(span.attributes), span.start, span.end)
        for name, span in named
        if name is not None
    )


def _nearest(spans: Sequence[Span], named: Mapping[SpanName, str | None]) -> dict[SpanName, str]:
    """Return for each span the agent that it names, else the one that the nearest span around it names."""
    around = {_name(span): span.parent_span_id for span in spans}
    found: dict[SpanName, str] = {}
    for start in around:
        trace = start.trace_id
        at: str | None = start.span_id
        for _ in range(_NESTED):
            if at is None or named.get(SpanName(trace, at)):
                break
            at = around.get(SpanName(trace, at))
        if at is not None and (name := named.get(SpanName(trace, at))):
            found[start] = name
    return found


def _is_empty(span: Span, what: ModelFacts | ToolFacts) -> bool:
    """Tell whether a model's span says nothing: the instrumentation records no messages."""
    if isinstance(what, ToolFacts):
        return False
    return not what.context and what.output is None and _error(span) is None


def _ahead(spans: list[Span], received: datetime) -> dict[int, int]:
    """Return by how many nanoseconds the clock of each resource is ahead: no span ends after it was sent.

    A collector sends what many machines told it, and one machine's clock says nothing of another's.
    """
    resources = {id(span.resource): span.resource for span in spans}
    names = {number: repr(resource) for number, resource in resources.items()}
    arrived = (received - _EPOCH) // timedelta(microseconds=1) * 1000
    latest = dict.fromkeys(names.values(), arrived)
    for span in spans:
        name = names[id(span.resource)]
        latest[name] = max(latest[name], span.start, span.end)
    return {number: latest[name] - arrived for number, name in names.items()}


def _call(
    exchange: Exchange,
    span: Span,
    facts: SpanFacts,
    hints: tuple[SessionHint, ...],
    ahead: int,
) -> Call:
    what = facts.what
    named = (*hints, *_conversation_hints(span, facts))
    ext: JsonObject = {"schema_url": span.schema_url, "instrumentation": span.scope}
    ext = {name: value for name, value in ext.items() if value}
    error = _error(span)
    if isinstance(what, ToolFacts):
        service = as_text(span.resource.get("service.name")) or ""
        return Call(
            exchange=_exchange(
                exchange, span, {"name": what.name, "arguments": what.arguments}, ahead
            ),
            dialect=facts.convention,
            kind=CallKind.TOOL,
            hints=named,
            dispatch=ToolDispatch(
                what.name, what.arguments, what.result, span.is_error, f"otlp:{service}"
            ),
            error=error,
            ext=ext if what.event is None else {**ext, "event": what.event},
        )
    assert isinstance(what, ModelFacts)  # noqa: S101 - facts without a call were left out before
    own = _exchange(exchange, span, _said(what), ahead)
    if what.first_chunk_seconds is not None and 0 <= what.first_chunk_seconds < _LONGEST_SECONDS:
        first = own.started_at + timedelta(seconds=what.first_chunk_seconds)
        own = replace(own, first_byte_at=min(first, own.ended_at or first))
    return Call(
        exchange=own,
        dialect=facts.convention,
        kind=CallKind.MODEL,
        context=what.context,
        output=what.output,
        tools=what.tools,
        sampling=what.sampling,
        model_requested=what.model_requested,
        model_served=what.model_served,
        response_id=what.response_id,
        finish_reason=what.finish_reason or (UNREPORTED if what.output and not error else None),
        usage=what.usage,
        streamed=what.streamed,
        hints=named,
        error=error,
        ext=ext,
    )


def _said(what: ModelFacts) -> JsonObject:
    """Return what stands for the request's body: equal for equal requests."""
    return {
        "messages": [message.to_json() for message in what.context],
        "sampling": what.sampling,
    }


def _conversation_hints(span: Span, facts: SpanFacts) -> tuple[SessionHint, ...]:
    hints = []
    if facts.conversation is not None:
        hints.append(SessionHint(f"client:{facts.conversation_source}", facts.conversation[:512]))
    if span.trace_id.strip("0"):
        hints.append(SessionHint("traceparent", span.trace_id))
    return tuple(hints)


def _error(span: Span) -> str | None:
    if not span.is_error and "error.type" not in span.attributes:
        return None
    words = (as_text(span.attributes.get("error.type")), span.error)
    return (": ".join(word for word in words if word) or "error")[:_ERROR_LIMIT]


def _exchange(exchange: Exchange, span: Span, said: JsonObject, ahead: int) -> Exchange:
    """Return the exchange that stands for one span: its own identity and times, the export's client."""
    started = _moment(span.start - ahead) or exchange.started_at
    ended = max(_moment(span.end - ahead) or started, started)
    request = exchange.request
    own = tuple(field for field in request.headers if field[0] not in _OF_THE_EXPORTER)
    status = span.attributes.get("http.response.status_code", 500 if span.is_error else 200)
    code = status if isinstance(status, int) else 200
    return replace(
        exchange,
        exchange_id=span_exchange_id(exchange.client.tenant_id, span),
        part_of=exchange.exchange_id,
        released_of="",
        started_at=started,
        first_byte_at=None,
        ended_at=ended,
        request=HttpRequest("POST", request.path, "", own, canonical_json(said)),
        response=HttpResponse(code, (), b""),
    )


def span_exchange_id(tenant: str, span: Span) -> str:
    """Return the exchange id of a span: its start in milliseconds, then a hash of its names."""
    named = "\x00".join((tenant, span.trace_id, span.span_id)).encode("utf-8", "surrogatepass")
    milliseconds = max(span.start, 0) // 1_000_000 % 2**48
    return f"{milliseconds:012x}" + blake2b(named, digest_size=10).hexdigest()


def _moment(nanoseconds: int) -> datetime | None:
    if nanoseconds <= 0:
        return None
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def _feedback(
    exchange: Exchange, span: Span, facts: SpanFacts, judgement: Judgement, index: int
) -> Feedback:
    signal = judgement.signal
    values: JsonObject = {
        "name": signal.name,
        "value": signal.value,
        "label": signal.label,
        "rationale": signal.rationale,
        "source_kind": signal.source_kind,
        "source": signal.source,
        "observed_at": time_text(_moment(span.end) or exchange.started_at),
    }
    kind, target = "session", facts.conversation or span.trace_id
    if judgement.response_id is not None and not judgement.of_session:
        kind, target = "response", judgement.response_id
    return Feedback(
        feedback_id=f"{span_exchange_id(exchange.client.tenant_id, span)}.{index}",
        client=exchange.client,
        received_at=exchange.started_at,
        target_kind=kind,
        target_id=target,
        body={name: value for name, value in values.items() if value is not None},
        position=exchange.position,
    )


__all__ = ["DECODED_LIMIT", "MODE", "TRACES_PATH", "facts_of", "is_export", "read_export"]
