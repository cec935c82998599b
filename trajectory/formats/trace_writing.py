"""The two conventions of traces, and trajectories written in them: a span around the calls of a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from trajectory.canonical import JsonObject
from trajectory.formats.document import KEY
from trajectory.message import Message
from trajectory.portable import PortableSignal, Trajectory
from trajectory.telemetry import genai, openinference
from trajectory.telemetry.facts import ModelFacts, SpanFacts
from trajectory.telemetry.spans import Span, SpanEvent, encode_json

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


__all__ = ["EPOCH", "GENAI", "OPENINFERENCE", "Convention", "write_trace"]
