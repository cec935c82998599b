"""Schedules are due when their time comes, once, whatever the clock and the machine did."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.schedule import (
    DueNight,
    ScheduleSpec,
    SkippedNights,
    due,
    load_schedule,
    next_time,
    unmet,
)
from trajectory.errors import DocumentError

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def spec(**changes: Any) -> ScheduleSpec:
    base = {"cron": "0 2 * * *", "substrate": "s.yaml", "model": "shop"}
    return ScheduleSpec.model_validate({**base, **changes})


def test_nothing_is_due_before_its_time() -> None:
    assert due(spec(), looked_after=START, now=START + timedelta(hours=13, minutes=59)) is None


def test_a_night_is_due_at_its_time_and_only_once() -> None:
    now = START + timedelta(hours=14)
    found = due(spec(), looked_after=START, now=now)
    assert found == DueNight(at=datetime(2026, 3, 2, 2, tzinfo=UTC), missed=0, late=False)
    assert due(spec(), looked_after=found.at, now=now + timedelta(hours=1)) is None


@given(days=st.integers(1, 40), minutes=st.integers(6, 1400))
def test_missed_nights_are_made_up_for_once(days: int, minutes: int) -> None:
    now = datetime(2026, 3, 1, 2, tzinfo=UTC) + timedelta(days=days, minutes=minutes)
    found = due(spec(), looked_after=START, now=now)
    assert isinstance(found, DueNight)
    assert (found.late, found.missed) == (True, days)
    assert due(spec(), looked_after=found.at, now=now) is None
    skipped = due(spec(catch_up=False), looked_after=START, now=now)
    assert skipped == SkippedNights(found.at, days)


def test_a_night_that_waited_behind_another_schedules_was_not_missed() -> None:
    time, now = START + timedelta(hours=14), START + timedelta(hours=19)
    waited = due(spec(catch_up=False), looked_after=START, now=now, up_since=START)
    assert waited == DueNight(at=time, missed=0, late=False)
    later = time + timedelta(minutes=1)
    assert due(spec(catch_up=False), looked_after=START, now=now, up_since=later) == SkippedNights(
        time, 1
    )


@given(st.integers(0, 700 * 24 * 60))
def test_every_day_has_one_night_also_when_clocks_change(minutes: int) -> None:
    berlin = spec(time_zone="Europe/Berlin", cron="30 2 * * *")
    after = START + timedelta(minutes=minutes)
    first = next_time(berlin, after)
    second = next_time(berlin, first)
    assert after < first <= after + timedelta(hours=25)
    assert timedelta(hours=22) < second - first < timedelta(hours=26)


def test_local_time_counts() -> None:
    berlin = spec(time_zone="Europe/Berlin")
    assert next_time(berlin, datetime(2026, 7, 1, tzinfo=UTC)).hour == 0
    assert next_time(berlin, datetime(2026, 12, 1, tzinfo=UTC)).hour == 1


@pytest.mark.parametrize(("hour", "met"), [(21, False), (22, True), (3, True), (6, False)])
def test_a_window_may_pass_midnight(hour: int, met: bool) -> None:
    night = spec(conditions={"window": {"opens": "22:00", "closes": "06:00"}})
    missing = unmet(night, now=datetime(2026, 3, 1, hour, tzinfo=UTC), gpu_free=False)
    assert (missing == ()) is met


def test_a_gpu_that_is_wanted_must_be_free() -> None:
    wanted = spec(conditions={"gpu": "free"})
    assert unmet(wanted, now=START, gpu_free=True) == ()
    assert unmet(wanted, now=START, gpu_free=False) == ("no GPU is free",)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("cron: 0 2 * *", "five fields"),
        ("cron: 0 2 31 2 *", "ever comes"),
        ("cron: 0 2 * * * *", "five fields"),
        ("deadline_minutes: .inf", "deadline_minutes"),
        ("retries: {wait_minutes: .inf}", "wait_minutes"),
        ("conditions: {wait_minutes: 1.0e+300}", "wait_minutes"),
        ("conditions: {window: {opens: '22:00+02:00', closes: '23:00'}}", "time_zone"),
        ("conditions: {window: {opens: '22:00', closes: '22:00'}}", "no night"),
        ("time_zone: Mars/Olympus", "time zone"),
        ("overlap: perhaps", "skip"),
        ("recipes: [sft, grpo]", "no shipped recipe"),
    ],
)
def test_errors_name_file_line_and_what_is_valid(line: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    head = "apiVersion: headrace/v1\nkind: Schedule\nmetadata: {name: nightly}\nspec:\n"
    common = "" if line.startswith("cron") else "  cron: 0 2 * * *\n"
    path.write_text(f"{head}{common}  {line}\n  substrate: s.yaml\n  model: shop\n")
    with pytest.raises(DocumentError, match=text) as caught:
        load_schedule(path)
    assert f"night.yaml:{5 + bool(common)}:" in str(caught.value)


def test_documents_are_found_beside_the_schedule(tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(
        "apiVersion: headrace/v1\nkind: Schedule\nmetadata: {name: nightly}\nspec:\n"
        "  cron: 0 2 * * *\n  substrate: s.yaml\n  recipes: [own.yaml, sft]\n  model: shop\n"
    )
    found = load_schedule(path).spec
    assert found.substrate == tmp_path / "s.yaml"
    assert found.recipes == (str(tmp_path / "own.yaml"), "sft")
