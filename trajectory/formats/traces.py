"""OpenTelemetry GenAI and OpenInference traces as documents: OTLP exports in their JSON form.

A trajectory is a trace: one span around it (the agent), one for each call of the model.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, objects, parse_json_or_none
from trajectory.formats.chains import ChainTurn, chain
from trajectory.formats.document import KEY, Carrier, DocumentFormat
from trajectory.json_form import FormError, time_text
from trajectory.message import Message
from trajectory.portable import PortableSignal, PortableStep, Trajectory
from trajectory.telemetry import genai, openinference
from trajectory.telemetry.span_content import USERS, ModelFacts, SpanFacts, people_of
from trajectory.telemetry.spans import Span, SpanEvent, decode_json, encode_json


def _put(document: JsonObject, rest: JsonObject) -> JsonObject | None:
    text = json.dumps(rest, ensure_ascii=False)
    return _first_span(document, lambda kept: [*kept, _attribute(text)])


def _attribute(text: str) -> JsonObject:
    return {"key": KEY, "value": {"stringValue": text}}


def _take(document: JsonObject) -> tuple[JsonObject, JsonObject]:
    found: list[JsonObject] = []

    def without(attributes: list[JsonValue]) -> list[JsonValue]:
        for item in objects(attributes):
            value = as_object(item.get("value")).get("stringValue")
            rest = parse_json_or_none(value) if isinstance(value, str) else None
            if item.get("key") == KEY and isinstance(rest, dict):
                found.append(rest)
                return [one for one in attributes if one is not item]
        return attributes

    changed = _first_span(document, without)
    return (changed, found[0]) if changed is not None and found else (document, {})


def _first_span(
    document: JsonObject, change: Callable[[list[JsonValue]], list[JsonValue]]
) -> JsonObject | None:
    """Return the document with the attributes of its first span changed; None without a span."""
    groups = document.get("resourceSpans")
    scoped = as_object(groups[0]).get("scopeSpans") if isinstance(groups, list) and groups else None
    spans = as_object(scoped[0]).get("spans") if isinstance(scoped, list) and scoped else None
    if not isinstance(groups, list) or not isinstance(scoped, list) or not isinstance(spans, list):
        return None
    first = spans[0] if spans else None
    attributes = as_object(first).get("attributes", [])
    if not isinstance(first, dict) or not isinstance(attributes, list):
        return None
    changed: JsonObject = {**first, "attributes": change(attributes)}
    scope: JsonObject = {**as_object(scoped[0]), "spans": [changed, *spans[1:]]}
    group: JsonObject = {**as_object(groups[0]), "scopeSpans": [scope, *scoped[1:]]}
    return {**document, "resourceSpans": [group, *groups[1:]]}


FIRST_ATTRIBUTE = Carrier(_put, _take, f"attribute {KEY} of the first span")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Convention:
    """What differs between the two."""

    name: str
    read: Callable[[Span], SpanFacts | None]
    write_model: Callable[[ModelFacts], JsonObject]
    agent: Callable[[Trajectory], JsonObject]
    session: str
    schema_url: str = ""


def _genai_agent(trajectory: Trajectory) -> JsonObject:
    return {
        genai.OPERATION: "invoke_agent",
        genai.AGENT_NAME: trajectory.agent_name,
        genai.AGENT_VERSION: trajectory.agent_version,
    }


def _openinference_agent(trajectory: Trajectory) -> JsonObject:
    return {
        openinference.SPAN_KIND: "AGENT",
        openinference.AGENT_NAME: trajectory.agent_name,
        **openinference.write_judgements("trace.evaluations.", trajectory.signals),
    }


GENAI = Convention(
    genai.CONVENTION,
    genai.read,
    genai.write_model,
    _genai_agent,
    genai.CONVERSATION,
    genai.SCHEMA_URL,
)
OPENINFERENCE = Convention(
    openinference.CONVENTION,
    openinference.read,
    openinference.write_model,
    _openinference_agent,
    openinference.SESSION,
)


def write_trace(convention: Convention, trajectory: Trajectory) -> JsonObject:
    """Return a trajectory as an export of one trace."""
    name = trajectory.trajectory_id or trajectory.session_id or "trajectory"
    trace = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    session = trajectory.session_id or trajectory.trajectory_id
    named: JsonObject = {convention.session: session} if session else {}
    root = Span(
        trace_id=trace,
        span_id=_span_id(trace, 0),
        parent_span_id=None,
        name=f"invoke_agent {trajectory.agent_name or ''}".rstrip(),
        start=0,
        end=0,
        attributes=_set({**named, **convention.agent(trajectory)}),
        events=_events(convention, trajectory.signals, 0),
        resource=_set({"service.name": trajectory.agent_name}),
        scope=KEY,
        schema_url=convention.schema_url,
    )
    spans = _model_spans(convention, trajectory, root, named)
    times = [span.start for span in spans] or [0]
    root = replace(root, start=min(times), end=max([span.end for span in spans] or [0]))
    return encode_json([root, *spans])


def _model_spans(
    convention: Convention, trajectory: Trajectory, root: Span, named: JsonObject
) -> list[Span]:
    spans: list[Span] = []
    said: list[Message] = []
    at = 0
    for number, step in enumerate(trajectory.steps, 1):
        said += step.observed
        start = _nanoseconds(step.timestamp) or at + _MILLISECOND
        at = max(_nanoseconds(step.ended_at) or start, start)
        facts = ModelFacts(
            context=tuple(said),
            output=step.output,
            tools=trajectory.tools,
            sampling=step.sampling,
            model_served=step.model,
            response_id=step.response_id,
            finish_reason=step.finish_reason,
            usage=step.usage,
            cost_usd=step.cost_usd,
        )
        attributes = {**named, **convention.write_model(facts)}
        if convention is OPENINFERENCE:
            attributes |= openinference.write_judgements("evaluations.", step.signals)
        spans.append(
            replace(
                root,
                span_id=_span_id(root.trace_id, number),
                parent_span_id=root.span_id,
                name=f"chat {step.model or ''}".rstrip(),
                start=start,
                end=at,
                attributes=attributes,
                events=_events(convention, step.signals, at),
            )
        )
        said.append(step.output)
    return spans


def _events(
    convention: Convention, signals: Sequence[PortableSignal], at: int
) -> tuple[SpanEvent, ...]:
    if convention is not GENAI:
        return ()
    return tuple(
        SpanEvent(genai.EVALUATION, at, genai.write_judgement(signal)) for signal in signals
    )


def _span_id(trace: str, number: int) -> str:
    return blake2b(f"{trace}:{number}".encode(), digest_size=8).hexdigest()


def _nanoseconds(text: str | None) -> int | None:
    """Return a time as nanoseconds; None where the text is none that OTLP can hold."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if moment.tzinfo is None or moment < EPOCH:
        return None
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def _set(attributes: JsonObject) -> JsonObject:
    return {name: value for name, value in attributes.items() if value is not None}


def _read(convention: Convention, document: JsonObject, where: str) -> Trajectory:
    spans = _spans(document, where)
    turns, agent = _turns(convention, spans)
    if not turns:
        raise FormError(f"{where}: resourceSpans: no span of a model call ({convention.name})")
    paths = chain(turns)
    # One document is one path; calls beside it (a title maker) stay in what the document holds more.
    path = max(paths, key=lambda one: (len(one), -one[0].position))
    last = convention.read(spans[path[-1].position])
    read = _trajectory(path, last, None if agent is None else agent[1])
    users = dict.fromkeys(one for span in spans for one in people_of(span.attributes))
    return replace(read, also_named=tuple(users))


def _spans(document: JsonObject, where: str) -> list[Span]:
    if not isinstance(document.get("resourceSpans"), list):
        raise FormError(f"{where}: resourceSpans: expected a list of objects")
    return sorted(decode_json(document), key=lambda span: span.start)


def _turns(
    convention: Convention, spans: Sequence[Span]
) -> tuple[list[ChainTurn], tuple[Span, SpanFacts] | None]:
    turns: list[ChainTurn] = []
    agent = None
    for position, span in enumerate(spans):
        facts = convention.read(span)
        if facts is None:
            continue
        if isinstance(facts.what, ModelFacts) and facts.what.output is not None:
            turns.append(ChainTurn(facts.what.context, _step(span, facts, facts.what), position))
        elif facts.what is None and agent is None:
            agent = (span, facts)
    return turns, agent


def _step(span: Span, facts: SpanFacts, what: ModelFacts) -> PortableStep:
    return PortableStep(
        observed=(),
        output=what.output or Message("assistant", ()),
        timestamp=_text(span.start),
        ended_at=_text(span.end),
        model=what.model_served or what.model_requested,
        response_id=what.response_id,
        finish_reason=what.finish_reason,
        sampling=what.sampling,
        usage=what.usage,
        cost_usd=what.cost_usd,
        signals=tuple(one.signal for one in facts.judgements if not one.of_session),
    )


def _trajectory(
    path: Sequence[ChainTurn], last: SpanFacts | None, agent: SpanFacts | None
) -> Trajectory:
    what = None if last is None else last.what
    return Trajectory(
        steps=tuple(turn.step for turn in path),
        session_id=None if last is None else last.conversation,
        agent_name=None if agent is None else agent.agent_name,
        agent_version=None if agent is None else agent.agent_version,
        tools=what.tools if isinstance(what, ModelFacts) else (),
        signals=() if agent is None else tuple(one.signal for one in agent.judgements),
    )


def _text(nanoseconds: int) -> str | None:
    if nanoseconds <= 0:
        return None
    return time_text(EPOCH + timedelta(microseconds=nanoseconds // 1000))


def _format(convention: Convention, name: str, version: str) -> DocumentFormat:
    return DocumentFormat(
        name,
        version,
        lambda document, where: _read(convention, document, where),
        lambda trajectory: write_trace(convention, trajectory),
        FIRST_ATTRIBUTE,
    )


GENAI_FORMAT = _format(GENAI, "otel-genai", "OTLP 1.x JSON, semantic conventions 1.41")
OPENINFERENCE_FORMAT = _format(OPENINFERENCE, "openinference", "OTLP 1.x JSON, conventions 0.1")


def split_traces(document: JsonObject, where: str) -> list[JsonObject]:
    """Return an export as one document for each session (trace, where spans name none) and path.

    Raises:
        FormError: it is no export.
    """
    spans = _spans(document, where)
    read = {_key(span): openinference.read(span) or genai.read(span) for span in spans}
    groups: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[_session(span, spans, read)].append(span)
    naming = {
        (span.trace_id, people): _naming_only(span)
        for span in spans
        if (people := people_of(span.attributes)) and not _is_call(read[_key(span)])
    }
    return [one for group in groups.values() for one in _documents(group, [*naming.values()])]


def _is_call(facts: SpanFacts | None) -> bool:
    return (
        facts is not None and isinstance(facts.what, ModelFacts) and facts.what.output is not None
    )


def _naming_only(span: Span) -> Span:
    """Return a span with no more than whom it names."""
    named = {name: item for name, item in span.attributes.items() if name in USERS}
    return replace(span, attributes=named, events=())


def _key(span: Span) -> tuple[str, str]:
    return span.trace_id, span.span_id  # some exporters number the spans of each trace


def _session(
    span: Span, spans: Sequence[Span], read: dict[tuple[str, str], SpanFacts | None]
) -> str:
    """Return the session that the span, or another of its trace, names; else the trace."""
    own = read[_key(span)]
    if own is not None and own.conversation is not None:
        return own.conversation
    for other in spans:
        facts = read[_key(other)]
        if other.trace_id == span.trace_id and facts is not None and facts.conversation is not None:
            return facts.conversation
    return span.trace_id


def _documents(spans: list[Span], naming: Sequence[Span]) -> list[JsonObject]:
    """Return the spans of a session as one document for each of its paths.

    Args:
        spans: those of the session.
        naming: spans of any session that may name whom the calls of their trace belong to.
    """
    conventions = (OPENINFERENCE, GENAI)
    convention = next((one for one in conventions if any(map(one.read, spans))), None)
    if convention is None:
        return []
    turns, agent = _turns(convention, spans)
    around = [] if agent is None else [agent[0]]
    traces = {span.trace_id for span in spans}
    around += [
        span
        for span in naming
        if span.trace_id in traces and (agent is None or _key(span) != _key(agent[0]))
    ]
    return [
        encode_json([*around, *(spans[turn.position] for turn in path)]) for path in chain(turns)
    ]
