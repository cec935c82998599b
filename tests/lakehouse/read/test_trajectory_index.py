"""The index says what the view ``trajectories`` says, after whatever came, and where a trajectory lies."""

import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from governance.records import GovernedBatch
from lakehouse.erasure.removal import remove_trajectories
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.read.session import Snapshot
from lakehouse.read.trajectory_index import LISTED, TrajectoryIndex
from tests.lakehouse import make
from trajectory.errors import RetryableError
from trajectory.step import Step

DAY = datetime(2026, 11, 1, 23, 59, tzinfo=UTC)
_SORTED = f"SELECT {', '.join(LISTED)} FROM {{}} ORDER BY tenant_id, trajectory_id"  # noqa: S608


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(str(tmp_path))


def at_once() -> float:
    """Return the time for an index that never rests: reading takes none."""
    return 0.0


def index_of(lake: Lake, tenant: str | None = None) -> TrajectoryIndex:
    def snapshot(names: Collection[str]) -> Snapshot:
        return lake.snapshot_for(tenant, names=names)

    return TrajectoryIndex(snapshot, {}, clock=at_once)


def add(lake: Lake, number: int, *steps: Step) -> None:
    rows = GovernedBatch(exchanges=tuple(map(make.ledger, steps)), steps=steps)
    lake.append(rows, app_id="a", version=number)


def agreed(lake: Lake, index: TrajectoryIndex) -> list[dict[str, Any]]:
    """Return what index and view both say, once the index has caught up."""
    found = index.rows(_SORTED.format("listed")).to_pylist()
    assert found == lake.query(_SORTED.format("trajectories")).to_pylist()
    return list(found)


def test_it_says_what_the_view_says_after_whatever_came(lake: Lake) -> None:
    index = index_of(lake)
    assert agreed(lake, index) == []
    at = [DAY + timedelta(minutes=number) for number in range(4)]
    add(lake, 0, make.step("t1", 0, started_at=at[0]), make.step("t2", 0, started_at=at[0]))
    assert len(agreed(lake, index)) == 2
    add(lake, 1, make.step("t1", 1, started_at=at[2], http_status=500))
    first = agreed(lake, index)[0]
    assert (first["steps"], first["failed_steps"]) == (2, 1), "over midnight"
    lake.append_rows("signals", [make.signal("t1", 1.0), make.signal("t2", 0.0)])
    assert [one["success"] for one in agreed(lake, index)] == [True, False]
    lake.append_rows("signals", [make.signal("t2", 1.0, recorded_at=datetime.now(UTC))])
    assert [one["success"] for one in agreed(lake, index)] == [True, True]
    add(lake, 2, make.step("t3", 0, started_at=at[3], tenant_id="rival"))
    assert len(agreed(lake, index)) == 3
    assert {
        row["tenant_id"] for row in index_of(lake, "rival").rows("FROM listed").to_pylist()
    } == {"rival"}
    days = index.days("t1")
    assert days.steps == {"2026-11-01", "2026-11-02"}
    assert days.signals is not None
    assert index.days("t9").steps == frozenset()


def test_signals_about_no_trajectory_and_those_that_replace_others(lake: Lake) -> None:
    index = index_of(lake)
    add(lake, 0, make.step("t1", 0, started_at=DAY), make.step("t2", 0, started_at=DAY))
    said = make.signal("t1", 0.0)
    lake.append_rows("signals", [said])
    agreed(lake, index)
    changed = make.signal("t1", 1.0, supersedes=said.signal_id, signal_id="s-2")
    lake.append_rows("signals", [changed])
    assert agreed(lake, index)[0]["success"] is True
    assert index.days("t1").signals is None, "any signal may replace another now"


def test_what_was_compacted_or_erased_is_read_again(lake: Lake) -> None:
    index = index_of(lake)
    for number in range(3):
        add(lake, number, make.step(f"t{number}", 0, started_at=DAY))
    agreed(lake, index)
    compact(lake, tables=["steps"])
    assert len(agreed(lake, index)) == 3
    remove_trajectories(lake, "acme", ["t1"], reason="erasure")
    assert [one["trajectory_id"] for one in agreed(lake, index)] == ["t0", "t2"]
    assert index.days("t1").steps == frozenset()


def test_a_step_that_belongs_elsewhere_by_now_moves(lake: Lake) -> None:
    index = index_of(lake)
    one, other = make.step("t1", 0, started_at=DAY), make.step("t2", 0, started_at=DAY)
    add(lake, 0, one, other)
    lake.append_rows("signals", [make.signal("t2", 0.0)])
    assert [row["steps"] for row in agreed(lake, index)] == [1, 1]
    lake.append_rows("corrections", [make.correction(other, trajectory_id="t1", step_index=1)])
    (row,) = agreed(lake, index)
    assert (row["trajectory_id"], row["steps"], row["success"]) == ("t1", 2, False)


def test_who_asks_waits_for_the_first_reading_and_then_as_long_as_patience_lasts(
    lake: Lake,
) -> None:
    held, goes_on = Event(), Event()

    def snapshot(names: Collection[str]) -> Snapshot:
        if held.is_set():
            assert goes_on.wait(60)
        return lake.snapshot_for(None, names=names)

    index = TrajectoryIndex(snapshot, {}, patience=0.01, clock=at_once)
    add(lake, 0, make.step("t1", 0))
    assert index.rows("SELECT trajectory_id FROM listed").num_rows == 1
    add(lake, 1, make.step("t2", 0))
    held.set()
    assert index.rows("SELECT trajectory_id FROM listed").num_rows == 1, "what it was will do"
    goes_on.set()
    until = time.monotonic() + 60
    while index.rows("SELECT trajectory_id FROM listed").num_rows < 2:
        assert time.monotonic() < until, "it goes on by itself"
        time.sleep(0.01)


def test_who_waits_is_told_what_went_wrong_and_the_next_one_tries_again(lake: Lake) -> None:
    fails = [True]

    def snapshot(names: Collection[str]) -> Snapshot:
        if fails and fails.pop():
            raise RetryableError("a file went away")
        return lake.snapshot_for(None, names=names)

    index = TrajectoryIndex(snapshot, {}, patience=0.01, clock=at_once)
    with pytest.raises(RetryableError, match="went away"):
        index.rows("SELECT 1 FROM listed")
    assert index.rows("SELECT 1 FROM listed").num_rows == 0


def test_the_latest_day_is_listed_first_and_where_all_lie_is_known_by_then(lake: Lake) -> None:
    older = [DAY - timedelta(days=number) for number in range(10)]
    for number, at in enumerate(older):
        add(lake, number, make.step(f"t{number}", 0, started_at=at))
    add(lake, 10, make.step("t9", 1, started_at=DAY))  # it went on in the latest day
    lake.append_rows("signals", [make.signal("t0", 0.0)])
    goes_on = Event()

    class Held(TrajectoryIndex):
        def _read_days(self, present: Snapshot, days: Sequence[str]) -> None:
            if str(DAY.date()) not in days:
                assert goes_on.wait(60)
            super()._read_days(present, days)

    index = Held(
        lambda names: lake.snapshot_for(None, names=names), {}, patience=0.01, clock=at_once
    )
    asked = "SELECT trajectory_id, steps, success FROM listed ORDER BY trajectory_id"
    assert [tuple(row.values()) for row in index.rows(asked).to_pylist()] == [
        ("t0", 1, False), ("t9", 2, None),
    ]  # fmt: skip
    assert index.unread_days == 9
    assert index.days("t5").steps == {str(older[5].date())}
    assert index.days("t9").steps == {str(older[9].date()), str(DAY.date())}
    goes_on.set()
    until = time.monotonic() + 60
    while index.unread_days:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(agreed_later(lake, index)) == 10


def agreed_later(lake: Lake, index: TrajectoryIndex) -> list[dict[str, Any]]:
    """Return what index and view both say in the end."""
    expected = lake.query(_SORTED.format("trajectories")).to_pylist()
    until = time.monotonic() + 60
    while (found := index.rows(_SORTED.format("listed")).to_pylist()) != expected:
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return list(found)
