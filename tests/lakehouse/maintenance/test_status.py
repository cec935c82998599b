"""The status says rows, bytes, files, freshness, growth and expiry as they are."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from lakehouse.lake import Lake
from lakehouse.maintenance.status import lake_status
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.schema.tables import TABLES
from tests.lakehouse import make


def test_an_empty_lake_has_a_status(tmp_path: Path) -> None:
    status = lake_status(Lake.open(str(tmp_path)))
    assert (status.rows, status.files, status.freshness_s) == (0, 0, None)
    assert [table.table for table in status.tables] == list(TABLES)


def test_a_filled_lake(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    for number in range(3):
        whole = make.batch(f"t{number}")
        expires = make.NOON + timedelta(days=40 * number)
        dated = tuple(replace(row, expires_at=expires) for row in whole.governance)
        lake.append(replace(whole, governance=dated), app_id="a", version=number)
    late = make.step("ahead", 0, started_at=make.NOON + timedelta(days=400))
    lake.append_rows("exchanges", [make.ledger(late)])
    compact(lake, tables=["steps"])
    now = make.NOON + timedelta(seconds=61)
    status = lake_status(lake, now=now)
    steps = next(table for table in status.tables if table.table == "steps")
    assert (steps.rows, steps.files, steps.removed_files) == (6, 1, 3)
    assert steps.removed_bytes > steps.bytes > 0
    assert (status.vacuum_files, status.vacuum_bytes) == (0, 0)  # they left only now
    assert status.freshness_s == 60
    grown = [(day.day, day.exchanges, day.steps) for day in status.growth]
    assert grown == [("2026-11-20", 6, 6), ("2027-12-25", 1, 1)]
    assert status.growth[0].stored_bytes > 0
    assert status.expired_steps == 2
    assert [(one.month, one.steps) for one in status.expiring] == [("2026-12", 2), ("2027-02", 2)]
