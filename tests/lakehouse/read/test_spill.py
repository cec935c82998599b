"""A query that needs more memory than it may use goes on on disk, and leaves nothing there."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import lakehouse.read.queries
from lakehouse.lake import Lake
from lakehouse.read.spill import spill_folder, sweep_spills
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


def test_what_a_killed_process_spilled_is_swept(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    mine = spill_folder(lake.location)
    theirs = mine.with_name(f"_spill-{dead.pid}-0")
    for folder in (mine, theirs):
        folder.mkdir(parents=True)
        (folder / "rows.tmp").write_bytes(b"rows")
    assert sweep_spills(lake.location) == 0
    os.kill(dead.pid, signal.SIGKILL)
    dead.wait()
    assert sweep_spills(lake.location) == 1
    assert mine.exists()
    assert not theirs.exists()


def test_what_a_container_spilled_that_was_killed_is_swept_by_the_next(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    left = tmp_path / f"_spill-{os.getpid()}-0"
    left.mkdir()
    (left / "rows.tmp").write_bytes(b"rows")
    os.utime(left, (1.7e9, 1.7e9))
    assert sweep_spills(lake.location) == 1
    assert not left.exists()


def test_two_containers_spill_into_two_folders(tmp_path: Path) -> None:
    """Their processes have the same numbers, and each begins to count anew."""
    first = (
        "import sys; from lakehouse.read.spill import *; from lakehouse.storage.location import *; "
        "print(spill_folder(Location.parse(sys.argv[1])).name.split('-')[2])"
    )
    command = [sys.executable, "-c", first, str(tmp_path)]
    assert subprocess.check_output(command) != subprocess.check_output(command)


def test_what_a_killed_process_copied_from_a_store_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = Location.parse("s3://bucket/lake")
    mine = spill_folder(store)
    assert mine.parent.stat().st_mode & 0o777 == 0o700
    assert spill_folder(store).parent == mine.parent
    left = [f"headrace-spill-{ended.pid}-a7", f"headrace-compact-{ended.pid}-x1y2"]
    for folder in (mine, *(tmp_path / name for name in left), tmp_path / "headrace-compact-old"):
        folder.mkdir(parents=True)
        (folder / "rows.parquet").write_bytes(b"rows")
    assert sweep_spills(store) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "headrace-compact-old", mine.parent.name,
    ]  # fmt: skip
