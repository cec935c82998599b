"""A program that is older than the lake refuses to work with it, also when it had opened it before."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.schema.tables import LAKE_VERSION, TABLES, VERSION_PROPERTY
from tests.lakehouse import make
from trajectory.errors import IntegrityError


def upgraded(root: Path, tables: Iterable[str] = TABLES) -> None:
    """Do what a newer Headrace does when it opens the lake."""
    newer = Lake.open(str(root))
    for name in tables:
        newer.fresh(name).alter.set_table_properties(
            {VERSION_PROPERTY: str(LAKE_VERSION + 1)}, raise_if_not_exists=False
        )


def test_a_newer_lake_is_refused(tmp_path: Path) -> None:
    Lake.open(str(tmp_path))
    upgraded(tmp_path, ["steps"])
    for opened in (Lake.open, Lake.read):
        with pytest.raises(IntegrityError, match="upgrade Headrace"):
            opened(str(tmp_path))


def test_who_opened_the_lake_before_it_was_upgraded_writes_no_more(tmp_path: Path) -> None:
    older = Lake.open(str(tmp_path))
    older.append(make.batch("before"), app_id="a", version=0)
    upgraded(tmp_path)
    before = {name: older.fresh(name).version() for name in TABLES}
    with pytest.raises(IntegrityError, match=r"has version \d+, this Headrace knows"):
        older.append(make.batch("after"), app_id="a", version=1)
    with pytest.raises(IntegrityError, match="upgrade Headrace"):
        older.append_rows("signals", make.batch("late").signals)
    with pytest.raises(IntegrityError, match="upgrade Headrace"):
        older.append_as("decisions", 0, [])
    with pytest.raises(IntegrityError, match="upgrade Headrace"):
        compact(older)  # the newer program's columns would be gone
    assert {name: older.fresh(name).version() for name in TABLES} == before


def test_an_upgrade_under_way_stops_a_batch_that_is_finished_after_it(tmp_path: Path) -> None:
    older = Lake.open(str(tmp_path))
    older.append(make.batch("before"), app_id="a", version=0)
    upgraded(tmp_path, ["steps"])
    with pytest.raises(IntegrityError, match="upgrade Headrace"):
        older.append(make.batch("after"), app_id="a", version=1)
    older.fresh("steps").alter.set_table_properties(
        {VERSION_PROPERTY: str(LAKE_VERSION)}, raise_if_not_exists=False
    )
    again = Lake.open(str(tmp_path))  # stands for the newer program
    assert again.committed_version("a") == 1
    assert again.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [4]
