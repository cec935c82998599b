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
