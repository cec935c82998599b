"""Everything that a spool carries, read: exchanges of any kind as calls, and feedback from all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trajectory.call import Call
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
    if is_export(exchange):
        return read_export(exchange)
    if is_import(exchange):
        return read_import(exchange)
    calls, around = read_calls(exchange, configured), span_around(exchange.request.headers)
    return calls if around is None else tuple(replace(one, span=around) for one in calls), ()


__all__ = ["read_records"]
