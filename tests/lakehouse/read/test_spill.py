"""A query that needs more memory than it may use goes on on disk, and leaves nothing there."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import lakehouse.read.queries
from lakehouse.lake import Lake
from lakehouse.read.spill import SpillFolder, sweep_spills
from lakehouse.storage.location import Location

HUNGRY = "SELECT count(*) AS n FROM (SELECT DISTINCT md5(i::VARCHAR) AS m FROM range(600000) r(i))"


def test_a_hungry_query_spills_and_tidies_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakehouse.read.queries, "_MEMORY", "48MiB")
    lake = Lake.open(str(tmp_path))
    assert lake.query(HUNGRY)["n"].to_pylist() == [600_000]
    left = [path for path in tmp_path.glob("_spill-*/**/*") if path.is_file()]
    assert left, "it did not spill"
    assert {path.stat().st_size for path in left} == {0}, "a mark of the owner, and no rows"


def test_memory_is_bounded_without_being_told(tmp_path: Path) -> None:
    found = Lake.open(str(tmp_path)).query("SELECT current_setting('memory_limit') AS n")
    assert found["n"].to_pylist() == ["640.0 MiB"]


SPILLING = (
    "import sys, time; from lakehouse.lake import Lake; "
    "lake = Lake.open(sys.argv[1]); lake.query('SELECT 1'); print('open', flush=True); time.sleep(60)"
)


def spilled(lake: Path) -> set[Path]:
    return set(lake.glob("_spill-*"))


def test_a_session_holds_its_folder_until_it_ends(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.query("SELECT 1")
    (mine,) = spilled(tmp_path)
    assert mine.stat().st_mode & 0o777 == 0o700
    lake.query_stored("SELECT 1")
    assert spilled(tmp_path) == {mine}, "a session for one query has gone with it"
    assert sweep_spills(lake.location) == 0
    lake.close()
    assert spilled(tmp_path) == set()


def test_what_a_killed_process_spilled_is_swept_and_what_a_living_one_has_is_not(
    tmp_path: Path,
) -> None:
    """The number of a process tells nothing: another container's is not seen, or is this one's too."""
    lake = Lake.open(str(tmp_path))
    other = subprocess.Popen(
        [sys.executable, "-c", SPILLING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    (theirs,) = spilled(tmp_path)
    (theirs / "rows.tmp").write_bytes(b"rows")
    os.utime(theirs, (1.7e9, 1.7e9))
    assert str(other.pid) not in theirs.name
    assert sweep_spills(lake.location) == 0
    assert (theirs / "rows.tmp").exists()
    other.kill()
    other.communicate()
    assert sweep_spills(lake.location) == 1
    assert spilled(tmp_path) == set()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path))
    swept: list[int] = []
    flock = fcntl.flock

    def swept_first(lock: int, how: int) -> None:
        if how == fcntl.LOCK_SH and not swept:
            swept.append(sweep_spills(location))
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", swept_first)
    mine = SpillFolder(location)
    assert swept == [1]
    assert spilled(tmp_path) == {mine.path}
    assert sweep_spills(location) == 0
    mine.release()
    mine.release()
    assert spilled(tmp_path) == set()


def test_where_nobody_may_write_queries_are_answered(tmp_path: Path) -> None:
    missing = SpillFolder(Location.parse(str(tmp_path / "gone")))
    assert missing.path.parent == tmp_path / "gone"
    missing.release()


def test_what_a_killed_process_copied_from_a_store_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = Location.parse("s3://bucket/lake")
    mine = SpillFolder(store).path
    assert mine.parent.stat().st_mode & 0o777 == 0o700
    assert SpillFolder(store).path.parent == mine.parent
    left = [f"headrace-spill-{ended.pid}-a7", f"headrace-compact-{ended.pid}-x1y2"]
    for folder in (mine, *(tmp_path / name for name in left), tmp_path / "headrace-compact-old"):
        folder.mkdir(parents=True)
        (folder / "rows.parquet").write_bytes(b"rows")
    assert sweep_spills(store) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "headrace-compact-old", mine.parent.name,
    ]  # fmt: skip
