"""Tables are read as corrected; without corrections they are read as they are."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from governance.records import GovernedBatch
from lakehouse.erasure.removal import remove_trajectories
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.maintenance.verify import verify
from lakehouse.read.corrections import parted
from lakehouse.schema import tables as schema
from tests.lakehouse import make
from trajectory.step import LinkTo

TABLES = ("steps", "tokens", "governance", "exchanges", "signals", "links")


def moved(lake: Lake) -> None:
    """Two trajectories ``a`` and ``b``; then the root of ``b`` turns out to go on from ``a``."""
    lake.append(make.batch("a"), app_id="i", version=0)
    lake.append(make.batch("b"), app_id="i", version=1)
    first, second = (make.step("b", index) for index in range(2))
    place = {"trajectory_id": "a", "stored_trajectory_id": "b"}
    root = make.correction(
        first, **place, began=True, parent_step_id="a-s1", step_index=2, role_in_graph="auxiliary"
    )
    rest = make.correction(second, **place, step_index=3)
    batch = replace(make.batch("c"), corrections=(root, rest))
    lake.append(batch, app_id="i", version=2)


def of(lake: Lake, table: str, trajectory: str) -> int:
    return lake.query(
        f"SELECT 1 FROM {table} WHERE trajectory_id = ?",  # noqa: S608 (fixed names)
        parameters=[trajectory],
    ).num_rows


def test_what_was_stored_elsewhere_is_read_where_it_belongs(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    moved(lake)
    assert {table: of(lake, table, "b") for table in TABLES} == dict.fromkeys(TABLES, 0)
    assert {table: of(lake, table, "a") for table in TABLES} == {
        "steps": 4, "tokens": 4, "governance": 4, "exchanges": 4, "signals": 2, "links": 2,
    }  # fmt: skip
    rows = lake.query(
        "SELECT step_id, step_index, parent_step_id, role_in_graph FROM steps "
        "WHERE trajectory_id = 'a' AND step_index > 1 ORDER BY step_index"
    ).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("b-s0", 2, "a-s1", "auxiliary"),
        ("b-s1", 3, "b-s0", "agent"),
    ]
    assert [one.step_id for one in lake.conversation("a")] == ["a-s0", "a-s1", "b-s0", "b-s1"]
    assert lake.query("SELECT trajectory_id FROM trajectories ORDER BY 1").to_pylist() == [
        {"trajectory_id": "a"},
        {"trajectory_id": "c"},
    ]
    assert verify(lake).ok


def test_the_latest_correction_holds_and_earlier_versions_stay_as_they_were(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    moved(lake)
    before = lake.versions()
    back = make.correction(
        make.step("b", 0),
        trajectory_id="b",
        recorded_at=make.NOON.replace(hour=13),
        duplicate_of="a-s0",
    )
    lake.append_rows("corrections", [back])
    assert of(lake, "steps", "b") == of(lake, "tokens", "b") == 0
    assert of(lake, "governance", "b") == 1
    sql = "SELECT disposition FROM exchanges WHERE step_id = 'b-s0'"
    assert lake.query(sql).to_pylist() == [{"disposition": "duplicate"}]
    assert lake.query(sql, as_of=before).to_pylist() == [{"disposition": "stored"}]


def test_removing_a_trajectory_removes_what_was_stored_in_others(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    moved(lake)
    removed = remove_trajectories(lake, "acme", ["a"], reason="erasure")
    assert removed["steps"] == 4
    assert removed["corrections"] == 2
    assert lake.query("SELECT trajectory_id FROM steps GROUP BY 1").to_pylist() == [
        {"trajectory_id": "c"}
    ]
    assert verify(lake).ok


def test_without_corrections_a_table_is_read_as_it_is(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("a"), app_id="i", version=0)
    plan = str(lake.query("EXPLAIN SELECT step_id FROM steps").to_pylist())
    assert "corrections" not in plan
    assert "JOIN" not in plan


def test_only_files_that_a_correction_may_concern_are_read_with_it() -> None:
    day = "event_date=2026-01-0"
    corrections = (f"/l/corrections/tenant_id=a/{day}1/c.parquet",)
    steps = tuple(f"/l/steps/tenant_id={t}/{day}{n}/s.parquet" for t in "ab" for n in "12")
    assert parted(schema.TABLES["steps"], steps, corrections).mixed == [*steps[:1]]
    signals = tuple(one.replace("steps", "signals") for one in steps)
    assert parted(schema.TABLES["signals"], signals, corrections).mixed == [*signals[:2]]


def test_links_of_corrections_are_read_where_no_link_was_stored(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    batch = make.batch("t1")
    link = LinkTo("fork", batch.steps[0].step_id, "t1", make.NOON, "prefix")
    late = make.correction(batch.steps[1], links=(link,))
    lake.append(replace(batch, links=(), corrections=(late,)), app_id="a", version=0)
    assert lake.query("SELECT kind FROM links")["kind"].to_pylist() == ["fork"]


def test_days_that_are_over_are_sorted_apart_and_read_the_same(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    old = datetime(2026, 1, 5, tzinfo=UTC) - make.NOON
    for number, name in enumerate("abc"):
        lake.append(shifted(make.batch(name), old), app_id="i", version=number)
    first = make.step("b", 0)
    place = {"trajectory_id": "a", "stored_trajectory_id": "b", "began": True}
    late = make.correction(first, **place, parent_step_id="a-s1", step_index=2)
    lake.append(shifted(GovernedBatch(corrections=(late,)), old), app_id="i", version=3)
    before, versions = everything(lake), lake.versions()

    def plain(table: str) -> int:
        files = parted(
            schema.TABLES[table], lake.snapshot_of(table), lake.snapshot_of("corrections")
        )
        return sum(pq.read_metadata(file).num_rows for file in files.plain)

    assert plain("steps") == 0
    for _ in range(2):  # what is apart already stays as it is
        compact(lake)
        assert everything(lake) == before
        files = {table: lake.snapshot_of(table) for table in ("steps", "exchanges", "tokens")}
        assert {table: len(found) for table, found in files.items()} == dict.fromkeys(files, 2)
        assert {table: plain(table) for table in files} == {
            "steps": 5, "exchanges": 5, "tokens": 5,
        }  # fmt: skip
    assert lake.query("SELECT count(*) AS n FROM steps", as_of=versions)["n"].to_pylist() == [6]
    again = replace(late, step_id="c-s0", stored_trajectory_id="c")
    lake.append(shifted(GovernedBatch(corrections=(again,)), old), app_id="i", version=4)
    changed = everything(lake)
    assert plain("steps") == 0, "a mark that is not of all corrections says nothing"
    assert changed != before
    compact(lake)
    assert everything(lake) == changed
    assert plain("steps") == 4
    assert verify(lake).ok
    assert lake.fresh("steps").to_pyarrow_table().num_rows == 6


def shifted(batch: GovernedBatch, by: timedelta) -> GovernedBatch:
    """Return a batch of another day."""
    rows = {
        name: tuple(
            replace(
                row,
                **{
                    one: value + by
                    for one in ("started_at", "first_seen_at")
                    if (value := getattr(row, one, None)) is not None
                },
            )
            for row in getattr(batch, name)
        )
        for name in schema.BATCH_TABLES
    }
    return replace(batch, **rows)  # type: ignore[arg-type]


def everything(lake: Lake) -> dict[str, object]:
    """Return all rows of all tables that are read as corrected, and what views make of them."""
    sql = {name: f"SELECT * FROM {name} ORDER BY ALL" for name in TABLES}  # noqa: S608
    sql["trajectories"] = "SELECT * FROM trajectories ORDER BY ALL"
    return {name: lake.query(asked).to_pylist() for name, asked in sql.items()}
