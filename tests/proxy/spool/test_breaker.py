"""The breaker: a disk that refuses or dawdles is left alone for a while, counted, and tried again."""

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.spool import Cursor, SpoolReader, SpoolUnavailableError, SpoolWriter
from proxy.spool.breaker import Breaker
from proxy.spool.states import SpoolState
from tests.proxy.spool.scripts import KEY, ExchangeScript, open_segment
from trajectory.exchange import Exchange, ExchangeOutcome


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpoolWriter]:
    # The files that stand in for a disk cannot be synced.
    monkeypatch.setattr(os, "fdatasync", lambda file: None)
    with SpoolWriter(tmp_path / "spool", KEY, slow_seconds=0.1) as writer:
        yield writer


def stand_in(spool: Path, path: str, flags: int = os.O_WRONLY) -> None:
    """Let the open segment be another file from now on."""
    other = os.open(path, flags | os.O_CLOEXEC)
    os.dup2(other, open_segment(spool))
    os.close(other)


@pytest.mark.parametrize(("path", "name"), [("/dev/full", "ENOSPC"), ("/proc/self/mem", "EIO")])
def test_an_error_of_the_disk_trips_it(
    writer: SpoolWriter, tmp_path: Path, path: str, name: str
) -> None:
    ExchangeScript(writer, 1).whole()
    stand_in(tmp_path / "spool", path)
    with pytest.raises(SpoolUnavailableError):
        ExchangeScript(writer, 2).head()
    assert writer.state is SpoolState.FAILING
    assert writer.alarm
    assert writer.breaker.failures[name] == 1
    with pytest.raises(SpoolUnavailableError, match="a moment ago"):
        ExchangeScript(writer, 3).head()
    writer.breaker.mend()
    ExchangeScript(writer, 4).whole()
    assert writer.state is SpoolState.OPEN
    records = SpoolReader(tmp_path / "spool", KEY).take(Cursor()).records
    assert [int(r.exchange_id, 16) for r in records if isinstance(r, Exchange)] == [1, 4]


def test_a_disk_that_goes_on_refusing_is_asked_ever_less(
    writer: SpoolWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pauses = []
    with monkeypatch.context() as full:
        full.setattr(os, "write", is_full)
        for number in range(4):
            with pytest.raises(SpoolUnavailableError):
                ExchangeScript(writer, number).head()
            begin = now[0]
            while writer.state is SpoolState.FAILING:
                now[0] += 0.5
            pauses.append(now[0] - begin)
    assert pauses == [1, 2, 4, 8]
    ExchangeScript(writer, 200).whole()
    assert not writer.breaker.tripped


def test_a_failed_sync_ends_the_segment(
    writer: SpoolWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ExchangeScript(writer, 1).whole()
    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(SpoolUnavailableError, match="sync failed"):
        asyncio.run(writer.synced())
    monkeypatch.undo()
    assert writer.breaker.failures["EIO"] >= 1
    writer.breaker.mend()
    ExchangeScript(writer, 2).whole()
    assert sorted(path.name for path in tmp_path.glob("spool/*/*.spool")) == [
        "00000001.spool", "00000002.spool",
    ]  # fmt: skip


def is_full(_file: int, _data: bytes) -> int:
    """Stand for a disk without room."""
    raise OSError(errno.ENOSPC, "No space left on device")


def refuse(_: int) -> None:
    """Stand for a disk that cannot sync."""
    raise OSError(errno.EIO, "Input/output error")


def test_a_slow_write_trips_it(writer: SpoolWriter, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    stand_in(tmp_path / "spool", str(pipe))
    filler = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(filler, b"x" * 65536)
    os.close(filler)
    thread = threading.Timer(0.3, lambda: os.read(reading, 1 << 20))
    thread.start()
    ExchangeScript(writer, 1).head()
    thread.join()
    assert writer.breaker.failures["slow"] == 1
    assert writer.state is SpoolState.FAILING
    os.close(reading)


def test_a_slow_sync_is_not_waited_for(
    writer: SpoolWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, synced = threading.Event(), threading.Event()
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (slow.wait(60), real(file), synced.set()))
    ExchangeScript(writer, 1).whole()
    with pytest.raises(SpoolUnavailableError, match="takes longer"):
        asyncio.run(writer.synced())
    assert not synced.is_set()
    assert writer.breaker.failures == {"slow": 1}
    slow.set()


def test_each_failure_in_a_row_doubles_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    breaker = Breaker(1.0)
    pauses = []
    for _ in range(7):
        breaker.trip("EIO")
        begin = now[0]
        while breaker.open:
            now[0] += 0.5
        pauses.append(now[0] - begin)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    breaker.mend()
    breaker.trip("EIO")
    now[0] += 1
    assert not breaker.open


def test_what_waits_in_a_batch_comes_in_order(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        path = tmp_path / writer.writer / "00000001.spool"
        before = path.stat().st_size
        for number in range(1, 4):
            ExchangeScript(writer, number, batch=True).whole()
        assert path.stat().st_size == before
        ExchangeScript(writer, 4).whole()
        assert path.stat().st_size > before
        ExchangeScript(writer, 5, batch=True).whole()
    records = SpoolReader(tmp_path, KEY).take(Cursor()).records
    found = [(int(r.exchange_id, 16), r.outcome) for r in records if isinstance(r, Exchange)]
    assert found == [(number, ExchangeOutcome.COMPLETE) for number in range(1, 6)]


def test_a_batch_that_the_disk_refuses_leaves_the_segment_sound(
    writer: SpoolWriter, tmp_path: Path
) -> None:
    ExchangeScript(writer, 1).whole()
    ExchangeScript(writer, 2, batch=True).whole()
    stand_in(tmp_path / "spool", "/dev/full")
    with pytest.raises(SpoolUnavailableError):
        writer.flush()
    writer.breaker.mend()
    ExchangeScript(writer, 3).whole()
    batch = SpoolReader(tmp_path / "spool", KEY).take(Cursor())
    assert [int(r.exchange_id, 16) for r in batch.records if isinstance(r, Exchange)] == [1, 3]
    assert not batch.damaged
