"""Imported trajectories on their way into a lake: a document in the spool, read as one call for each step.

Identity comes from the content: a document that is imported twice gives the same calls, which are
stored once. Fields that the protocol's steps lack, such as the document's own ids, go into the ``ext`` of
the first step. An export from the lake writes them back.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

from trajectory.call import Call, CallKind, SessionHint
from trajectory.canonical import JsonObject, bytes_hash, canonical_json
from trajectory.dialects.hints import VALUE_LIMIT
from trajectory.dialects.wire import UnreadableError, as_text, header, parse_json
from trajectory.exchange import Exchange, Feedback, HttpRequest, HttpResponse
from trajectory.json_form import FormError, from_json, time_text, to_json
from trajectory.message import Message
from trajectory.portable import PSEUDONYM, PortableSignal, PortableStep, Trajectory
from trajectory.telemetry.calls import UNREPORTED

MODE = "import"
EXT = "document"
"""Name of what comes from the document in a step's ``ext``."""

_FORMAT_HEADER = "x-headrace-format"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(milliseconds=1)
_STEP_FIELDS = (
    *("step_id", "timestamp", "ended_at", "response_id", "finish_reason", "model"),
    *("usage", "cost_usd", "loss_mask"),
)
_TERMS = ("purposes", "legal_basis")
"""Kept as the document said them; an export tells what the lake allows."""
_OWN_FIELDS = ("trajectory_id", "session_id", "agent_name", "agent_version", "model")
_NOT_RESTORED = ("step", "trajectory", "ext", "trailing", *_TERMS)


def document_body(trajectory: Trajectory) -> bytes:
    """Return a trajectory as the body of its exchange."""
    return canonical_json(to_json(trajectory))


def format_header(name: str) -> tuple[bytes, bytes]:
    """Return the header that says which format the document had."""
    return _FORMAT_HEADER.encode(), name.encode()


def is_import(exchange: Exchange) -> bool:
    """Tell whether this exchange is an imported document."""
    return exchange.mode == MODE


def read_import(exchange: Exchange) -> tuple[tuple[Call, ...], tuple[Feedback, ...]]:
    """Return a call for each step, the feedback in the document, and one call for the document itself.

    Never raises: a body that is no trajectory is one opaque call.
    """
    try:
        value = parse_json(exchange.request.body, "request")
        trajectory = from_json(Trajectory, value)
        name = bytes_hash(exchange.request.body)
        own = Call(exchange, MODE, CallKind.CONTROL, ext={"steps": len(trajectory.steps)})
        feedback = tuple(_feedback(exchange, trajectory, name))
        return (own, *_calls(exchange, trajectory, name)), feedback
    except UnreadableError as error:
        problem = str(error.args[0])
    except FormError:
        problem = "request:no-trajectory"
    except Exception as error:  # noqa: BLE001 - a hostile document must cost one row, never the batch
        problem = f"import:{type(error).__name__}"
    return (Call(exchange, MODE, CallKind.OPAQUE, problem=problem),), ()


def _calls(exchange: Exchange, trajectory: Trajectory, name: str) -> list[Call]:
    calls: list[Call] = []
    said: list[Message] = []
    times = _times(trajectory, exchange.started_at)
    for number, (step, (started, ended)) in enumerate(zip(trajectory.steps, times, strict=True)):
        said += step.observed
        call = Call(
            exchange=_exchange(exchange, f"{name}.{number}", step, started, ended),
            dialect=f"import.{header(exchange.request.headers, _FORMAT_HEADER) or 'headrace'}",
            kind=CallKind.MODEL,
            context=tuple(said),
            output=step.output,
            tools=trajectory.tools,
            sampling=step.sampling,
            model_requested=step.model or trajectory.model,
            model_served=step.model or trajectory.model,
            response_id=_response_id(step, name, number),
            finish_reason=step.finish_reason or UNREPORTED,
            usage=step.usage,
            tokens=step.tokens,
            end_user=trajectory.end_user,
            also_named=_ids((*(trajectory.also_named or ()), *_others(step.subjects))),
            purposes=step.purposes,
            subjects=tuple(filter(PSEUDONYM.fullmatch, step.subjects or ())),
            hints=(SessionHint(MODE, name),),
            ext={EXT: _beside(trajectory, number)},
        )
        calls.append(call)
        said.append(step.output)
    return calls


def _others(subjects: Iterable[str] | None) -> tuple[str, ...]:
    """Return whom a document names by what is no pseudonym: the lake makes one of it."""
    return tuple(one for one in subjects or () if not PSEUDONYM.fullmatch(one))


def _ids(named: Iterable[str]) -> tuple[str, ...]:
    return tuple(filter(None, dict.fromkeys(one.strip()[:VALUE_LIMIT] for one in named)))


def _beside(trajectory: Trajectory, number: int) -> JsonObject:
    """Return what the step's row has no field for, so that the lake can give the document back."""
    step = trajectory.steps[number]
    kept: JsonObject = {"step": number}
    form = to_json(step)
    kept |= {name: form[name] for name in (*_STEP_FIELDS, *_TERMS) if name in form}
    if number == 0:
        names = ((name, getattr(trajectory, name)) for name in _OWN_FIELDS)
        kept["trajectory"] = {name: value for name, value in names if value is not None}
        kept["ext"] = trajectory.ext
    if number == len(trajectory.steps) - 1 and trajectory.trailing:
        kept["trailing"] = [message.to_json() for message in trajectory.trailing]
    return kept


def restored(trajectory: Trajectory, beside: list[JsonObject]) -> Trajectory:
    """Return a trajectory out of a lake with what its document held beyond the rows.

    Args:
        trajectory: what the rows say.
        beside: the ``ext`` of each of its steps.
    """
    notes = [cast(JsonObject, ext.get(EXT)) or {} for ext in beside]
    if not notes or "trajectory" not in notes[0]:
        return trajectory
    try:
        steps = tuple(
            _restored_step(step, note) for step, note in zip(trajectory.steps, notes, strict=True)
        )
        first, last = notes[0], notes[-1]
        form: JsonObject = {"steps": [], "trailing": last.get("trailing", [])}
        form |= {"ext": first.get("ext", {}), **cast(JsonObject, first["trajectory"])}
        read = from_json(Trajectory, form)
    except FormError:
        return trajectory  # redaction changed what this was; the rows stand for themselves
    signals = tuple(map(_own_signal, trajectory.signals))
    return replace(read, steps=steps, tools=trajectory.tools, signals=signals)


def _restored_step(step: PortableStep, note: JsonObject) -> PortableStep:
    form = to_json(step)
    form = {name: item for name, item in form.items() if name not in _STEP_FIELDS}
    form |= {name: item for name, item in note.items() if name not in _NOT_RESTORED}
    step = from_json(PortableStep, form)
    return replace(step, signals=tuple(map(_own_signal, step.signals)))


def _own_signal(signal: PortableSignal) -> PortableSignal:
    """Return a signal without the source that the import gave it."""
    return replace(signal, source="") if signal.source == MODE else signal


def _response_id(step: PortableStep, name: str, number: int) -> str:
    return step.response_id or f"import-{name.removeprefix('b2:')}-{number}"


def _exchange(
    exchange: Exchange, name: str, step: PortableStep, started: datetime, ended: datetime
) -> Exchange:
    moment = _moment(step.timestamp)  # not when it came: it is the same step the next time
    milliseconds = 0 if moment is None else (moment - _EPOCH) // _TICK
    tenant = exchange.client.tenant_id
    digest = bytes_hash(json.dumps([tenant, name]).encode()).removeprefix("b2:")
    request = exchange.request
    return replace(
        exchange,
        exchange_id=f"{milliseconds:012x}{digest[:20]}",
        part_of=exchange.exchange_id,
        released_of="",
        started_at=started,
        first_byte_at=None,
        ended_at=ended,
        request=HttpRequest("POST", request.path, "", request.headers, name.encode()),
        response=HttpResponse(200, (), b""),
    )


def _times(trajectory: Trajectory, now: datetime) -> list[tuple[datetime, datetime]]:
    """Return begin and end of each step, in order even where the document's times are not.

    A step without a time comes a millisecond after the one before it; those before the first
    that has one, just before that. A document from the future has no times.
    """
    told = [_moment(step.timestamp) for step in trajectory.steps]
    if any(moment is not None and moment > now for moment in told):
        told = [None] * len(told)
    first = next((at for at, moment in enumerate(told) if moment is not None), None)
    clock = now if first is None else (told[first] or now) - _TICK * first
    times = []
    for step, moment in zip(trajectory.steps, told, strict=True):
        started = max(moment or clock, clock)
        ended = max(min(_moment(step.ended_at) or started, max(now, started)), started)
        times.append((started, ended))
        clock = ended + _TICK
    return times


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None or moment < _EPOCH else moment.astimezone(UTC)


def _feedback(exchange: Exchange, trajectory: Trajectory, name: str) -> list[Feedback]:
    found: list[tuple[str, str, PortableSignal]] = [
        ("session", name, signal) for signal in trajectory.signals
    ]
    for number, step in enumerate(trajectory.steps):
        target = _response_id(step, name, number)
        found += [("response", target, signal) for signal in step.signals]
    return [
        Feedback(
            feedback_id=f"{name}.{index}",
            client=exchange.client,
            received_at=exchange.started_at,
            target_kind=kind,
            target_id=target,
            body=_signal_body(exchange, signal),
            position=exchange.position,
        )
        for index, (kind, target, signal) in enumerate(found)
    ]


def _signal_body(exchange: Exchange, signal: PortableSignal) -> JsonObject:
    body = signal.to_json()
    observed = _moment(as_text(body.get("observed_at"))) or exchange.started_at
    source = body.get("source") or MODE
    return {**body, "source": source, "observed_at": time_text(observed)}


__all__ = [
    "EXT",
    "MODE",
    "document_body",
    "format_header",
    "is_import",
    "read_import",
    "restored",
]
