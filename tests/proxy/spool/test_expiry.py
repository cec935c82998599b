"""Age of raw captures: what nobody governed goes in time, is counted and noted; the rest is read."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.spool import Cursor, SpoolReader, SpoolWriter
from proxy.spool.expiry import expire, noted
from tests.lakehouse.power import Power
from tests.proxy.spool.scripts import KEY, ExchangeScript
from trajectory.exchange import Exchange
from trajectory.files import sync_folder

DAY = 86_400.0


def aged(path: Path, days: float) -> None:
    """Make a segment look as if it had been written last so long ago."""
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def segment(spool: Path, writer: SpoolWriter, number: int) -> Path:
    return spool / writer.writer / f"{number:08d}.spool"


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let more than an hour pass: longer than a segment stays open."""
    real, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])

    def pass_by() -> None:
        passed[0] += 4_000

    return pass_by


def in_segments(spool: Path, count: int, hours: Callable[[], None]) -> SpoolWriter:
    """Return a writer with one exchange in each of so many segments."""
    writer = SpoolWriter(spool, KEY)
    for number in range(1, count + 1):
        ExchangeScript(writer, number).whole(b"question %d" % number)
        hours()
        writer.rest()
    return writer


def test_old_segments_go_and_later_ones_are_read(tmp_path: Path, hours: Callable[[], None]) -> None:
    with in_segments(tmp_path, 3, hours) as writer:
        old = [1, 2]
        for number in old:
            aged(segment(tmp_path, writer, number), days=20)
        told = expire(tmp_path, 14 * DAY, dry_run=True)
        assert told.segments == len(old)
        assert segment(tmp_path, writer, old[0]).exists()
        gone = expire(tmp_path, 14 * DAY)
        assert gone == told
        assert gone.bytes > 0
        assert not any(segment(tmp_path, writer, n).exists() for n in old)
        assert expire(tmp_path, 14 * DAY).segments == 0
        (left,) = SpoolReader(tmp_path, KEY).take(Cursor()).records
        assert isinstance(left, Exchange)
        assert left.request.body == b"question 3"


def test_a_reader_goes_on_where_segments_vanished(
    tmp_path: Path, hours: Callable[[], None]
) -> None:
    with in_segments(tmp_path, 3, hours) as writer:
        reader = SpoolReader(tmp_path, KEY)
        first = reader.take(Cursor(), limit=1)
        for path in (tmp_path / writer.writer).glob("*.spool"):
            aged(path, days=20)
        expire(tmp_path, 14 * DAY)
        ExchangeScript(writer, 9).whole(b"later")
        for source in (reader, SpoolReader(tmp_path, KEY)):
            bodies = [
                r.request.body for r in source.take(first.cursor).records if isinstance(r, Exchange)
            ]
            assert bodies[-1] == b"later"


def test_the_open_segment_of_a_living_writer_stays(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole()
        aged(segment(tmp_path, writer, 1), days=20)
        assert expire(tmp_path, 14 * DAY).segments == 0
    aged(segment(tmp_path, writer, 1), days=20)
    assert expire(tmp_path, 14 * DAY).segments == 1
    assert not (tmp_path / writer.writer).exists()


def test_what_went_is_noted_once_and_again_after_a_crash(
    tmp_path: Path, hours: Callable[[], None]
) -> None:
    with in_segments(tmp_path, 1, hours) as writer:
        aged(segment(tmp_path, writer, 1), days=20)
        expire(tmp_path, 14 * DAY)
    with pytest.raises(ZeroDivisionError), noted(tmp_path):
        _ = 1 / 0
    with noted(tmp_path) as notes:
        assert [note["segments"] for note in notes] == [1]
    with noted(tmp_path) as notes:
        assert notes == []


def test_a_power_cut_leaves_no_deletion_untold(tmp_path: Path, hours: Callable[[], None]) -> None:
    home = tmp_path / "home"
    with in_segments(home, 2, hours) as writer:
        aged(segment(home, writer, 1), days=20)
        with Power(home) as power:
            assert expire(home, 14 * DAY).segments == 1
            sync_folder(home / writer.writer)  # as its writer does at the next segment
            power.cut()
    assert not segment(home, writer, 1).exists()
    with noted(home) as notes:
        assert [note["segments"] for note in notes] == [1]


def test_a_note_that_a_power_cut_tore_stops_no_sweep(
    tmp_path: Path, hours: Callable[[], None]
) -> None:
    with in_segments(tmp_path, 1, hours) as writer:
        (tmp_path / "expired.jsonl").write_bytes(b'{"segments": 3, "by\0\0\0')
        aged(segment(tmp_path, writer, 1), days=20)
        expire(tmp_path, 14 * DAY)
    with noted(tmp_path) as notes:
        assert [note["segments"] for note in notes] == [1]


def test_no_sweep_notes_what_is_being_taken(tmp_path: Path, hours: Callable[[], None]) -> None:
    with in_segments(tmp_path, 1, hours) as writer:
        aged(segment(tmp_path, writer, 1), days=20)
        with noted(tmp_path) as notes:
            assert notes == []
            assert expire(tmp_path, 14 * DAY).segments == 0
            assert segment(tmp_path, writer, 1).exists()
        assert expire(tmp_path, 14 * DAY).segments == 1
    with noted(tmp_path) as notes:
        assert [note["segments"] for note in notes] == [1]


def test_an_idle_writers_segment_is_closed_and_goes_once_governed(
    tmp_path: Path, hours: Callable[[], None]
) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole(b"the last question for days")
        hours()
        writer.rest()
        reader = SpoolReader(tmp_path, KEY)
        batch = reader.take(Cursor())
        assert len(batch.records) == 1
        reader.release(batch.cursor)
        assert not segment(tmp_path, writer, 1).exists()
        hours()
        writer.rest()  # nothing in it: no new file an hour
        assert [path.name for path in tmp_path.glob("*/*.spool")] == ["00000002.spool"]
        ExchangeScript(writer, 2).whole()
        assert len(reader.take(batch.cursor).records) == 1


def test_a_finished_segment_with_an_open_exchange_stays(
    tmp_path: Path, hours: Callable[[], None]
) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole()
        slow = ExchangeScript(writer, 2)
        slow.head()
        hours()
        writer.rest()
        reader = SpoolReader(tmp_path, KEY)
        batch = reader.take(Cursor())
        reader.release(batch.cursor)
        assert segment(tmp_path, writer, 1).exists()
        slow.answer()
        slow.end()
        assert len(reader.take(batch.cursor).records) == 1
