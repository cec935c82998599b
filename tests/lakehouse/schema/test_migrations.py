"""A lake of an older version opens, is upgraded and goes on."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.table import TableAlterer

from governance.identifiers import Namer
from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.maintenance.verify import verify
from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema.migrations import CHANGES, added_columns, upgrade
from lakehouse.schema.tables import LAKE_VERSION, TABLES, VERSION_PROPERTY
from lakehouse.storage.location import Location
from lakehouse.write.rows import to_arrow
from tests.lakehouse import make
from tests.lakehouse.sandbox_results import query_untrusted
from trajectory.errors import ConfigurationError
from trajectory.message import stored_message

SCHEMAS = Path(__file__).parents[1] / "schemas"
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


def test_every_version_says_what_it_brought_and_is_kept_for_tests() -> None:
    assert list(CHANGES) == list(range(1, LAKE_VERSION + 1))
    assert sorted(int(path.stem) for path in SCHEMAS.glob("*.json")) == [*CHANGES]


def lake_of_version(root: Path, version: int) -> None:
    """Make the tables of an earlier version, with a trajectory in those that have rows for it."""
    whole = make.batch("old")
    tables = json.loads((SCHEMAS / f"{version}.json").read_text(encoding="utf-8"))
    for name, table in tables.items():
        fields = [{**column, "metadata": {}} for column in table["columns"]]
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
        DeltaTable.create(
            str(root / name), schema, partition_by=table["partition_by"],
            configuration={**TABLES[name].configuration, VERSION_PROPERTY: str(version)},
            raise_if_key_not_exists=False,
        )  # fmt: skip
        rows = to_arrow(TABLES[name], getattr(whole, name, ()))
        if rows.num_rows:
            kept = rows.select([column["name"] for column in table["columns"]])
            write_deltalake(str(root / name), kept, mode="append")


@pytest.mark.parametrize("version", sorted(CHANGES))
def test_a_lake_of_each_version_opens_and_goes_on(tmp_path: Path, version: int) -> None:
    lake_of_version(tmp_path, version)
    if version < LAKE_VERSION:
        with pytest.raises(ConfigurationError, match=r"upgraded|to write"):
            Lake.read(str(tmp_path))
    lake = Lake.open(str(tmp_path), create=False)
    lake.append(make.batch("new"), app_id="a", version=0)
    for name, spec in TABLES.items():
        handle = lake.table(name)
        assert handle.metadata().configuration[VERSION_PROPERTY] == str(LAKE_VERSION)
        assert [
            field.name for field in handle.schema().fields
        ] == spec.arrow.names or version < LAKE_VERSION
        wanted = {field.name: field.type for field in Schema.from_arrow(spec.arrow).fields}
        assert {field.name: field.type for field in handle.schema().fields} == wanted
    counts = lake.query("SELECT trajectory_id, model_steps, success FROM trajectories ORDER BY 1")
    assert [tuple(row.values()) for row in counts.to_pylist()] == [
        ("new", 2, True),
        ("old", 2, True),
    ]
    if version == min(CHANGES):  # where most is missing; the tables are alike afterwards
        for view in VIEWS:
            lake.query(f"SELECT count(*) FROM {view.name}")  # noqa: S608 - our own names
    reader = Lake.read(str(tmp_path))
    assert query_untrusted(reader, "SELECT count(*) AS n FROM steps").table["n"].to_pylist() == [4]


def _name(namer: Namer, parts: str, name: str | None = None) -> str:
    return namer.message_id("acme", stored_message("user", json.loads(parts), name))


def test_messages_stored_before_names_were_keep_their_ids(tmp_path: Path) -> None:
    lake_of_version(tmp_path, 3)
    key = b"k" * 32
    namer, parts = Namer(key), '[{"text":"hi","type":"text"}]'
    plain = replace(make.message("user", "hi"), parts=parts)
    plain = replace(plain, message_id=_name(namer, parts))
    table = to_arrow(TABLES["messages"], [plain]).drop_columns(["name", "content_id"])
    DeltaTable(str(tmp_path / "messages")).delete()
    write_deltalake(str(tmp_path / "messages"), table, mode="append")
    lake = Lake.open(str(tmp_path))
    step = make.step("new", 0, context_message_ids=(plain.message_id,), output_message_id=None)
    called = _name(namer, parts, "planner")
    other = replace(step, step_id="s2", context_message_ids=(called,))
    named = replace(plain, message_id=called, name="planner")
    lake.append(GovernedBatch(messages=(named,), steps=(step, other)), app_id="b", version=0)
    for _ in range(2):
        said = [one.context[0].name for one in lake.conversation("new")]
        assert sorted(said, key=str) == [None, "planner"]
        assert not [f for f in verify(lake, message_key=key).findings if f.table == "messages"]
        compact(lake, tables=["messages"])


@pytest.mark.parametrize("killed_at", range(3))
def test_an_upgrade_that_was_killed_is_finished_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    older_lake(tmp_path)
    steps = ["set_table_properties", "add_columns"]
    done = 0

    def dying(name: str) -> Any:
        real = getattr(TableAlterer, name)

        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done == killed_at:
                raise KeyboardInterrupt
            done += 1
            return real(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        for name in steps:
            patched.setattr(TableAlterer, name, dying(name))
        lake = Lake(Location.parse(str(tmp_path)))
        with pytest.raises(KeyboardInterrupt):
            upgrade(lake.location, TABLES["steps"], lake.fresh("steps"))
    opened = Lake.open(str(tmp_path))
    assert added_columns(opened.table("steps")) == ("tool_results", "group_id", "schema_version")
    assert opened.query("SELECT count(group_id) AS n FROM steps")["n"].to_pylist() == [0]


def test_two_processes_may_upgrade_at_once(tmp_path: Path) -> None:
    older_lake(tmp_path)
    failures: list[BaseException] = []

    def opening() -> None:
        try:
            Lake.open(str(tmp_path))
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=opening) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert Lake.open(str(tmp_path)).query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [2]


def test_other_readers_see_what_tables_and_columns_mean(tmp_path: Path) -> None:
    older_lake(tmp_path)
    Lake.open(str(tmp_path))
    fresh = DeltaTable(str(tmp_path / "models"))
    assert fresh.metadata().description == TABLES["models"].comment
    comments = {field.name: field.metadata.get("comment") for field in fresh.schema().fields}
    assert comments["path"] == "Where the weights are, relative to the home folder"
    added = {
        field.name: field.metadata for field in DeltaTable(str(tmp_path / "steps")).schema().fields
    }
    assert added["group_id"]["comment"] == "Task or group that several attempts share"
