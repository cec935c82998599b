"""Everything that a spool carries, read: exchanges of any kind as calls, and feedback from all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trajectory.call import Call, CallKind
from trajectory.dialects.hints import span_around
from trajectory.dialects.mcp import join_answers
from trajectory.dialects.registry import Dialect, read_calls
from trajectory.exchange import Exchange, Feedback, SpoolRecord
from trajectory.imports import is_import, read_import
from trajectory.telemetry.calls import is_export, read_export


def read_records(
    records: Iterable[SpoolRecord], configured: Sequence[Dialect] = ()
) -> tuple[Sequence[Call], Sequence[Feedback]]:
    """Return the calls and the feedback in records, in their order; never raises.

    ``configured`` are the dialects that an installation adds.
    """
    calls: list[Call] = []
    feedback: list[Feedback] = []
    for record in records:
        if isinstance(record, Feedback):
            feedback.append(record)
            continue
        found, judged = _read(record, configured)
        calls += found
        feedback += judged
    return join_answers(calls), feedback


def _read(
    exchange: Exchange, configured: Sequence[Dialect]
) -> tuple[tuple[Call, ...], tuple[Feedback, ...]]:
    if exchange.released_calls:
        return _released(exchange, configured), ()
    if is_export(exchange):
        return read_export(exchange)
    if is_import(exchange):
        return read_import(exchange)
    calls, around = read_calls(exchange, configured), span_around(exchange.request.headers)
    return calls if around is None else tuple(replace(one, span=around) for one in calls), ()


def _released(exchange: Exchange, configured: Sequence[Dialect]) -> tuple[Call, ...]:
    """Return all calls of an exchange of which some were released: these under their new ids.

    The others tell where those belong. A released call that is not found any more is opaque: it is held again,
    and its exchange with it.
    """
    whole = replace(exchange, exchange_id=exchange.released_of, released_of="", released_calls=())
    read, _ = _read(whole, configured)
    found = {call.exchange.exchange_id: call for call in read}
    for first, _ in exchange.released_calls:
        if first not in found:
            own = replace(whole, exchange_id=first)
            found[first] = Call(own, "opaque", CallKind.OPAQUE, problem="release:not-found")
    return tuple(_within(exchange, call) for call in found.values())


def _within(exchange: Exchange, call: Call) -> Call:
    """Return a call as part of an exchange in which some calls were released."""
    first = call.exchange.exchange_id
    now = dict(exchange.released_calls).get(first)
    own = replace(
        call.exchange,
        exchange_id=now or first,
        released_of=first if now else "",
        released_calls=exchange.released_calls,
        part_of=exchange.exchange_id,
    )
    return replace(call, exchange=own)


__all__ = ["read_records"]
