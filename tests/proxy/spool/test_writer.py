"""The writer: what it acknowledged outlives it; a disk that refuses is said and counted."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.spool import Cursor, SpoolReader, SpoolUnavailableError, SpoolWriter
from proxy.spool.states import Bounds, SpoolState
from tests.lakehouse.power import Power
from tests.proxy.spool.scripts import KEY, ExchangeScript
from trajectory.exchange import Exchange, ExchangeOutcome

CHILD = """
import os, sys
from pathlib import Path
from proxy.spool import SpoolWriter
from tests.proxy.spool.scripts import KEY, ExchangeScript
writer = SpoolWriter(Path(sys.argv[1]), KEY, segment_bytes=20_000)
number = 0
while True:
    number += 1
    script = ExchangeScript(writer, number)
    script.whole(b"q" * 300, b"r" * 700)
    os.write(1, b"%d\\n" % number)
    unfinished = ExchangeScript(writer, 10**9 + number)
    unfinished.head()
    unfinished.answer()
    unfinished.response(b"partial")
    os.write(1, b"%d\\n" % (10**9 + number))
"""


@pytest.mark.parametrize("after", [0.05, 0.2, 0.4])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, after: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    try:
        child.wait(after)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
    acknowledged = {int(line) for line in (first + child.stdout.read()).split()}
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    reader, cursor, found = SpoolReader(tmp_path, KEY), Cursor(), {}
    while (batch := reader.take(cursor, limit=500)).cursor != cursor:
        cursor = batch.cursor
        for record in batch.records:
            assert isinstance(record, Exchange)
            found[int(record.exchange_id, 16)] = record
    assert acknowledged <= set(found)
    for number in acknowledged:
        lost = number > 10**9
        assert found[number].outcome is (
            ExchangeOutcome.LOST_END if lost else ExchangeOutcome.COMPLETE
        )
        response = found[number].response
        assert response is not None
        assert response.body == (b"partial" if lost else b"r" * 700)


def test_a_power_cut_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with Power(home) as power, SpoolWriter(home / "spool", KEY, segment_bytes=20_000) as writer:
        for number in range(40):  # several segments
            ExchangeScript(writer, number).whole(b"q" * 300, b"r" * 700)
        asyncio.run(writer.synced())
        power.cut()
    batch = SpoolReader(home / "spool", KEY).take(Cursor(), limit=500)
    found = {int(one.exchange_id, 16) for one in batch.records if isinstance(one, Exchange)}
    assert found == {*range(40)}


def test_a_full_spool_says_so_and_then_refuses(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY, bounds=Bounds(16_000, shed_at=0.5)) as writer:
        number = 0
        while writer.bytes_on_disk < 16_000:
            near = writer.bytes_on_disk >= 8_000
            assert writer.state is (SpoolState.SHEDDING if near else SpoolState.OPEN)
            assert writer.alarm is (writer.fill >= 0.7)
            number += 1
            ExchangeScript(writer, number).whole()
        assert writer.state is SpoolState.FULL
        script = ExchangeScript(writer, 10**6)
        script.head()
        script.request(b"x" * 4_000)
        with pytest.raises(SpoolUnavailableError, match="headrace govern"):
            script.request(b"x" * 10)


def test_a_refusing_disk_loses_no_earlier_record(tmp_path: Path) -> None:
    script = """
import resource, signal, sys, time
from pathlib import Path
from proxy.spool import SpoolUnavailableError, SpoolWriter
from proxy.spool.states import Bounds, SpoolState
from tests.lakehouse.power import Power
from tests.proxy.spool.scripts import KEY, ExchangeScript
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = SpoolWriter(Path(sys.argv[1]), KEY)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
number = 0
try:
    while True:
        number += 1
        ExchangeScript(writer, number).whole()
except SpoolUnavailableError:
    pass
assert writer.state is SpoolState.FAILING
time.sleep(1.1)
ExchangeScript(writer, 10_000).whole()
assert writer.failures == 1
writer.close()
print(number)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        check=True,
        text=True,
    )
    batch = SpoolReader(tmp_path, KEY).take(Cursor())
    numbers = {int(r.exchange_id, 16): r for r in batch.records if isinstance(r, Exchange)}
    assert set(range(1, int(done.stdout))) | {10_000} <= set(numbers)
    assert numbers[10_000].outcome is ExchangeOutcome.COMPLETE
    assert not batch.damaged


def test_synced_comes_back(tmp_path: Path) -> None:
    async def main(writer: SpoolWriter) -> None:
        ExchangeScript(writer, 1).whole()
        await asyncio.wait_for(writer.synced(), 5)

    with SpoolWriter(tmp_path, KEY) as writer:
        asyncio.run(main(writer))


def test_files_are_for_the_owner_only(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        directory = tmp_path / "spool" / writer.writer
        assert directory.stat().st_mode & 0o777 == 0o700
        assert (directory / "00000001.spool").stat().st_mode & 0o777 == 0o600
    assert resource.getrlimit(resource.RLIMIT_FSIZE)


def test_a_segment_that_was_open_long_enough_is_closed_and_goes_once_governed(
    tmp_path: Path,
) -> None:
    with SpoolWriter(tmp_path, KEY, segment_seconds=0.01) as writer:
        ExchangeScript(writer, 1).whole(b"first question", b"first answer")
        deadline = time.monotonic() + 20
        number = 1
        while len([*tmp_path.glob("*/*.spool")]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            number += 1
            ExchangeScript(writer, number).whole()
        reader = SpoolReader(tmp_path, KEY)
        batch = reader.take(Cursor())
        assert len(batch.records) == number
        reader.release(batch.cursor)
        assert "00000001.spool" not in [path.name for path in tmp_path.glob("*/*.spool")]


def test_a_writer_whose_folder_is_lost_begins_another(tmp_path: Path) -> None:
    spool = tmp_path / "spool"

    def taken() -> list[int]:
        records = SpoolReader(spool, KEY).take(Cursor()).records
        return [int(r.exchange_id, 16) for r in records if isinstance(r, Exchange)]

    with SpoolWriter(spool, KEY, segment_bytes=400) as writer:
        ExchangeScript(writer, 1).whole(b"q" * 400)
        folder = spool / writer.writer
        segments = len(list(folder.glob("*.spool")))
        (folder / f"{segments + 1:08}.spool").symlink_to("/dev/full")
        ExchangeScript(writer, 2).whole(b"q" * 400)
        assert taken() == [1, 2]
        shutil.rmtree(spool)
        ExchangeScript(writer, 3).whole(b"q" * 400)
        ExchangeScript(writer, 4).whole(b"q" * 400)
        assert taken()[-1] == 4


def test_what_is_written_to_a_removed_segment_is_not_for_long(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        ExchangeScript(writer, 1).whole()
        shutil.rmtree(tmp_path / "spool")
        deadline, number = time.monotonic() + 30, 1
        while not (tmp_path / "spool").exists():
            assert time.monotonic() < deadline
            number += 1
            ExchangeScript(writer, number).whole()
            time.sleep(0.05)
        ExchangeScript(writer, number + 1).whole()
    records = SpoolReader(tmp_path / "spool", KEY).take(Cursor()).records
    assert [int(r.exchange_id, 16) for r in records if isinstance(r, Exchange)][-1] == number + 1
