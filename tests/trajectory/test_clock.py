"""A clock that leapt is believed only once it has gone on for a day; one that was set back is no leap."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trajectory.clock import RoundClock


def ago(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat()


def test_a_leap_waits_for_a_day_and_a_round_that_was_done_ends_it(tmp_path: Path) -> None:
    clock, noted = RoundClock(tmp_path), tmp_path / "clock-leapt-at"
    (tmp_path / "swept-at").write_text(ago(days=31))
    for _ in range(2):
        leap = clock.leap()
        assert leap is not None
        assert leap.days == 31
    noted.write_text(ago(days=1))
    # Two processes ask: neither takes the answer from the other.
    assert [clock.leap(), clock.leap()] == [None, None]
    clock.done()
    assert not noted.exists()
    assert clock.since() < timedelta(hours=1)
    assert clock.leap() is None


def test_a_clock_that_leapt_on_while_it_was_not_sure_waits_again(tmp_path: Path) -> None:
    (tmp_path / "swept-at").write_text(ago(days=400))
    for noted in (ago(days=60), ago(days=-60), "torn"):
        (tmp_path / "clock-leapt-at").write_text(noted)
        assert RoundClock(tmp_path).leap() is not None
        assert RoundClock(tmp_path).leap() is not None


@pytest.mark.parametrize("last", [None, 29, -900, "2026-11-23", "\x00"])
def test_what_is_no_leap_is_believed(tmp_path: Path, last: str | int | None) -> None:
    if isinstance(last, int):
        last = ago(days=last)
    if last is not None:
        (tmp_path / "swept-at").write_text(last)
    (tmp_path / "clock-leapt-at").write_text(ago(hours=1))
    assert RoundClock(tmp_path).leap() is None
    assert not (tmp_path / "clock-leapt-at").exists()
