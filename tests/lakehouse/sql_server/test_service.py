"""Tenants stay apart whatever is asked; places, deadlines and clients that leave."""

import time

import pytest

from governance.records import GovernedBatch
from lakehouse.errors import QueryError
from lakehouse.lake import Lake
from lakehouse.read.session import Session
from lakehouse.read.views.catalog import VIEWS
from lakehouse.sandbox.request import Limits
from lakehouse.sandbox.stream import QueryCancelledError
from lakehouse.schema.tables import TABLES
from lakehouse.sql_server.service import (
    QueriesBusyError,
    Reader,
    SqlLimits,
    SqlService,
    TooManyRowsError,
)
from tests.lakehouse import make
from tests.lakehouse.sql_server.conftest import READERS, AuditEntries

RIVAL = READERS["key-rival"]
LONG = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"


def rows(service: SqlService, reader: Reader, sql: str) -> list[tuple[object, ...]]:
    asked = service.ask(reader, sql)
    found = [tuple(row.values()) for batch in asked.batches() for row in batch.to_pylist()]
    asked.close()
    return found


HOSTILE = [
    "SELECT tenant_id FROM steps WHERE tenant_id = 'acme' OR 1 = 1",
    "SELECT tenant_id FROM headrace.main.steps UNION ALL SELECT tenant_id FROM exchanges",
    "SELECT t.tenant_id FROM steps s RIGHT JOIN trajectories t ON true",
    "WITH steps AS (SELECT * FROM main.steps) SELECT tenant_id FROM steps",
    "SELECT any_value(tenant_id) FROM steps GROUP BY ROLLUP (tenant_id)",
    "SELECT (SELECT max(tenant_id) FROM governance) FROM range(3)",
    "FROM eligible_steps SELECT tenant_id",
    "SELECT sql FROM duckdb_views()",
    "SELECT view_definition FROM information_schema.views",
    "SELECT * FROM 'steps/tenant_id=acme/event_date=2026-11-20/*.parquet'",
    "SELECT * FROM '../lake/steps/tenant_id=acme'",
    "SELECT * FROM read_parquet('steps/**/*.parquet')",
    "SELECT * FROM steps AT (VERSION => 1)",
    "SELECT * FROM parquet_metadata('steps/tenant_id=acme')",
    "SELECT * FROM query('SELECT * FROM steps')",
    "SELECT * FROM memory.main.steps",
    "SELECT error(string_agg(tenant_id, ',')) FROM steps",
]


@pytest.mark.parametrize(
    "sql", [*HOSTILE[:3], *(pytest.param(sql, marks=pytest.mark.slow) for sql in HOSTILE[3:])]
)
def test_no_sql_reaches_another_tenant(service: SqlService, sql: str) -> None:
    try:
        found = str(rows(service, RIVAL, sql))
    except QueryError as error:
        found = str(error).split("LINE 1:")[0]  # the rest repeats the question
    assert "t1" not in found
    assert "acme" not in found.replace("tenant_id=acme", "") or "acme" in sql.split("(")[0]


def test_every_table_and_view_shows_a_tenant_its_own_rows_only(lake: Lake) -> None:
    session = Session(lake.snapshot_for("rival"))
    names = [*TABLES, *(view.name for view in VIEWS)]
    seen = 0
    for name in names:
        try:
            found = session.query(f"SELECT * FROM {name}")  # noqa: S608 - our own names
        except QueryError:  # does not exist for one tenant
            continue
        seen += 1
        assert "acme" not in str(found.to_pylist()), name
        if "tenant_id" in found.column_names:
            assert set(found["tenant_id"].to_pylist()) <= {"rival"}, name
    assert seen > 25


ODD = [
    "a",
    "a b",
    "a/b",
    "a%2Fb",
    "..",
    "a' OR '1'='1",
    "tenant_id=a",
    "a\\b",
    "ä",
    "a=b&c#d?e",
    "A",
]


def test_names_of_tenants_are_names_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lake = Lake.open(str(tmp_path_factory.mktemp("odd")))
    steps = [make.step(f"t{n}", 0, tenant_id=tenant) for n, tenant in enumerate(ODD)]
    lake.append(GovernedBatch(steps=tuple(steps)), app_id="a", version=0)
    for tenant in [*ODD, "%", "*", "a_b", "nobody"]:
        session = Session(lake.snapshot_for(tenant))
        found = session.query("SELECT tenant_id FROM steps")["tenant_id"].to_pylist()
        assert found == ([tenant] if tenant in ODD else [])
        session.close()


def test_places_are_limited_and_given_back(lake: Lake, noted: AuditEntries) -> None:
    limits = SqlLimits(Limits(seconds=10), queries=2, queries_per_key=1, wait_seconds=0.2)
    service = SqlService(lake, authenticate=READERS.get, record=noted, hash_key=b"k", limits=limits)
    first = service.ask(RIVAL, "SELECT * FROM range(5)")
    with pytest.raises(QueriesBusyError):
        service.ask(RIVAL, "SELECT 1")
    with pytest.raises(QueryError, match="object"):
        service.ask(
            READERS["key-acme"], "SELECT ?", [object()]
        )  # a failure gives its place back too
    other = service.ask(READERS["key-acme"], "SELECT 1")
    with pytest.raises(QueriesBusyError):
        service.ask(READERS["key-all"], "SELECT 1")
    first.close()
    other.close()
    assert rows(service, RIVAL, "SELECT 1 AS a") == [(1,)]
    service.close()


@pytest.mark.slow
def test_who_reads_no_more_gives_the_place_back_at_the_deadline(
    lake: Lake, noted: AuditEntries
) -> None:
    """As a BI tool does that shows the first rows of an answer, or a laptop that sleeps."""
    limits = SqlLimits(
        Limits(seconds=20, memory_mib=256), queries=1, queries_per_key=1, wait_seconds=60
    )
    service = SqlService(
        lake, authenticate=READERS.get, record=noted, hash_key=b"k" * 32, limits=limits
    )
    stuck = service.ask(RIVAL, "SELECT a.range FROM range(3000000) a, range(3000) b")
    batches = stuck.batches()
    next(batches)
    assert rows(service, RIVAL, "SELECT 1") == [(1,)]
    ended = [one["detail"]["outcome"] for one in noted if one["action"] == "lake.answered"][-2:]
    assert ended == ["timed_out", "answered"]
    before = len(noted)
    stuck.close()
    assert len(noted) == before
    service.close()


def test_too_many_rows_are_an_error_unless_the_caller_may_have_them_cut(
    service: SqlService,
) -> None:
    with pytest.raises(TooManyRowsError):
        rows(service, RIVAL, "SELECT * FROM range(1001)")
    asked = service.ask(RIVAL, "SELECT * FROM range(1001)")
    assert sum(batch.num_rows for batch in asked.batches(may_be_cut=True)) == 1000
    assert asked.outcome == "truncated"
    asked.close()


def test_a_server_that_closes_ends_its_questions(lake: Lake, noted: AuditEntries) -> None:
    service = SqlService(lake, authenticate=READERS.get, record=noted, hash_key=b"k")
    begun = time.monotonic()
    with pytest.raises(QueryCancelledError):
        service.ask(
            RIVAL,
            LONG,
            gone=lambda: service.close() or False if time.monotonic() - begun > 0.7 else False,
        )
    assert time.monotonic() - begun < 40
    assert noted[-1]["action"] == "lake.refused"
