"""The checkpoint survives a crash at any point and refuses what is damaged."""

import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from headrace.govern.checkpoint import (
    NO_MEMORY,
    Checkpoint,
    CheckpointStore,
    installation_name,
)
from headrace.govern.packed_json import packed_json
from lakehouse.lake import Lake
from trajectory.errors import ConfigurationError, IntegrityError, RetryableError

OPEN = packed_json({"open": []})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(str(tmp_path / "lake"))


def store(folder: Path, lake: Lake) -> CheckpointStore:
    folder.mkdir(exist_ok=True)
    made = CheckpointStore(folder)
    made.recover(lake)
    return made


def carry(kept: CheckpointStore, batch: int, remembered: bytes | None = None) -> None:
    kept.announce(batch, {"w": batch})
    kept.complete(batch, remembered)


def test_a_fresh_store_starts_at_batch_zero_with_a_name_of_its_own(
    tmp_path: Path, lake: Lake
) -> None:
    first, second = store(tmp_path / "a", lake).load(), store(tmp_path / "b", lake).load()
    assert first.batch == second.batch == 0
    assert first.application != second.application


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path).load() == Checkpoint("", 0, {})
    assert not list(tmp_path.iterdir())


def test_a_reader_sees_what_the_governor_writes(tmp_path: Path, lake: Lake) -> None:
    writer, reader = store(tmp_path, lake), CheckpointStore(tmp_path)
    carry(writer, 1)
    assert reader.load() == writer.load()
    carry(writer, 2, OPEN)
    writer.announce(3, {"w": 3})
    assert reader.load() == writer.load()


def test_an_announced_batch_stands_beside_the_last_one_that_was_done(
    tmp_path: Path, lake: Lake
) -> None:
    kept = store(tmp_path, lake)
    kept.announce(1, {"w": 1})
    announced = CheckpointStore(tmp_path).load()
    assert (announced.batch, announced.cursor, announced.announced) == (0, {}, {"w": 1})
    kept.complete(1, OPEN)
    done = CheckpointStore(tmp_path).load()
    assert done == Checkpoint(announced.application, 1, {"w": 1})
    assert kept.remembered() == OPEN


@pytest.mark.parametrize("data", [b"", b"{", b"no database" * 99])
def test_a_damaged_file_is_refused_with_a_remedy(tmp_path: Path, lake: Lake, data: bytes) -> None:
    (tmp_path / "checkpoint.sqlite").write_bytes(data)
    for act in (CheckpointStore(tmp_path).load, lambda: store(tmp_path, lake)):
        with pytest.raises(IntegrityError, match="Move it away"):
            act()


def test_a_file_of_a_later_version_is_refused(tmp_path: Path, lake: Lake) -> None:
    store(tmp_path, lake)
    with closing(sqlite3.connect(tmp_path / "checkpoint.sqlite")) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(IntegrityError, match="of another version"):
        CheckpointStore(tmp_path).load()


def test_files_are_for_the_owner_alone(tmp_path: Path, lake: Lake) -> None:
    kept = store(tmp_path / "state", lake)
    kept.announce(1, {})
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
    assert modes == {0o600}


def test_batches_after_the_written_conversations_are_remembered_by_their_cursors(
    tmp_path: Path, lake: Lake
) -> None:
    kept = store(tmp_path, lake)
    carry(kept, 1)
    carry(kept, 2)
    done = CheckpointStore(tmp_path).load()
    assert (done.batch, done.trail) == (2, ({}, {"w": 1}, {"w": 2}))
    assert done.hold == {}
    assert kept.remembered() == NO_MEMORY
    kept.complete(2, OPEN)
    whole = CheckpointStore(tmp_path).load()
    assert (whole.batch, whole.cursor, whole.trail) == (2, {"w": 2}, ())
    assert whole.hold == {"w": 2}


@contextmanager
def no_room() -> Iterator[None]:
    """Let no file of this process grow beyond 64 KiB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_be_written_loses_nothing(tmp_path: Path, lake: Lake) -> None:
    kept = store(tmp_path, lake)
    carry(kept, 1)
    before = kept.load()
    with no_room(), pytest.raises(RetryableError, match="check disk space"):
        kept.complete(1, b"x" * 100_000)
    assert kept.load() == before == CheckpointStore(tmp_path).load()


def test_those_who_ask_first_at_once_get_the_same_name(tmp_path: Path) -> None:
    meet = Barrier(4)

    def name(number: int) -> str:
        meet.wait()
        return installation_name(tmp_path / f"{number}.id")

    with ThreadPoolExecutor(4) as threads:
        for number in range(20):
            (found,) = set(threads.map(name, [number] * 4))
            assert (tmp_path / f"{number}.id").read_text() == found


def test_an_empty_name_is_none(tmp_path: Path) -> None:
    path = tmp_path / "installation.id"
    path.touch()
    assert installation_name(path) == path.read_text() != ""


def test_what_is_no_name_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "installation.id"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="holds no name of an installation"):
        installation_name(path)
    assert path.read_bytes() == b"\xff\xfe\x00"
