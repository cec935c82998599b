"""Strangers' SQL reads the lake, and neither files, network, settings nor more than its share."""

import os
import platform
import signal
import threading
import time
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from governance.records import GovernedBatch
from lakehouse.errors import QueryError
from lakehouse.lake import Lake
from lakehouse.maintenance.status import lake_status
from lakehouse.maintenance.table_maintenance import compact, vacuum_table
from lakehouse.read.session import Session
from lakehouse.sandbox.client import open_untrusted
from lakehouse.sandbox.confinement import available
from lakehouse.sandbox.deadline import QueryTimeoutError
from lakehouse.sandbox.request import Limits, Query
from lakehouse.sandbox.stream import QueryCancelledError
from lakehouse.sandbox.worker import lock
from tests.lakehouse import make
from tests.lakehouse.sandbox_results import query_untrusted
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
    shadowing = "WITH steps AS (SELECT * FROM steps WHERE trajectory_id = 't1') SELECT * FROM steps"
    assert query_untrusted(lake, shadowing).table.num_rows == found.table.num_rows


def test_results_are_cut_at_the_limit_of_rows_and_refused_at_that_of_bytes(lake: Lake) -> None:
    found = query_untrusted(lake, "SELECT * FROM range(100)", limits=Limits(rows=10))
    assert (found.table.num_rows, found.truncated) == (10, True)
    exact = query_untrusted(lake, "SELECT * FROM range(10)", limits=Limits(rows=10))
    assert (exact.table.num_rows, exact.truncated) == (10, False)
    with pytest.raises(QueryError, match="larger than 1 MiB"):
        query_untrusted(
            lake, "SELECT repeat('x', 1000) FROM range(5000)", limits=Limits(result_mib=1)
        )


FILE_ATTACKS = [
    "SELECT * FROM '{lake}/**/*.parquet'",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{lake}/stolen''')",
]
"""Two of the many in test_statement.py, through a process."""

PAST_THE_FIRST_WALL = [
    "COPY (SELECT 1) TO '/tmp/stolen'",
    "SET memory_limit = '100GB'",
    "SET allowed_paths = ['/etc/passwd']",
    "RESET lock_configuration",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE PERSISTENT SECRET (TYPE s3)",
    "EXPORT DATABASE '/tmp/x'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/proc/self/environ')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
    "SELECT * FROM enable_logging(storage => 'file')",
]


@pytest.mark.parametrize("sql", FILE_ATTACKS)
def test_attacks_on_files_and_network_are_refused(lake: Lake, sql: str) -> None:
    with pytest.raises(QueryError):
        query_untrusted(lake, sql.format(lake=lake.location.root))
    assert not (lake.location.folder / "stolen").exists()


def test_the_lock_holds_even_for_statements_that_are_not_let_through(lake: Lake) -> None:
    files = lake.snapshot().files
    session = Session(lake.snapshot())
    lock(session.connection, files)
    own = files["steps"][0]
    before = Path(own).read_bytes()
    for sql in [*PAST_THE_FIRST_WALL, f"COPY (SELECT 1 AS a) TO '{own}'"]:
        with pytest.raises(duckdb.Error):
            session.connection.execute(sql).fetchall()
    assert Path(own).read_bytes() == before
    assert session.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [3]


def test_a_tenant_sees_its_own_rows_only(lake: Lake) -> None:
    sql = "SELECT DISTINCT tenant_id FROM steps"
    assert query_untrusted(lake, sql, tenant="rival").table["tenant_id"].to_pylist() == ["rival"]
    assert query_untrusted(lake, sql).table.num_rows == 2
    foreign = next(f for f in lake.snapshot().files["steps"] if "tenant_id=acme" in f)
    with pytest.raises(QueryError, match="Cannot access file"):
        query_untrusted(lake, f"SELECT * FROM '{foreign}'", tenant="rival")  # noqa: S608
    with pytest.raises(QueryError, match="runs"):
        query_untrusted(lake, "SELECT * FROM runs", tenant="rival")
    own = query_untrusted(lake, "SELECT count(*) AS n FROM eligible_steps", tenant="acme")
    assert own.table["n"].to_pylist() == [2]


def test_scorecards_of_a_tenant_are_of_its_rows_and_stand_without_tokens(lake: Lake) -> None:
    sql = "SELECT DISTINCT tenant_id, dimension FROM {} WHERE dimension = 'tenant'"
    for view in ("scorecards", "calibration"):
        own = query_untrusted(lake, sql.format(view), tenant="rival").table
        assert own.to_pylist() == [{"tenant_id": "rival", "dimension": "tenant"}]
    query = Query(sql.format("scorecards"), tenant="acme", hidden=frozenset({"tokens"}))
    with open_untrusted(lake, query) as answer:
        assert sum(batch.num_rows for batch in answer) == 1
    query = Query(sql.format("calibration"), tenant="acme", hidden=frozenset({"tokens"}))
    with pytest.raises(QueryError, match="calibration"):
        open_untrusted(lake, query)


def test_rows_that_break_off_are_an_error_not_a_short_answer(lake: Lake) -> None:
    sql = "SELECT if(range < 50000, range, error('late')::INT) AS a FROM range(60000)"
    with (
        open_untrusted(lake, Query(sql), limits=Limits(threads=1)) as answer,
        pytest.raises(QueryError, match="late"),
    ):
        list(answer)


def test_who_has_gone_is_not_worked_for(lake: Lake) -> None:
    begun = time.monotonic()
    with pytest.raises(QueryCancelledError):
        open_untrusted(lake, Query(ENDLESS[0]), gone=lambda: time.monotonic() - begun > 0.5)
    assert time.monotonic() - begun < 20


def test_ctrl_c_is_heard_while_a_query_is_waited_for_whichever_thread_gets_it(lake: Lake) -> None:
    """The signal comes to another thread: no wait of the main one is broken off by it."""
    query = Query("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b")

    def interrupt() -> None:
        time.sleep(0.5)  # the query is waited for by now; earlier would be heard as well
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        open_untrusted(lake, query, limits=Limits(seconds=60))
    thread.join()
    assert time.monotonic() - began < 30


def test_a_schema_costs_no_rows(lake: Lake) -> None:
    sql = "SELECT trajectory_id, ?::INT AS a FROM steps WHERE app_id = ?"
    with open_untrusted(lake, Query(sql, describe=True)) as answer:
        assert answer.schema.names == ["trajectory_id", "a"]
        assert (list(answer), answer.parameters) == ([], ("1", "2"))


def test_the_kernels_fence_is_up_and_the_answer_tells_nothing_of_the_machine(lake: Lake) -> None:
    with open_untrusted(lake, Query("SELECT sql FROM duckdb_views()")) as answer:
        text = str(pa.Table.from_batches(list(answer)).to_pylist())
    assert "steps/tenant_id=" in text
    assert lake.location.root not in text
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        assert "seccomp" in answer.confined


def test_hidden_tables_and_earlier_versions(lake: Lake) -> None:
    with pytest.raises(QueryError, match="tokens"):
        open_untrusted(lake, Query("SELECT * FROM tokens", hidden=frozenset({"tokens"})))
    before = query_untrusted(lake, "SELECT count(*) AS n FROM steps", as_of={"steps": 1})
    assert before.table["n"].to_pylist() == [2]


def test_an_earlier_state_whose_files_are_gone_is_said_to_be(tmp_path: Path) -> None:
    made = Lake.open(str(tmp_path))
    for number in range(2):
        made.append(make.batch(f"t{number}"), app_id="a", version=number)
    early = lake_status(made).earliest_version_at["steps"]
    before = made.versions()
    compact(made, tables=["steps"])
    vacuum_table(made, "steps", hours=0)
    for ask in (made.query, partial(query_untrusted, made)):
        with pytest.raises(QueryError, match="removed since"):
            ask("SELECT count(*) FROM steps", as_of=before)
        ask("SELECT count(*) FROM messages", as_of=before)
    assert lake_status(made).earliest_version_at["steps"] > early


ENDLESS = [
    "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE generate_series % 7 = 0",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    "SELECT sum(len(regexp_replace(repeat('a', 100000 + range % 7), '(a|aa)+', 'b', 'g'))) FROM range(1000000)",
]
HUNGRY = [
    "SELECT list(a.range) FROM range(200000000) a",
    "SELECT repeat('x', 2000000000) AS a",
    "SELECT len(repeat(repeat('x', 1000000), 100000)) AS a",
    "SELECT list_resize([1], 1000000000) AS a",
    "SELECT array_agg(DISTINCT md5(range::VARCHAR)) FROM range(30000000)",
    "SELECT * FROM range(1000000000) ORDER BY random()",
    "SELECT string_agg(repeat('ab', 100000), '') FROM range(100000)",
    "WITH RECURSIVE t AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM t) SELECT max(len(a)) FROM t",
]


@pytest.mark.parametrize(
    "sql", [ENDLESS[0], *(pytest.param(q, marks=pytest.mark.slow) for q in ENDLESS[1:])]
)
def test_time_is_limited(lake: Lake, sql: str) -> None:
    begun = time.monotonic()
    with pytest.raises((QueryTimeoutError, RetryableError)):
        query_untrusted(lake, sql, limits=Limits(memory_mib=100, seconds=2))
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    "sql", [HUNGRY[0], *(pytest.param(q, marks=pytest.mark.slow) for q in HUNGRY[1:])]
)
def test_memory_is_limited(lake: Lake, sql: str) -> None:
    bounds = Limits(memory_mib=100, seconds=4, result_mib=64)
    with pytest.raises((RetryableError, QueryError, QueryTimeoutError)):
        query_untrusted(lake, sql, limits=bounds)


def test_the_process_inherits_no_secrets(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse.sandbox.client import worker_environment

    monkeypatch.setenv("HEADRACE_MASTER_KEY", "secret")
    assert "HEADRACE_MASTER_KEY" in os.environ
    assert "HEADRACE_MASTER_KEY" not in worker_environment()


def test_a_lake_is_asked_alike_wherever_it_is(place: tuple[str, dict[str, str]]) -> None:
    path, options = place
    made = Lake.open(path, options=options)
    made.append(make.batch("t1"), app_id="a", version=0)
    made.append(
        GovernedBatch(steps=(make.step("t2", 0, tenant_id="rival"),)), app_id="a", version=1
    )
    reader = Lake.read(path, options=options)
    sql = "SELECT tenant_id, count(*) AS n FROM steps GROUP BY ALL"
    assert query_untrusted(reader, sql, tenant="rival").table.to_pylist() == [
        {"tenant_id": "rival", "n": 1}
    ]
    success = query_untrusted(reader, "SELECT success FROM trajectories", tenant="acme")
    assert success.table["success"].to_pylist() == [True]
    with pytest.raises(QueryError):
        query_untrusted(reader, f"SELECT * FROM '{path}/steps'", tenant="acme")  # noqa: S608
    with open_untrusted(reader, Query("SELECT 1")) as answer:
        assert answer.confined == available()
    views = query_untrusted(reader, "SELECT sql FROM duckdb_views()", tenant="acme").table
    assert not [name for name in (*options, "rival") if name in str(views.to_pylist())]
