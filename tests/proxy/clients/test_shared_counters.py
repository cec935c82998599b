"""Counts: exact, shared over one file, remembered over restarts, in memory where the file fails."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from proxy.clients.shared_counters import FLUSH_SECONDS, SharedCounters

FAR = time.time() + 1e6


def test_counts_are_shared_and_outlive_the_process(tmp_path: Path) -> None:
    with (
        closing(SharedCounters(tmp_path / "counts")) as one,
        closing(SharedCounters(tmp_path / "counts")) as other,
    ):
        share(one, other)
    with closing(SharedCounters(tmp_path / "counts")) as later:
        assert later.used("a", FAR) == 8
    assert (tmp_path / "counts").stat().st_mode & 0o777 == 0o600


def share(one: SharedCounters, other: SharedCounters) -> None:
    """Count in two ledgers on one file."""
    one.add("a", 3, FAR)
    other.add("a", 4, FAR)
    assert (one.used("a", FAR), other.used("a", FAR)) == (3, 4)
    one.flush()
    other.flush()
    one.used("a", FAR)
    one.flush()
    assert (one.used("a", FAR), other.used("a", FAR)) == (7, 7)
    one.add("a", 1, FAR)


def test_what_has_expired_is_forgotten(tmp_path: Path) -> None:
    with closing(SharedCounters(tmp_path / "counts")) as ledger:
        ledger.add("old", 5, time.time() - 1)
        ledger.flush()
        ledger.used("new", FAR)
        ledger.flush()
    with closing(SharedCounters(tmp_path / "counts")) as ledger:
        assert ledger.used("old", FAR) == 0


def test_without_its_file_counting_goes_on_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    ledger = SharedCounters(tmp_path / "file" / "counts")
    ledger.add("a", 2, FAR)
    ledger.flush()
    ledger.add("a", 1, FAR)
    assert ledger.used("a", FAR) == 3
    assert ledger.failures == 2


def test_a_damaged_file_is_named_and_counting_goes_on_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "limits.sqlite"
    path.write_bytes(b"no database at all, and longer than a header of one" * 100)
    ledger = SharedCounters(path)
    for _ in range(3):
        ledger.add("a", 1, FAR)
        ledger.flush()
    assert ledger.used("a", FAR) == 3
    assert [ledger.claim("s", 2, FAR) for _ in range(3)] == [True, True, False]
    (told,) = caplog.messages
    assert told.startswith(f"{path}: DatabaseError; ")
    assert "move the file away" in told


def test_a_count_that_is_no_number_stops_no_call(tmp_path: Path) -> None:
    with closing(SharedCounters(tmp_path / "counts")) as ledger:
        ledger.add("a", 1, FAR)
        ledger.flush()
    with closing(sqlite3.connect(tmp_path / "counts", isolation_level=None)) as file:
        file.execute("UPDATE counts SET used = 'what?'")
    with closing(SharedCounters(tmp_path / "counts")) as ledger:
        ledger.add("a", 2, FAR)
        assert ledger.used("a", FAR) == 2


def test_steps_are_claimed_exactly_by_many(tmp_path: Path) -> None:
    with (
        closing(SharedCounters(tmp_path / "counts")) as one,
        closing(SharedCounters(tmp_path / "counts")) as other,
    ):
        claimed = [ledger.claim("s", 5, FAR) for _ in range(6) for ledger in (one, other)]
        assert claimed == [True] * 5 + [False] * 7
        assert not one.claim("none", 0, FAR)
        assert one.claim("old", 1, time.time() - 1)
        assert other.claim("old", 1, FAR)
        assert not one.claim("old", 1, FAR)


def test_what_was_claimed_and_came_to_nothing_can_be_claimed_again(tmp_path: Path) -> None:
    with (
        closing(SharedCounters(tmp_path / "counts")) as one,
        closing(SharedCounters(tmp_path / "counts")) as other,
    ):
        assert one.claim("s", 1, FAR)
        one.give_back("s")
        one.give_back("s")
        assert [other.claim("s", 1, FAR), one.claim("s", 1, FAR)] == [True, False]


def test_what_others_counted_is_known_a_moment_later(tmp_path: Path) -> None:
    with (
        closing(SharedCounters(tmp_path / "counts")) as one,
        closing(SharedCounters(tmp_path / "counts")) as other,
    ):
        assert other.used("a", FAR) == 0
        one.add("a", 3, FAR)
        one.flush()
        time.sleep(FLUSH_SECONDS + 0.05)
        assert other.used("a", FAR) == 3
