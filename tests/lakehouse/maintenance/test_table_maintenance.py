"""Maintenance changes files, never rows; it works beside writers and survives being killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from lakehouse.maintenance.rewrite import OvertakenError, list_files, rewrite
from lakehouse.maintenance.table_maintenance import (
    checkpoint,
    compact,
    maintain,
    vacuum,
    vacuum_table,
)
from lakehouse.schema.tables import BATCH_TABLES, TABLES
from tests.lakehouse import make
from trajectory.errors import ConfigurationError


def filled(path: Path, trajectories: int = 6) -> Lake:
    lake = Lake.open(str(path))
    for number in range(trajectories):
        name = f"t{(number * 7) % trajectories}"
        lake.append(make.batch(name, steps=3), app_id="a", version=number)
    return lake


def contents(lake: Lake) -> dict[str, list[str]]:
    return {
        name: sorted(map(str, lake.query(f"SELECT * FROM {name}").to_pylist()))  # noqa: S608
        for name in BATCH_TABLES
    }


def test_compaction_keeps_every_row_and_sorts(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    before = contents(lake)
    reports = {report.table: report for report in compact(lake)}
    assert (reports["steps"].files_before, reports["steps"].files_after) == (6, 1)
    assert contents(lake) == before
    (file,) = lake.snapshot_of("steps")
    table = pq.read_table(file, partitioning=None)
    keys = list(
        zip(table["trajectory_id"].to_pylist(), table["step_index"].to_pylist(), strict=True)
    )
    assert keys == sorted(keys)


def test_other_readers_see_the_same_rows_after_compaction(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    compact(lake)
    for name in BATCH_TABLES:
        handle = lake.fresh(name)
        assert handle.count() == lake.query(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py()  # noqa: S608
        table = handle.to_pyarrow_table()
        assert set(table.column_names) == set(TABLES[name].arrow.names)
    found = lake.fresh("steps").to_pyarrow_table(filters=[("trajectory_id", "=", "t3")])
    assert found.num_rows == 3


def test_compaction_leaves_no_content_in_the_log_and_skips_files_by_statistics(
    tmp_path: Path,
) -> None:
    lake = filled(tmp_path)
    compact(lake)
    for name, spec in TABLES.items():
        for log in (tmp_path / name / "_delta_log").glob("*.json"):
            for line in log.read_text().splitlines():
                stats = json.loads(json.loads(line).get("add", {}).get("stats") or "{}")
                assert set(stats.get("minValues", {})) <= set(spec.statistics_columns)
    pruned = lake.fresh("steps").file_uris(file_pruning_predicate=[("trajectory_id", "=", "zzz")])
    assert pruned == []


def test_appends_and_versions_go_on_after_compaction(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    compact(lake)
    assert lake.committed_version("a") == 5
    lake.append(make.batch("new"), app_id="a", version=6)
    assert lake.append(make.batch("new"), app_id="a", version=6).repeated
    again = Lake.open(str(tmp_path))
    assert again.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [20]
    lake.table("steps").delete("trajectory_id = 't3'")
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [17]


def test_strange_tenant_names_survive_compaction(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    strange = "a b/ü='%20"
    for number in range(2):
        whole = make.batch(f"t{number}")
        steps = tuple(replace(one, tenant_id=strange) for one in whole.steps)
        lake.append(replace(whole, steps=steps), app_id="a", version=number)
    compact(lake)
    assert len(lake.snapshot_of("steps")) == 1
    assert lake.query("SELECT DISTINCT tenant_id FROM steps")["tenant_id"].to_pylist() == [strange]
    assert lake.fresh("steps").to_pyarrow_table()["tenant_id"].to_pylist() == [strange] * 4


def test_an_append_in_between_is_kept(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    stale = lake.fresh("steps")
    lake.append(make.batch("late"), app_id="a", version=6)
    rewrite(stale, TABLES["steps"], lake.location, list_files(stale))
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [20]


@pytest.mark.parametrize("is_off_the_disk", [False, True])
def test_a_rewrite_that_was_overtaken_changes_nothing(
    tmp_path: Path, is_off_the_disk: bool
) -> None:
    lake = filled(tmp_path)
    stale = lake.fresh("steps")
    lake.table("steps").delete("trajectory_id = 't3'")
    if is_off_the_disk:  # as an erasure takes what it removed
        left = {file.relative for file in list_files(lake.fresh("steps"))}
        for file in list_files(stale):
            if file.relative not in left:
                (tmp_path / "steps" / file.relative).unlink()
    before = sorted((tmp_path / "steps").rglob("*.parquet"))
    with pytest.raises(OvertakenError):
        rewrite(stale, TABLES["steps"], lake.location, list_files(stale))
    assert sorted((tmp_path / "steps").rglob("*.parquet")) == before
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [15]


def test_a_checkpoint_that_cannot_be_written_breaks_no_compaction(tmp_path: Path) -> None:
    lake = filled(tmp_path, 1)
    while (number := lake.versions()["steps"]) < 98:
        lake.append_rows("steps", make.batch(f"t{number}", steps=1).steps)
    before = contents(lake)
    name = f"{99:020d}.checkpoint.parquet"
    (tmp_path / "steps" / "_delta_log" / name / "taken").mkdir(parents=True)
    (report,) = compact(lake, tables=["steps"])
    assert (report.partitions, report.files_after) == (1, 1)
    assert contents(Lake.open(str(tmp_path))) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeltaError("the hook failed")])
def test_what_interrupts_compaction_behind_its_commit_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    lake = filled(tmp_path)
    before = contents(lake)
    commit = DeltaTable.create_write_transaction

    def interrupted(*args: Any, **options: Any) -> None:
        commit(*args, **options)
        raise error

    monkeypatch.setattr(DeltaTable, "create_write_transaction", interrupted)
    with suppress(KeyboardInterrupt):
        compact(lake, tables=["steps"])
    monkeypatch.undo()
    again = Lake.open(str(tmp_path))
    assert len(again.snapshot_of("steps")) == 1
    assert contents(again) == before
    compact(again)
    vacuum_table(again, "steps", hours=0)
    assert contents(again) == before
    assert erase_subject(again, "acme", ["nobody"]).rows == {}


def test_an_interrupt_before_the_commit_leaves_what_the_vacuum_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(tmp_path)
    before = contents(lake)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DeltaTable, "create_write_transaction", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact(lake, tables=["steps"])
    monkeypatch.undo()
    assert contents(lake) == before
    vacuum_table(lake, "steps", hours=0)
    assert len(list((tmp_path / "steps").rglob("*.parquet"))) == len(lake.snapshot_of("steps")) == 6


_KILLED = """
import os, signal, sys
from deltalake import DeltaTable
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact

commit = DeltaTable.create_write_transaction

def killed(*args, **options):
    if sys.argv[2] == "behind":
        commit(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

lake = Lake.open(sys.argv[1])
DeltaTable.create_write_transaction = killed
compact(lake, tables=["steps"])
"""
"""Compacts, and is killed before the commit or behind it; the new file is in its place by then."""


@pytest.mark.parametrize("moment", ["before", "behind"])
@pytest.mark.parametrize("then", ["vacuum", "erase"])
def test_a_compaction_killed_at_its_commit_loses_and_doubles_nothing_and_leaves_nothing_for_good(
    tmp_path: Path, moment: str, then: str
) -> None:
    lake = filled(tmp_path)
    lake.append_rows("governance", [replace(make.batch("t1").governance[0], subjects=("p1",))])
    before = contents(lake)
    root = Path(__file__).parents[3]
    script = [sys.executable, "-c", _KILLED, str(tmp_path), moment]
    assert subprocess.run(script, cwd=root, check=False).returncode == -signal.SIGKILL
    lake = Lake.open(str(tmp_path))
    assert contents(lake) == before
    files = {*(tmp_path / "steps").rglob("*.parquet")}
    assert len(files) == 7
    assert len(lake.snapshot_of("steps")) == (6 if moment == "before" else 1)
    if then == "vacuum":
        (made,) = (path for path in files if path.name.startswith("part-sorted-"))
        days_ago = time.time() - 8 * 86400
        os.utime(made, (days_ago, days_ago))
        vacuum_table(lake, "steps", hours=168)
        assert made.exists() == (moment == "behind")
        compact(lake)
        assert contents(lake) == before
    else:
        assert erase_subject(lake, "acme", ["p1"]).rows["steps"] == 3
        left = {path.name for path in (tmp_path / "steps").rglob("part-*.parquet")}
        assert left == {Path(path).name for path in lake.snapshot_of("steps")}


def test_compaction_beside_a_writer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    lake, other = Lake.open(str(tmp_path)), Lake.open(str(tmp_path))
    stop = threading.Event()

    def keep_compacting() -> None:
        while not stop.is_set():
            compact(other, tables=["steps", "exchanges"])

    helper = threading.Thread(target=keep_compacting)
    helper.start()
    try:
        for number in range(12):
            lake.append(make.batch(f"t{number}", steps=1), app_id="a", version=number)
    finally:
        stop.set()
        helper.join()
    found = lake.query("SELECT count(*) AS n, count(DISTINCT step_id) AS d FROM steps").to_pylist()
    assert found == [{"n": 12, "d": 12}]


def test_vacuum_keeps_what_is_active_and_refuses_unsafe_horizons(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    compact(lake)
    assert len(vacuum(lake, hours=0, dry_run=True)["steps"]) == 6
    with pytest.raises(ConfigurationError, match="below 24 hours"):
        vacuum(lake, hours=1)
    assert vacuum(lake, hours=168)["steps"] == []
    orphan = tmp_path / "steps" / "tenant_id=acme" / "event_date=2026-11-20" / "orphan.parquet"
    orphan.write_bytes(b"left by a crash")
    before = contents(lake)
    vacuum_table(lake, "steps", hours=24)
    assert orphan.exists(), "a fresh file may belong to a commit that is under way"
    vacuum_table(lake, "steps", hours=0)
    assert contents(lake) == before
    assert len(list((tmp_path / "steps").rglob("*.parquet"))) == 1
    log = lake.table("steps").version()
    assert vacuum_table(lake, "steps", hours=0) == []
    assert lake.table("steps").version() == log, "nothing was done, so nothing is noted"


def test_checkpoints_keep_transactions_and_a_short_log(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    assert not checkpoint(lake, "steps")
    assert checkpoint(lake, "steps", commits=3)
    assert Lake.open(str(tmp_path)).committed_version("a") == 5
    assert lake.fresh("steps").transaction_version("a") == 5


def test_maintain_does_all_of_it(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    reports = {report.table: report for report in maintain(lake, small_files=2)}
    assert reports["steps"].files_after == 1
    assert set(reports) == set(TABLES)
    assert {report.partitions for report in maintain(lake, small_files=2)} == {0}
