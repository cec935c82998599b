"""Imported documents on their way into a lake: times, repetition, hostile bodies."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trajectory.documents import own_trajectory
from tests.trajectory.telemetry.test_calls import exchange
from trajectory.assembly import Assembler
from trajectory.call import CallKind
from trajectory.exchange import Exchange
from trajectory.imports import document_body, read_import
from trajectory.portable import Trajectory

NOW = datetime(2026, 9, 21, 15, tzinfo=UTC)


def imported(body: bytes) -> Exchange:
    return exchange(body, mode="import")


def timed(*times: str | None) -> Trajectory:
    whole = own_trajectory()
    steps = zip(whole.steps, times, strict=True)
    made = tuple(replace(step, timestamp=time, ended_at=None) for step, time in steps)
    return replace(whole, steps=made)


def starts(trajectory: Trajectory) -> list[datetime]:
    calls, _ = read_import(imported(document_body(trajectory)))
    assert calls[0].kind is CallKind.CONTROL
    return [call.exchange.started_at for call in calls[1:]]


def test_steps_are_in_order_whatever_the_times_say() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    for times in (
        (None, None, None),
        (None, early, late),
        (late, early, None),
        ("yesterday", early, "9999-12-31T23:59:59.999999Z"),
        ("9999-12-31T23:59:59.999999+00:00", None, None),
    ):
        found = starts(timed(*times))
        assert found == sorted(found)
        assert len(set(found)) == 3
        assert found[0] <= NOW
    assert starts(timed(None, early, late))[1:] == [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 2, tzinfo=UTC),
    ]


def test_a_document_gives_one_trajectory_and_twice_the_same() -> None:
    body = document_body(own_trajectory())
    first, feedback = read_import(imported(body))
    again, _ = read_import(replace(imported(body), exchange_id="1" * 32))
    assembler = Assembler(b"k" * 32)
    placed = assembler.assemble(first, feedback)
    assert len({one.trajectory_id for one in placed.placed}) == 1
    assert [one.step_index for one in placed.placed] == [0, 1, 2]
    assert [one.trajectory_id for one in placed.feedback] == [placed.placed[0].trajectory_id] * 2
    assert [one.step_id for one in placed.feedback] == [None, placed.placed[2].step_id]
    repeated = assembler.assemble(again).placed
    assert [one.step_id for one in repeated] == [one.step_id for one in placed.placed]


@pytest.mark.parametrize("time", [None, "2026-01-01T00:00:00", "yesterday", "2026-09-21T15:00:01Z"])
def test_a_step_is_the_same_whenever_its_document_comes(time: str | None) -> None:
    body = document_body(timed(time, time, time))
    first, _ = read_import(imported(body))
    later = replace(imported(body), started_at=NOW + timedelta(days=1))
    again, _ = read_import(later)
    names = [call.exchange.exchange_id for call in first[1:]]
    assert len(set(names)) == 3
    assert [call.exchange.exchange_id for call in again[1:]] == names


DOCUMENT: Any = json.loads(document_body(own_trajectory()))
WRONG = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({})


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=20) | st.tuples(st.sampled_from(sorted(DOCUMENT)), WRONG))
def test_hostile_bodies_cost_one_row(change: Any) -> None:
    body = change
    if isinstance(change, tuple):
        body = json.dumps({**DOCUMENT, change[0]: change[1]}).encode()
    calls, feedback = read_import(imported(body))
    if calls[0].kind is CallKind.OPAQUE:
        assert calls[0].problem is not None
        assert calls[0].problem.startswith("request:")
        assert feedback == ()
