"""Queries see the present state, an earlier one on request, and work on an empty lake."""

# ruff: noqa: S608 - the tests name tables of the schema

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse.errors import QueryError
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.read.session import Session
from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema.tables import TABLES
from tests.lakehouse import make
from trajectory.errors import ConfigurationError, IntegrityError


def test_everything_works_on_an_empty_lake(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    for name in [*TABLES, *(view.name for view in VIEWS)]:
        assert lake.query(f"SELECT * FROM {name}").num_rows == 0


def test_empty_and_filled_tables_have_the_same_types(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    names = [*TABLES, *(view.name for view in VIEWS)]
    before = {name: lake.query(f"SELECT * FROM {name}").schema for name in names}
    lake.append(make.batch("t1"), app_id="a", version=0)
    for name in names:
        assert lake.query(f"SELECT * FROM {name}").schema == before[name], name


def test_a_query_sees_what_was_just_appended(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    for number in range(3):
        lake.append(make.batch(f"t{number}"), app_id="a", version=number)
        found = lake.query(
            "SELECT count(*) AS n FROM steps WHERE tenant_id = ?", parameters=["acme"]
        )
        assert found["n"].to_pylist() == [2 * (number + 1)]


def test_time_travel_by_moment_and_by_versions(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path / "lake"))
    lake.append(make.batch("t1"), app_id="a", version=0)
    versions = lake.versions()
    time.sleep(0.01)
    moment = datetime.now(UTC)
    time.sleep(0.01)
    lake.append(make.batch("t2"), app_id="a", version=1)
    count = "SELECT count(*) AS n FROM steps"
    assert lake.query(count)["n"].to_pylist() == [4]
    assert lake.query(count, as_of=moment)["n"].to_pylist() == [2]
    assert lake.query(count, as_of=versions)["n"].to_pylist() == [2]
    assert lake.query(count, as_of=datetime(2020, 1, 1, tzinfo=UTC))["n"].to_pylist() == [0]
    with pytest.raises(ConfigurationError, match="table steps has no version"):
        lake.query(count, as_of={"steps": 99})
    # A copy has other times of files, and the same history.
    shutil.copytree(tmp_path / "lake", tmp_path / "copy", copy_function=shutil.copyfile)
    copy = Lake.open(str(tmp_path / "copy"))
    assert copy.query(count, as_of=moment)["n"].to_pylist() == [2]


def test_a_session_of_the_past_may_make_tables_and_sees_no_other_state(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t1"), app_id="a", version=0)
    versions = lake.versions()
    lake.append(make.batch("t2"), app_id="a", version=1)
    with lake.session_at(versions, ["steps"]) as session:
        session.query("CREATE TABLE once AS SELECT trajectory_id FROM steps")
        session.query("CREATE OR REPLACE VIEW steps AS FROM once")
        assert session.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [2]
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [4]
    with pytest.raises(QueryError, match="once"):
        lake.query("FROM once")
    with (
        pytest.raises(ConfigurationError, match="table steps has no version"),
        lake.session_at({"steps": 99}, ["steps"]),
    ):
        pass


def test_wrong_sql_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="colour"):
        Lake.open(str(tmp_path)).query("SELECT colour FROM steps")


def test_tables_that_need_newer_readers_are_refused(tmp_path: Path) -> None:
    from deltalake import TableFeatures

    lake = Lake.open(str(tmp_path))
    lake.table("steps").alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(IntegrityError, match="reader version 3"):
        lake.query("SELECT 1 FROM steps")


def test_tenant_names_survive_as_partitions(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    strange = "a b/ü='%20"
    row = {
        "tenant_id": strange, "subject": "p", "purpose": "eval", "granted": True, "source": "cli",
        "recorded_at": make.NOON,
    }  # fmt: skip
    lake.append_rows("consents", [row])
    assert lake.query("SELECT tenant_id FROM consents")["tenant_id"].to_pylist() == [strange]


def test_views_are_bound_when_they_are_asked_for_and_listed_all(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    assert lake.query('SELECT count(*) AS n FROM "Reliability"').to_pylist() == [{"n": 0}]
    listed = set(lake.query("SHOW TABLES")["name"].to_pylist())
    assert {view.name for view in VIEWS} <= listed


def test_what_files_of_the_past_left_in_memory_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Session] = []

    def session(*arguments: Any, **named: Any) -> Session:
        begun.append(Session(*arguments, **named))
        return begun[-1]

    monkeypatch.setattr("lakehouse.read.queries._LEFT_BEHIND", 1)
    monkeypatch.setattr("lakehouse.read.queries.Session", session)
    lake = Lake.open(str(tmp_path))
    count = "SELECT count(*) AS n FROM steps"
    for number in range(2):
        lake.append(make.batch(f"t{number}"), app_id="a", version=number)
        assert lake.query(count)["n"].to_pylist() == [2 * number + 2]
    (first,) = begun
    compact(lake, tables=["steps"])
    for _ in range(2):  # the first notices, the second begins anew
        assert lake.query(count)["n"].to_pylist() == [4]
    assert len(begun) == 2
    with pytest.raises(QueryError, match="closed"):
        first.query(count)
