"""OpenTelemetry GenAI and OpenInference traces as documents: OTLP exports in their JSON form.

A trajectory is a trace: one span around it (the agent), one for each call of the model.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from trajectory.canonical import JsonObject
from trajectory.formats.chains import Turn, chain
from trajectory.formats.document import DocumentFormat
from trajectory.formats.trace_place import FIRST_ATTRIBUTE
from trajectory.formats.trace_writing import (
    EPOCH,
    GENAI,
    OPENINFERENCE,
    Convention,
    write_trace,
)
from trajectory.json_form import FormError, time_text
from trajectory.message import Message
from trajectory.portable import PortableStep, Trajectory
from trajectory.telemetry import genai, openinference
from trajectory.telemetry.facts import ModelFacts, SpanFacts
from trajectory.telemetry.spans import Span, decode_json, encode_json


def _read(convention: Convention, document: JsonObject, where: str) -> Trajectory:
    spans = _spans(document, where)
    turns, agent = _turns(convention, spans)
    if not turns:
        raise FormError(f"{where}: resourceSpans: no span of a model call ({convention.name})")
    paths = chain(turns)
    # One document is one path; calls beside it (a title maker) stay in what the document holds more.
    path = max(paths, key=lambda one: (len(one), -one[0].position))
    last = convention.read(spans[path[-1].position])
    return _trajectory(path, last, None if agent is None else agent[1])


def _spans(document: JsonObject, where: str) -> list[Span]:
    if not isinstance(document.get("resourceSpans"), list):
        raise FormError(f"{where}: resourceSpans: expected a list of objects")
    return sorted(decode_json(document), key=lambda span: span.start)


def _turns(
    convention: Convention, spans: Sequence[Span]
) -> tuple[list[Turn], tuple[Span, SpanFacts] | None]:
    turns: list[Turn] = []
    agent = None
    for position, span in enumerate(spans):
        facts = convention.read(span)
        if facts is None:
            continue
        if isinstance(facts.what, ModelFacts) and facts.what.output is not None:
            turns.append(Turn(facts.what.context, _step(span, facts, facts.what), position))
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
    path: Sequence[Turn], last: SpanFacts | None, agent: SpanFacts | None
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
    read = {span.span_id: openinference.read(span) or genai.read(span) for span in spans}
    groups: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[_session(span, spans, read)].append(span)
    return [one for group in groups.values() for one in _documents(group)]


def _session(span: Span, spans: Sequence[Span], read: dict[str, SpanFacts | None]) -> str:
    """Return the session that the span, or another of its trace, names; else the trace."""
    own = read[span.span_id]
    if own is not None and own.conversation is not None:
        return own.conversation
    for other in spans:
        facts = read[other.span_id]
        if other.trace_id == span.trace_id and facts is not None and facts.conversation is not None:
            return facts.conversation
    return span.trace_id


def _documents(spans: list[Span]) -> list[JsonObject]:
    """Return the spans of a session as one document for each of its paths."""
    conventions = (OPENINFERENCE, GENAI)
    convention = next((one for one in conventions if any(map(one.read, spans))), None)
    if convention is None:
        return []
    turns, agent = _turns(convention, spans)
    around = [] if agent is None else [agent[0]]
    return [
        encode_json([*around, *(spans[turn.position] for turn in path)]) for path in chain(turns)
    ]


__all__ = ["FIRST_ATTRIBUTE", "GENAI_FORMAT", "OPENINFERENCE_FORMAT", "split_traces"]
