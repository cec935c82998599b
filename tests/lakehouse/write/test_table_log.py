"""Commits at the end of a table's log: who comes second reads first, and every reader finds the rows."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError

from lakehouse.lake import Lake
from lakehouse.schema.tables import TABLES
from lakehouse.write.commits import append, commit_once
from lakehouse.write.data_files import write_files
from lakehouse.write.rows import to_arrow
from tests.lakehouse import make
from tests.lakehouse.power import Power
from trajectory.errors import RetryableError

SPEC = TABLES["links"]
ROWS = to_arrow(SPEC, make.batch("t").links)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(str(tmp_path / "lake"))


def data_files(lake: Lake) -> list[Path]:
    return sorted(Path(lake.location.table("links")).rglob("*.parquet"))


def test_who_comes_second_reads_before_writing(lake: Lake) -> None:
    other = Lake.open(lake.location.root)
    mine, theirs = lake.log("links"), other.log("links")
    assert mine.done_version("a") == theirs.done_version("b") == -1
    files = write_files(theirs.location, SPEC, ROWS)
    assert commit_once(mine, ROWS, app_id="a", version=0)
    assert not theirs.put(files, ("a", 0))
    assert theirs.done_version("a") == 0
    assert theirs.put(files, ("b", 0))
    assert commit_once(theirs, ROWS, app_id="a", version=0) is None
    assert mine.done_version("b") == 0
    assert lake.table("links").version() == 2
    assert lake.query("SELECT count(*) AS n FROM links")["n"][0].as_py() == 2 * ROWS.num_rows


def test_a_batch_that_is_there_leaves_no_file(lake: Lake) -> None:
    files = commit_once(lake.log("links"), ROWS, app_id="a", version=4)
    assert files
    for version in (3, 4):
        assert commit_once(lake.log("links"), ROWS, app_id="a", version=version) is None
    assert [str(one.relative_to(lake.location.table("links"))) for one in data_files(lake)] == files


def test_a_sync_makes_commits_last_that_were_not_read_yet(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    mine = Lake.open(str(root)).log("links")
    commit_once(mine, ROWS, app_id="a", version=0)
    mine.sync()
    with Power(root) as power:
        for version in range(3):
            commit_once(Lake.open(str(root)).log("links"), ROWS, app_id="b", version=version)
        mine.sync()
    power.cut()
    again = Lake.open(str(root)).log("links")
    assert (again.done_version("a"), again.done_version("b")) == (0, 2)


def test_delta_rs_and_we_take_turns(lake: Lake) -> None:
    handle, log = lake.fresh("links"), lake.log("links")
    for version in range(3):
        assert commit_once(log, ROWS, app_id="a", version=version)
        handle.update_incremental()
        handle.alter.set_table_properties(
            {"some.property": str(version)}, raise_if_not_exists=False
        )
        append(log, ROWS)
    handle.update_incremental()
    assert handle.transaction_version("a") == 2
    assert [one["operation"] for one in handle.history()].count("WRITE") == 6
    deleted = handle.delete("tenant_id = 'acme'")
    assert deleted["num_deleted_rows"] == 6 * ROWS.num_rows
    assert lake.query("SELECT count(*) AS n FROM links")["n"][0].as_py() == 0
    assert log.done_version("a") == 2


def test_a_delete_that_read_before_our_commit_keeps_its_rows(lake: Lake) -> None:
    append(lake.log("links"), ROWS)
    handle = lake.fresh("links")
    append(lake.log("links"), ROWS)
    try:
        handle.delete("tenant_id = 'acme'")
    except CommitFailedError:
        left = 2
    else:
        left = 1
    assert lake.query("SELECT count(*) AS n FROM links")["n"][0].as_py() == left * ROWS.num_rows


def test_every_partition_has_its_file_and_statistics(lake: Lake) -> None:
    base = make.batch("t").exchanges[0]
    tenants = ["acme", "a b/c%d=ü#?:+&'\"*", "x%20y", "ÄÖ漢"]
    rows = [replace(base, tenant_id=one, exchange_id=f"{n}") for n, one in enumerate(tenants)]
    later = replace(base, started_at=base.started_at.replace(year=2027))
    assert lake.append_rows("exchanges", [*rows, later]) == 5
    assert len(lake.snapshot_of("exchanges")) == 5
    assert all(Path(one).exists() for one in lake.snapshot_of("exchanges"))
    found = lake.query("SELECT DISTINCT tenant_id FROM exchanges")["tenant_id"].to_pylist()
    assert sorted(found) == sorted(tenants)
    for tenant in tenants:
        assert lake.snapshot_for(tenant).files["exchanges"]
    for path in (Path(lake.location.table("exchanges")) / "_delta_log").glob("*1.json"):
        added = [json.loads(line)["add"] for line in path.read_text().splitlines() if "add" in line]
        assert {json.loads(one["stats"])["numRecords"] for one in added} == {1}
        assert "tenant_id" not in json.loads(added[0]["stats"])["minValues"]


def test_tables_with_features_of_others_take_batches(lake: Lake) -> None:
    handle = lake.fresh("links")
    handle.alter.add_constraint({"kinds": "kind <> 'never'"})
    assert int(handle.protocol().min_writer_version) > 2
    assert commit_once(lake.log("links"), ROWS, app_id="a", version=0)
    assert commit_once(lake.log("links"), ROWS, app_id="a", version=0) is None
    assert commit_once(lake.log("links"), ROWS, app_id="a", version=1)


def test_a_log_that_cannot_be_written_leaves_no_file(lake: Lake) -> None:
    log = lake.log("links")
    files = write_files(log.location, SPEC, ROWS)
    with nothing_written(), pytest.raises(RetryableError, match="links"):
        commit_once(log, ROWS, app_id="a", version=0, files=files)
    assert data_files(lake) == []
    assert commit_once(log, ROWS, app_id="a", version=0)


@contextmanager
def nothing_written() -> Iterator[None]:
    """Refuse every byte that this process writes to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_batch_that_stops_half_way_leaves_only_files_that_commits_name(lake: Lake) -> None:
    batch = make.batch("t")
    in_the_way = Path(lake.location.table("steps")) / "_delta_log" / f"{1:020d}.json"
    in_the_way.mkdir()
    with pytest.raises(RetryableError, match="steps"):
        lake.append(batch, app_id="a", version=0)
    written = {path.relative_to(lake.location.folder) for path in files_of(lake)}
    assert {path.parts[0] for path in written} == {"messages", "harnesses", "tokens"}
    in_the_way.rmdir()
    assert lake.append(batch, app_id="a", version=0).repeated
    assert lake.table("steps").count() == len(batch.steps)


def files_of(lake: Lake) -> list[Path]:
    return sorted(lake.location.folder.rglob("*.parquet"))


def test_a_table_that_was_followed_for_long_is_opened_anew(lake: Lake) -> None:
    reader, writer = Lake.open(str(lake.location.folder)), lake.log("links")
    early = reader.table("links")
    opened = {id(early): early, id(writer.handle): writer.handle}
    for version in range(60):
        assert writer.done_version("a") == version - 1
        assert writer.put((), ("a", version))
        opened[id(writer.handle)] = writer.handle
    assert 3 <= len(opened) <= 6, "a handle gets slower with each commit that it has followed"
    assert reader.table("links") is not early
    assert reader.table("links").version() == writer.version
    assert reader.log("links").done_version("a") == 59


def test_checkpoints_are_made_as_the_log_grows(lake: Lake) -> None:
    log = lake.log("links")
    for version in range(100):
        assert log.done_version("a") == version - 1
        assert log.put((), ("a", version))
    assert (Path(lake.location.table("links")) / "_delta_log" / "_last_checkpoint").exists()
    assert lake.fresh("links").transaction_version("a") == 99
