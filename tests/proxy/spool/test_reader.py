"""The reader: every exchange once along a cursor chain, and the same again from the same cursor."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.spool import Cursor, SpoolReader, SpoolWriter, scan
from proxy.spool.frames import UnknownKeyError
from tests.lakehouse.power import Power
from tests.proxy.spool.scripts import CLIENT, KEY, ExchangeScript, feedback, name
from trajectory.exchange import Exchange, ExchangeOutcome, Feedback


def ids(records: tuple[Exchange | Feedback, ...]) -> list[str]:
    return [r.exchange_id if isinstance(r, Exchange) else r.feedback_id for r in records]


def test_an_exchange_comes_back_as_it_was_written(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole(b'{"a":1}', b"data: x\n\n")
        (exchange,) = SpoolReader(tmp_path, KEY).take(Cursor()).records
    assert isinstance(exchange, Exchange)
    assert exchange.exchange_id == name(1).hex()
    assert exchange.client == CLIENT
    assert (exchange.route, exchange.mode, exchange.upstream) == ("r", "base_url", "http://u:1")
    assert exchange.request.headers == (("content-type", "application/json"),)
    assert exchange.request.body == b'{"a":1}'
    assert exchange.response is not None
    assert exchange.response.body == b"data: x\n\n"
    assert exchange.outcome is ExchangeOutcome.COMPLETE
    assert exchange.first_byte_at is not None
    assert exchange.first_byte_at.timestamp() == 1002.0
    assert exchange.position.offset == 36


def test_an_open_exchange_waits_and_is_then_taken_once(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        slow = ExchangeScript(writer, 1)
        slow.head()
        slow.request(b"first")
        ExchangeScript(writer, 2).whole()
        reader = SpoolReader(tmp_path, KEY)
        first = reader.take(Cursor())
        assert ids(first.records) == [name(2).hex()]
        slow.request(b" second")
        slow.answer()
        slow.end()
        for fresh in (False, True):
            source = SpoolReader(tmp_path, KEY) if fresh else reader
            second = source.take(Cursor.from_json(json.loads(json.dumps(first.cursor.to_json()))))
            (exchange,) = second.records
            assert isinstance(exchange, Exchange)
            assert exchange.request.body == b"first second"
        assert reader.take(second.cursor).records == ()


def test_a_dead_writers_open_exchange_is_a_lost_end_once(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, KEY)
    script = ExchangeScript(writer, 1)
    script.head()
    script.answer()
    script.response(b"part")
    reader = SpoolReader(tmp_path, KEY)
    assert reader.take(Cursor()).records == ()
    writer.close()
    batch = reader.take(Cursor())
    (exchange,) = batch.records
    assert isinstance(exchange, Exchange)
    assert exchange.outcome is ExchangeOutcome.LOST_END
    assert exchange.ended_at is None
    assert exchange.response is not None
    assert exchange.response.body == b"part"
    assert reader.take(batch.cursor).records == ()
    assert SpoolReader(tmp_path, KEY).take(batch.cursor).records == ()


@pytest.mark.parametrize("stretch", [1, 64, 1000])
def test_frames_longer_than_what_is_read_at_a_time_come_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        for number in range(1, 6):
            ExchangeScript(writer, number, at=1000.0 * number).whole(b"q" * 700 * number, b"a" * 90)
    whole = SpoolReader(tmp_path, KEY).take(Cursor())
    monkeypatch.setattr(scan, "_STRETCH_BYTES", stretch)
    assert SpoolReader(tmp_path, KEY).take(Cursor()) == whole
    assert len(whole.records) == 5


def test_until_gives_exactly_the_earlier_batch(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer, SpoolWriter(tmp_path, KEY) as other:
        for number in range(10):
            ExchangeScript(writer if number % 3 else other, number, at=1000.0 + number).whole()
        batch = SpoolReader(tmp_path, KEY).take(Cursor(), limit=4)
        for number in range(10, 20):
            ExchangeScript(writer, number, at=900.0 + number).whole()
        again = SpoolReader(tmp_path, KEY).take(Cursor(), until=batch.cursor)
        assert again.records == batch.records
        assert again.cursor.to_json() == batch.cursor.to_json()


def test_a_batch_ends_at_either_limit_and_says_so(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        for number in range(6):
            ExchangeScript(writer, number, at=1000.0 + number).whole(b"q" * 900, b"a" * 100)
        reader = SpoolReader(tmp_path, KEY)
        by_count = reader.take(Cursor(), limit=4)
        by_size = reader.take(Cursor(), max_bytes=1_500)
        rest = reader.take(by_count.cursor, limit=4)
    assert [len(batch.records) for batch in (by_count, by_size, rest)] == [4, 2, 2]
    assert [batch.is_full for batch in (by_count, by_size, rest)] == [True, True, False]


def test_release_keeps_what_an_open_exchange_needs(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY, segment_bytes=200) as writer:
        ExchangeScript(writer, 1).whole()
        slow = ExchangeScript(writer, 2)
        slow.head()
        for number in range(3, 8):
            ExchangeScript(writer, number).whole()
        reader = SpoolReader(tmp_path, KEY)
        batch = reader.take(Cursor())
        assert reader.lag(batch.cursor).records == 0
        before = len(list((tmp_path / writer.writer).glob("*.spool")))
        assert reader.release(batch.cursor) > 0
        after = len(list((tmp_path / writer.writer).glob("*.spool")))
        assert 0 < after < before
        slow.end()
        last = SpoolReader(tmp_path, KEY).take(batch.cursor)
        assert ids(last.records) == [name(2).hex()]
        assert reader.release(last.cursor) > 0
    reader = SpoolReader(tmp_path, KEY)
    final = reader.take(last.cursor)
    assert final.records == ()
    assert final.cursor.marks[writer.writer].ended
    reader.release(final.cursor)
    assert not (tmp_path / writer.writer).exists()
    assert reader.take(final.cursor).cursor == Cursor()


def test_a_released_writer_does_not_come_back_with_the_power_and_is_not_taken_again(
    tmp_path: Path,
) -> None:
    """Once its folder is gone no cursor names it any more."""
    spool = tmp_path / "spool"
    with SpoolWriter(spool, KEY) as writer:
        ExchangeScript(writer, 1).whole(b"question", b"answer")
    with Power(spool) as power:
        reader = SpoolReader(spool, KEY)
        first = reader.take(Cursor())
        reader.release(first.cursor)
        second = reader.take(first.cursor)
    power.cut()
    assert ids(first.records) == ids((*first.records, *second.records))
    assert SpoolReader(spool, KEY).take(second.cursor).records == ()


def test_lag_counts_what_was_not_taken(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY, segment_bytes=500) as writer:
        for number in range(6):
            ExchangeScript(writer, number).whole()
        feedback(writer, 7)
        reader = SpoolReader(tmp_path, KEY)
        assert reader.lag(Cursor()).records == 7
        batch = reader.take(Cursor(), limit=3)
        assert reader.lag(batch.cursor).records == 4
        assert 0 < reader.lag(batch.cursor).bytes < reader.lag(Cursor()).bytes


def test_another_key_is_an_error_and_skips_nothing(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole()
        with pytest.raises(UnknownKeyError, match="restore the master key"):
            SpoolReader(tmp_path, b"x" * 32).take(Cursor())
        rotated = SpoolReader(tmp_path, b"x" * 32, older_keys=(KEY,))
        assert len(rotated.take(Cursor()).records) == 1


def test_content_is_sealed_on_disk(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole(b"jane@example.com", b"4111111111111111")
        raw = (tmp_path / writer.writer / "00000001.spool").read_bytes()
    assert b"jane" not in raw
    assert b"4111" not in raw
    assert b"tenant" not in raw


def test_damage_is_skipped_and_counted(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, KEY)
    for number in range(3):
        ExchangeScript(writer, number).whole(b"a" * 50, b"b" * 50)
    directory = tmp_path / writer.writer
    writer.close()
    path = directory / "00000001.spool"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 20] = b"\x00" * 20
    path.write_bytes(data)
    batch = SpoolReader(tmp_path, KEY).take(Cursor())
    assert batch.damaged
    outcomes = [r.outcome for r in batch.records if isinstance(r, Exchange)]
    assert outcomes.count(ExchangeOutcome.COMPLETE) == 2
    assert outcomes.count(ExchangeOutcome.LOST_END) == 1
    assert SpoolReader(tmp_path, KEY).take(batch.cursor).records == ()


def test_what_was_being_written_when_a_writer_was_killed_is_no_damage(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, KEY)
    ExchangeScript(writer, 0).whole(b"a" * 50, b"b" * 50)
    path = tmp_path / writer.writer / "00000001.spool"
    whole = path.read_bytes()
    script = ExchangeScript(writer, 1)
    script.head()
    script.request(b"c" * 50)
    rest = path.read_bytes()[len(whole) :]
    writer.close()
    for kept in range(len(rest)):
        path.write_bytes(whole + rest[:kept])
        batch = SpoolReader(tmp_path, KEY).take(Cursor())
        assert not batch.damaged, kept
        outcomes = [r.outcome for r in batch.records if isinstance(r, Exchange)]
        assert outcomes[0] is ExchangeOutcome.COMPLETE
        assert SpoolReader(tmp_path, KEY).take(batch.cursor).records == ()
    path.write_bytes(whole + rest[:-1] + bytes(40))
    assert SpoolReader(tmp_path, KEY).take(Cursor()).damaged


STEPS = ("head", "request", "answer", "response", "end")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    order=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=60),
    limits=st.lists(st.integers(1, 4), min_size=1, max_size=40),
    takes=st.sets(st.integers(0, 59), max_size=6),
    segment_bytes=st.sampled_from([64, 400, 10_000]),
    restart=st.booleans(),
)
def test_any_interleaving_gives_each_exchange_once(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[tuple[int, int]],
    limits: list[int],
    takes: set[int],
    segment_bytes: int,
    restart: bool,
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    writers = [SpoolWriter(spool, KEY, segment_bytes=segment_bytes) for _ in range(2)]
    scripts: dict[int, tuple[ExchangeScript, int]] = {}
    expected: list[str] = []
    reader = SpoolReader(spool, KEY)
    cursor = Cursor()
    seen: list[str] = []
    chain: list[tuple[Cursor, Cursor, tuple[str, ...]]] = []

    def take(limit: int) -> int:
        nonlocal reader, cursor
        if restart:
            reader = SpoolReader(spool, KEY)
        batch = reader.take(cursor, limit=limit)
        assert not batch.damaged
        chain.append((cursor, batch.cursor, tuple(ids(batch.records))))
        seen.extend(ids(batch.records))
        cursor = batch.cursor
        return len(batch.records)

    number = 0
    for step, (slot, which) in enumerate(order):
        key = slot * 2 + which
        if key not in scripts:
            number += 1
            scripts[key] = (ExchangeScript(writers[which], number, at=1000.0 + number), 0)
        script, done = scripts[key]
        action = STEPS[done]
        if action in ("request", "response"):
            getattr(script, action)(b"x" * script.number)
        else:
            getattr(script, action)()
        if action == "head":
            expected.append(name(script.number).hex())
        if done + 1 == len(STEPS):
            del scripts[key]
        else:
            scripts[key] = (script, done + 1)
        if step in takes:
            take(limits[step % len(limits)])
    for writer in writers:
        writer.close()
    for limit in limits * 100:
        if not take(limit) and all(mark.ended for mark in cursor.marks.values()):
            break
    assert sorted(seen) == sorted(expected)
    for start, stop, names in chain:
        replay = SpoolReader(spool, KEY).take(start, until=stop)
        assert tuple(ids(replay.records)) == names


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 700))
def test_arbitrary_bytes_never_crash_the_reader(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(spool, KEY)
    ExchangeScript(writer, 1).whole()
    writer.close()
    path = spool / writer.writer / "00000001.spool"
    data = path.read_bytes()
    path.write_bytes(data[:at] + junk + data[at + len(junk) :])
    if data[:36] != path.read_bytes()[:36] and path.read_bytes()[:24] == data[:24]:
        return
    batch = SpoolReader(spool, KEY).take(Cursor())
    assert SpoolReader(spool, KEY).take(batch.cursor).records == ()


def test_what_others_put_beside_segments_stands_in_nobodys_way(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        ExchangeScript(writer, 1).whole()
        folder = tmp_path / writer.writer
        os.mkfifo(folder / "00000002.spool")
        (folder / "00000003.spool").mkdir()
        (folder / "00000004.spool").symlink_to("/dev/zero")
        (folder / ".nfs0001").touch()
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "00000001.spool")
    (tmp_path / "notes.txt").touch()
    reader, cursor = SpoolReader(tmp_path, KEY), Cursor()
    batch = reader.take(cursor)
    assert len(batch.records) == 1
    assert reader.lag(batch.cursor).records == 0
    for _ in range(2):
        again = reader.take(batch.cursor)
        assert (again.records, again.damaged) == ((), ())
        reader.release(again.cursor)
    assert not (folder / "00000001.spool").exists()
