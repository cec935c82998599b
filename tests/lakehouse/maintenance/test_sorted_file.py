"""Compacted files hold the same rows, are pruned by name, and every reader opens them."""

from pathlib import Path

import polars
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.schema.tables import TABLES
from tests.lakehouse import make


def filled(root: Path, trajectories: int = 4) -> Lake:
    lake = Lake.open(str(root))
    for number in range(trajectories):
        batch = make.batch(f"t{number}", steps=3)
        lake.append(batch, app_id="t", version=number)
    return lake


def rows(lake: Lake, table: str) -> pa.Table:
    return lake.query(f"FROM {table} ORDER BY ALL")


def test_every_table_reads_the_same_before_and_after_in_every_reader(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    before = {name: rows(lake, name) for name in TABLES}
    compact(lake)
    for name, table in before.items():
        assert rows(lake, name).equals(table)
        root = str(tmp_path / name)
        assert DeltaTable(root).to_pyarrow_table().num_rows == table.num_rows
        assert polars.scan_delta(root).collect().height == table.num_rows


def test_names_have_filters_and_only_our_own_have_statistics(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    compact(lake)
    (file,) = lake.snapshot_of("steps")
    group = pq.read_metadata(file).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert columns["trajectory_id"].statistics.min == "t0"
    assert columns["response_id"].statistics is None
    assert "DELTA_BYTE_ARRAY" in columns["step_id"].encodings
    (wanted,) = lake.query("SELECT count(*) AS n FROM steps WHERE step_id = 't2-s1'").to_pylist()
    assert wanted == {"n": 1}
    probe = lake.query(
        "SELECT bool_or(bloom_filter_excludes) AS skipped "  # noqa: S608 (fixed text)
        f"FROM parquet_bloom_probe('{file}', 'step_id', 'nobody')"
    )
    assert probe.to_pylist() == [{"skipped": True}]


def test_row_groups_are_whole_whatever_the_batches(tmp_path: Path) -> None:
    from lakehouse.maintenance import sorted_file
    from lakehouse.read.connection import connect

    spec = TABLES["consents"]
    target = tmp_path / "many.parquet"
    count = 2 * sorted_file.ROW_GROUP + 5
    select = (
        "SELECT 's' || i AS subject, 'p' AS purpose, true AS granted, 'x' AS source, "  # noqa: S608 (fixed text)
        f"now() AS recorded_at, NULL::VARCHAR AS reference FROM range({count}) r(i)"
    )
    assert sorted_file.write_sorted(connect(), select, spec, target) == count
    found = pq.read_metadata(target)
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [
        sorted_file.ROW_GROUP, sorted_file.ROW_GROUP, 5,
    ]  # fmt: skip
