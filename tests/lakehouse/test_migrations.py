"""A lake of an older version opens, is upgraded and goes on."""

from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.lake import Lake
from lakehouse.maintenance import compact
from lakehouse.migrations import CHANGES, added_columns
from lakehouse.rows import to_arrow
from lakehouse.sandbox import query_untrusted
from lakehouse.schema import LAKE_VERSION, TABLES, VERSION_PROPERTY
from lakehouse.verify import verify
from tests.lakehouse import make
from trajectory.errors import IntegrityError

LATER = {"steps": ["group_id", "tool_results", "schema_version"], "runs": ["ended_at"]}
"""Columns that the older lake of these tests does not have yet."""


def older_lake(root: Path) -> None:
    """Make tables as an earlier version would have, one trajectory in them; ``models`` is missing."""
    whole = make.batch("old")
    for name, spec in TABLES.items():
        if name == "models":
            continue
        kept = [f for f in spec.arrow if f.name not in LATER.get(name, [])]
        rows = to_arrow(spec, getattr(whole, name, ())).select([f.name for f in kept])
        DeltaTable.create(
            str(root / name), rows.schema, partition_by=list(spec.partition_by),
            configuration={**spec.configuration, VERSION_PROPERTY: "0"},
            raise_if_key_not_exists=False,
        )  # fmt: skip
        if rows.num_rows:
            write_deltalake(str(root / name), rows, mode="append")


def test_an_older_lake_is_upgraded_on_opening(tmp_path: Path) -> None:
    older_lake(tmp_path)
    lake = Lake.open(str(tmp_path))
    assert added_columns(lake.table("steps")) == ("tool_results", "group_id", "schema_version")
    rows = lake.query("SELECT step_id, group_id, tool_results FROM steps ORDER BY 1").to_pylist()
    assert rows == [
        {"step_id": f"old-s{i}", "group_id": None, "tool_results": None} for i in range(2)
    ]
    assert lake.query("SELECT success FROM trajectories").to_pylist() == [{"success": True}]
    configuration = lake.table("steps").metadata().configuration
    assert configuration[VERSION_PROPERTY] == str(LAKE_VERSION)


def test_old_and_new_rows_live_together(tmp_path: Path) -> None:
    older_lake(tmp_path)
    lake = Lake.open(str(tmp_path))
    before = lake.versions()
    lake.append(make.batch("new"), app_id="a", version=0)
    sql = "SELECT trajectory_id, group_id FROM steps WHERE step_index = 0 ORDER BY ALL"
    expected = [
        {"trajectory_id": "new", "group_id": "g-new"}, {"trajectory_id": "old", "group_id": None},
    ]  # fmt: skip
    assert lake.query(sql).to_pylist() == expected
    assert query_untrusted(lake, sql).table.to_pylist() == expected
    assert lake.query(sql, as_of=before).to_pylist() == expected[1:]
    assert len(lake.conversation("old")) == 2
    compact(lake)
    assert lake.query(sql).to_pylist() == expected
    assert lake.fresh("steps").to_pyarrow_table().num_rows == 4
    assert verify(lake).ok


def test_files_that_all_lack_a_column_can_be_compacted(tmp_path: Path) -> None:
    older_lake(tmp_path)
    part = DeltaTable(str(tmp_path / "steps")).to_pyarrow_table()
    write_deltalake(str(tmp_path / "steps"), part, mode="append")
    lake = Lake.open(str(tmp_path))
    compact(lake, tables=["steps"])
    found = lake.query("SELECT count(*) AS n, count(group_id) AS g FROM steps").to_pylist()
    assert found == [{"n": 4, "g": 0}]


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    older_lake(tmp_path)
    versions = Lake.open(str(tmp_path)).versions()
    assert Lake.open(str(tmp_path)).versions() == versions


def test_a_newer_lake_is_refused(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.table("steps").alter.set_table_properties(
        {VERSION_PROPERTY: str(LAKE_VERSION + 1)}, raise_if_not_exists=False
    )
    with pytest.raises(IntegrityError, match="upgrade Headrace"):
        Lake.open(str(tmp_path))


def test_every_version_says_what_it_brought() -> None:
    assert list(CHANGES) == list(range(1, LAKE_VERSION + 1))
