"""A log that stays short: readers and writers go on, whatever they had open."""

from pathlib import Path

import pytest

from lakehouse.lake import Lake
from lakehouse.maintenance.log_cleanup import last_checkpoint, shorten
from lakehouse.maintenance.table_maintenance import maintain
from lakehouse.schema.tables import TABLES
from lakehouse.write.commits import commit_once
from lakehouse.write.rows import to_arrow
from lakehouse.write.table_log import refresh
from tests.lakehouse import make
from trajectory.errors import ConfigurationError

COMMITS = 130


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake whose table ``links`` has a long log."""
    lake = Lake.open(str(tmp_path_factory.mktemp("lake")))
    append(lake, range(COMMITS))
    return lake


def append(lake: Lake, versions: range) -> None:
    row = to_arrow(TABLES["links"], make.batch("t").links)
    for version in versions:
        commit_once(lake.log("links"), row, app_id="a", version=version)


def log(lake: Lake) -> list[Path]:
    return sorted((Path(lake.location.root) / "links" / "_delta_log").glob("0*"))


def test_a_short_log_is_left_alone(long: Lake) -> None:
    assert shorten(long.location, "steps", keep=1) == 0
    assert shorten(long.location, "links", keep=COMMITS) == 0


def test_old_commits_go_and_everybody_goes_on(long: Lake) -> None:
    path = long.location.root
    early, late = Lake.open(path), Lake.open(path)
    early_handle = early.table("links")
    append(late, range(COMMITS, 2 * COMMITS))
    assert last_checkpoint(long.location, "links") == 260
    assert shorten(long.location, "links", keep=50) > 150
    assert len(log(long)) < 2 * COMMITS - 150
    refresh(early_handle)
    append(early, range(2 * COMMITS, 2 * COMMITS + 2))
    append(long, range(2 * COMMITS + 2, 2 * COMMITS + 3))
    rows = 2 * COMMITS + 3
    for lake in (early, late, long, Lake.open(path)):
        assert lake.query("SELECT count(*) AS n FROM links")["n"].to_pylist() == [rows]
        assert lake.table("links").transaction_version("a") == rows - 1


def test_time_travel_says_where_it_ends(long: Lake) -> None:
    with pytest.raises(ConfigurationError, match="log_commits"):
        long.query("SELECT count(*) FROM links", as_of={"links": 3})


def test_maintenance_bounds_the_log(long: Lake) -> None:
    for _ in range(3):
        maintain(long, small_files=2, log_commits=40)
    assert len(log(long)) < 40 + 100 + 10
