"""Whom the calls of a trace belong to, in whatever order and in however many exports its spans come.

An agent's SDK exports a span when it has ended: the outermost, which often names the user, comes last. A call is of
the user whom its own span names, else the nearest span around it that does. Some spans never come, for exporters
leave out what they do not know. Where one is missing on the way out, the trace's outermost span counts as around
the call, and so does each that was under way when the call began. Traces are told apart by tenant and application.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.result import PlacedCall, PlacedPeople
from trajectory.assembly.state import MAX_CALLS
from trajectory.call import Call, CallKind, TraceSpan
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import with_people
from trajectory.errors import IntegrityError
from trajectory.telemetry.calls import MODE

IDLE_SECONDS = 24 * 3600.0
"""A trace that rested longer than this is forgotten."""
_VERSION = 1
_NESTED = 64
"""How many spans around a call are looked at."""


class _TraceKey(NamedTuple):
    tenant_id: str
    app_id: str
    trace_id: str


class _KnownSpan(NamedTuple):
    parent: str | None
    start: int
    end: int
    people: tuple[str, ...]


@dataclass(slots=True)
class _TracedCall:
    span: str
    """Which it is, or was made within."""
    start: int
    has_user: bool
    """It names one itself, or who exports it does."""
    stored_as: str | None = None
    """The step that holds what this span only repeats: the call passed through the gateway, too."""
    people: tuple[str, ...] = ()
    """Whom it was taken to belong to so far."""


@dataclass(slots=True)
class _Trace:
    seen: float = 0.0
    """When something of it came last, seconds since 1970."""
    spans: dict[str, _KnownSpan] = field(default_factory=dict)
    calls: dict[str, _TracedCall] = field(default_factory=dict)
    """By exchange."""

    @property
    def size(self) -> int:
        """How much of it is remembered."""
        return len(self.spans) + len(self.calls)

    def learn(self, span: TraceSpan) -> None:
        """Take note of a span; one that comes again does not take back whom it named."""
        known = self.spans.get(span.name.span_id)
        people = span.people or (known.people if known is not None else ())
        self.spans[span.name.span_id] = _KnownSpan(
            span.parent_span_id, span.start, span.end, people
        )

    def people_of(self, calls: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return whom these calls belong to, as far as that is known."""
        named = [span for span in self.spans.values() if span.people]
        if not named:
            return {}
        named.sort(key=lambda span: span.parent is not None)
        found = {}
        for name in calls:
            call = self.calls[name]
            people = self._around(call.span)
            if people is None:  # a span is missing on the way
                people = _joined(
                    span
                    for span in named
                    if span.parent is None or span.start <= call.start <= span.end
                )
            found[name] = people
        return found

    def _around(self, span_id: str) -> tuple[str, ...] | None:
        """Return whom the nearest span names, from this one outwards; None where one is missing on the way."""
        at: str | None = span_id
        for _ in range(_NESTED):
            if at is None:
                return ()
            span = self.spans.get(at)
            if span is None:
                return None
            if span.people:
                return span.people
            at = span.parent
        return None


class NamedCalls(NamedTuple):
    """Calls with the people of their traces."""

    calls: list[Call]
    people: tuple[PlacedPeople, ...]
    """Whom calls, also of earlier batches, belong to where that was not known before."""


class TracePeople:
    """Remembers spans and calls of traces, and whom they name.

    Bounded twice: traces that rested longer than a day fall out, then those that rested longest
    beyond ``most`` spans and calls. It holds ids of people: seal what :meth:`to_json` gives.
    """

    def __init__(self, key: bytes, most: int = 2 * MAX_CALLS) -> None:
        """Remember nothing yet.

        Args:
            key: that of the assembly, which makes the ids of steps.
            most: how many spans and calls are remembered.
        """
        self._make = Fingerprinter(key)
        self._most = most
        self._traces: dict[_TraceKey, _Trace] = {}
        """The one that rested longest first."""
        self._size = 0
        self._clock = 0.0

    def __len__(self) -> int:
        """Return how many spans and calls are remembered."""
        return self._size

    def take(self, calls: Sequence[Call]) -> NamedCalls:
        """Learn the spans and calls of a batch; return the calls with the people of their traces."""
        before = self._clock
        grown: dict[_TraceKey, None] = {}
        for call in calls:
            for span in call.spans:
                key = _key(call, span.name.trace_id)
                self._with_span(key, call, span)
                grown[key] = None
        fresh: dict[_TraceKey, dict[str, None]] = {}
        for call in calls:
            if (own := _key_of(call)) is not None:
                self._with_call(own, call)
                fresh.setdefault(own, {})[call.exchange.first_id] = None
        told: list[PlacedPeople] = []
        for key in grown | dict.fromkeys(fresh):
            trace = self._traces[key]
            found = trace.people_of(trace.calls if key in grown else fresh[key])
            for name, people in found.items():
                known = trace.calls[name]
                if people != known.people:
                    told.append(self._placed(key.tenant_id, name, known, people))
                    if known.stored_as is not None:
                        told.append(replace(told[-1], step_id=known.stored_as))
                    known.people = people
        named = [self._named(call) for call in calls]
        # A clock that was ahead once must not end what is open: the next batch tells.
        self._forget(*sorted((before or self._clock, self._clock)))
        return NamedCalls(named, tuple(told))

    def repeated(self, placed: Iterable[PlacedCall]) -> tuple[PlacedPeople, ...]:
        """Remember which steps hold what spans repeat; return whom these steps belong to."""
        told = []
        for one in placed:
            call, step = one.call, one.duplicate_of
            if step is None or call.span is None or call.exchange.mode != MODE:
                continue
            key = _key(call, call.span.trace_id)
            trace = self._traces.get(key)
            if trace is not None and (known := trace.calls.get(call.exchange.first_id)):
                known.stored_as = step
            if call.end_user is not None:
                told.append(PlacedPeople(key.tenant_id, step, call.end_user, call.also_named, ()))
        return tuple(told)

    def to_json(self) -> JsonObject:
        """Return what is remembered; it holds ids of people."""
        rows: list[JsonValue] = [_row(key, trace) for key, trace in self._traces.items()]
        return {"version": _VERSION, "clock": self._clock, "traces": rows}

    def restore(self, value: JsonObject) -> None:
        """Remember what :meth:`to_json` gave.

        Raises:
            IntegrityError: it is of another version.
        """
        if value.get("version") != _VERSION:
            raise IntegrityError("the memory of traces is of another version")
        said: Any = value
        self._clock = said["clock"]
        for tenant, app, name, seen, spans, calls in said["traces"]:
            trace = self._traces[_TraceKey(tenant, app, name)] = _Trace(seen)
            for span, parent, start, end, *people in spans:
                trace.spans[span] = _KnownSpan(parent, start, end, tuple(people))
            for call, span, start, has_user, stored_as, *people in calls:
                trace.calls[call] = _TracedCall(span, start, has_user, stored_as, tuple(people))
            self._size += trace.size

    def _with_span(self, key: _TraceKey, call: Call, span: TraceSpan) -> None:
        trace = self._touched(key, call)
        before = trace.size
        trace.learn(span)
        self._size += trace.size - before

    def _with_call(self, key: _TraceKey, call: Call) -> None:
        if call.span is None:
            raise ValueError("a call of a trace has its span")
        is_span = call.exchange.mode == MODE  # its export counts, not when it began
        trace = self._traces[key] if is_span else self._touched(key, call)
        if call.exchange.first_id in trace.calls:
            return
        start = round(call.exchange.started_at.timestamp() * 1e9)
        if is_span:
            start = trace.spans[call.span.span_id].start
        trace.calls[call.exchange.first_id] = _TracedCall(
            call.span.span_id, start, call.end_user is not None
        )
        self._size += 1

    def _touched(self, key: _TraceKey, call: Call) -> _Trace:
        """Return a trace, which from now on is the one that rested least."""
        trace = self._traces.pop(key, None) or _Trace()
        self._traces[key] = trace
        trace.seen = self._clock = call.exchange.started_at.timestamp()
        return trace

    def _placed(
        self, tenant_id: str, exchange_id: str, call: _TracedCall, people: tuple[str, ...]
    ) -> PlacedPeople:
        return PlacedPeople(
            tenant_id=tenant_id,
            step_id=self._make.identifier("step", exchange_id),
            end_user=None if call.has_user else next(iter(people), None),
            also_named=people if call.has_user else people[1:],
            before=() if call.has_user else call.people,
        )

    def _named(self, call: Call) -> Call:
        key = _key_of(call)
        if key is None:
            return call
        people = self._traces[key].calls[call.exchange.first_id].people
        return with_people(call, people)

    def _forget(self, now: float, latest: float) -> None:
        """Forget the traces that rested too long, and those that there is no room for.

        Args:
            now: the earlier one of the last two batches' clocks.
            latest: the later one; a trace that was seen after it was dated ahead.
        """
        for key, trace in [*self._traces.items()]:
            trace.seen = min(trace.seen, latest)
            if self._size <= self._most and now - trace.seen <= IDLE_SECONDS:
                return
            del self._traces[key]
            self._size -= trace.size


def _key(call: Call, trace_id: str) -> _TraceKey:
    client = call.exchange.client
    return _TraceKey(client.tenant_id, client.app_id, trace_id)


def _key_of(call: Call) -> _TraceKey | None:
    """Return the trace that may tell whom a call belongs to; what passed the gateway may tell it itself."""
    if call.span is None or call.kind not in (CallKind.MODEL, CallKind.TOOL):
        return None
    if call.exchange.mode != MODE and (call.end_user or call.also_named):
        return None
    return _key(call, call.span.trace_id)


def _joined(spans: Iterable[_KnownSpan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for span in spans for one in span.people))


def _row(key: _TraceKey, trace: _Trace) -> list[JsonValue]:
    spans: list[JsonValue] = [
        [name, span.parent, span.start, span.end, *span.people]
        for name, span in trace.spans.items()
    ]
    calls: list[JsonValue] = [
        [name, call.span, call.start, call.has_user, call.stored_as, *call.people]
        for name, call in trace.calls.items()
    ]
    return [*key, trace.seen, spans, calls]


__all__ = ["IDLE_SECONDS", "NamedCalls", "TracePeople"]
