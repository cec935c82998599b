"""Strangers' SQL reads the lake, and neither files, network, settings nor more than its share."""

import os
import time
from pathlib import Path

import duckdb
import pytest

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.sandbox import Limits, QueryTimeoutError, query_untrusted
from lakehouse.sandbox_worker import lock, refuse_all_but_select
from lakehouse.sql import QueryError, Session
from tests.lakehouse import make
from trajectory.errors import RetryableError


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.open(str(tmp_path_factory.mktemp("lake")))
    made.append(make.batch("t1"), app_id="a", version=0)
    other = make.step("t2", 0, tenant_id="rival")
    made.append(GovernedBatch(steps=(other,)), app_id="a", version=1)
    return made


def test_rows_come_back_with_their_types(lake: Lake) -> None:
    sql = "SELECT * FROM steps WHERE trajectory_id = ? ORDER BY step_index;"
    found = query_untrusted(lake, sql, parameters=["t1"])
    assert found.table.equals(lake.query(sql, parameters=["t1"]))
    assert not found.truncated
    assert query_untrusted(lake, "SHOW TABLES").table.num_rows > 20
    assert query_untrusted(lake, "SELECT 1 -- a comment at the end").table.num_rows == 1


def test_results_are_cut_at_the_limit_of_rows_and_refused_at_that_of_bytes(lake: Lake) -> None:
    found = query_untrusted(lake, "SELECT * FROM range(100)", limits=Limits(rows=10))
    assert (found.table.num_rows, found.truncated) == (10, True)
    with pytest.raises(QueryError, match="larger than 1 MiB"):
        query_untrusted(
            lake, "SELECT repeat('x', 1000) FROM range(5000)", limits=Limits(result_mib=1)
        )


FILE_ATTACKS = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('{lake}/**/*.parquet')",
    "SELECT * FROM read_text('{lake}/steps/_delta_log/00000000000000000000.json')",
    "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
    "SELECT 1) LIMIT 1; DROP VIEW steps; SELECT * FROM (SELECT 1",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{lake}/stolen''')",
]

STATEMENTS = [
    "COPY (SELECT 1) TO '/tmp/stolen'",
    "SET memory_limit = '100GB'",
    "PRAGMA enable_external_access = true",
    "RESET lock_configuration",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE TABLE t AS SELECT 1",
    "CREATE SECRET (TYPE s3)",
    "DROP VIEW steps",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/stolen'",
    "SELECT 1; SELECT 2",
    "CALL pragma_database_size()",
    "",
    "SELEC",
]


@pytest.mark.parametrize("sql", FILE_ATTACKS)
def test_attacks_on_files_and_network_are_refused(lake: Lake, sql: str) -> None:
    with pytest.raises(QueryError):
        query_untrusted(lake, sql.format(lake=lake.location.root))
    assert not (lake.location.folder / "stolen").exists()


@pytest.mark.parametrize("sql", STATEMENTS)
def test_only_a_single_select_is_let_through(sql: str) -> None:
    with pytest.raises(QueryError):
        refuse_all_but_select(sql)


def test_the_lock_holds_even_for_statements_that_are_not_let_through(lake: Lake) -> None:
    files = lake.snapshot().files
    session = Session(lake.snapshot())
    lock(session.connection, files)
    own = files["steps"][0]
    before = Path(own).read_bytes()
    for sql in [*STATEMENTS[:7], f"COPY (SELECT 1 AS a) TO '{own}'", "EXPORT DATABASE '/tmp/x'"]:
        if not sql.startswith("PRAGMA"):
            with pytest.raises(duckdb.Error):
                session.connection.execute(sql)
    assert Path(own).read_bytes() == before
    assert session.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [3]


def test_a_tenant_sees_its_own_rows_only(lake: Lake) -> None:
    sql = "SELECT DISTINCT tenant_id FROM steps"
    assert query_untrusted(lake, sql, tenant="rival").table["tenant_id"].to_pylist() == ["rival"]
    assert query_untrusted(lake, sql).table.num_rows == 2
    foreign = next(f for f in lake.snapshot().files["steps"] if "tenant_id=acme" in f)
    with pytest.raises(QueryError, match="Cannot access file"):
        query_untrusted(lake, f"SELECT * FROM read_parquet('{foreign}')", tenant="rival")  # noqa: S608
    with pytest.raises(QueryError, match="runs"):
        query_untrusted(lake, "SELECT * FROM runs", tenant="rival")
    own = query_untrusted(lake, "SELECT count(*) AS n FROM eligible_steps", tenant="acme")
    assert own.table["n"].to_pylist() == [2]


def test_a_query_without_end_is_killed(lake: Lake) -> None:
    begun = time.monotonic()
    with pytest.raises(QueryTimeoutError, match="stopped after 2 s"):
        query_untrusted(
            lake,
            "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
            limits=Limits(seconds=2),
        )
    assert time.monotonic() - begun < 4


def test_memory_is_limited(lake: Lake) -> None:
    hungry = "SELECT list(a.range) FROM range(200000000) a"
    with pytest.raises(RetryableError, match=r"memory|MiB"):
        query_untrusted(lake, hungry, limits=Limits(memory_mib=100))


def test_the_process_inherits_no_secrets(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse.sandbox import _environment

    monkeypatch.setenv("HEADRACE_MASTER_KEY", "secret")
    assert "HEADRACE_MASTER_KEY" in os.environ
    assert "HEADRACE_MASTER_KEY" not in _environment()
