"""One SELECT over tables passes; whatever asks the machine, or runs SQL from a string, does not."""

import pytest

from lakehouse.errors import QueryError
from lakehouse.read.connection import connect
from lakehouse.sandbox.statement import LONGEST, REFUSED_FUNCTIONS, check

PASSING = [
    "SELECT * FROM steps",
    "FROM trajectories SELECT count(*)",
    "VALUES (1), (2)",
    "SHOW TABLES",
    "DESCRIBE steps",
    "SUMMARIZE SELECT 1",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM duckdb_columns()",
    "SELECT unnest([1, 2]), * FROM generate_series(3)",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t",
    "SELECT * FROM json_each('[1]') -- the end",
    "PIVOT (SELECT 1 AS a, 2 AS b) ON a IN (1) USING sum(b)",
]

REFUSED = [
    "COPY (SELECT 1) TO '/tmp/stolen'",
    "SET memory_limit = '100GB'",
    "PRAGMA enable_external_access = true",
    "RESET lock_configuration",
    "ATTACH '/tmp/x.db'",
    "DETACH headrace",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "UPDATE EXTENSIONS",
    "CREATE TABLE t AS SELECT 1",
    "CREATE SECRET (TYPE s3)",
    "CREATE MACRO f() AS 1",
    "DROP VIEW steps",
    "INSERT INTO steps VALUES (1)",
    "DELETE FROM steps",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "VACUUM",
    "CHECKPOINT",
    "BEGIN",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '/tmp/stolen'",
    "CALL pragma_database_size()",
    "SET VARIABLE x = 1",
    "",
    ";",
    "SELEC",
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "SELECT '" + "x" * LONGEST + "'",
]

ASKING_THE_MACHINE = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM READ_BLOB('/proc/self/environ')",
    "SELECT * FROM read_parquet('/tmp/**')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM parquet_metadata('x')",
    "SELECT * FROM sqlite_scan('a', 'b')",
    "SELECT * FROM postgres_scan('a', 'b', 'c')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM query('COPY (SELECT 1) TO ''/tmp/stolen''')",
    "SELECT * FROM query_table('steps')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM which_secret('s3://a', 's3')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_settings",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM create_external_resource('a', MAP {})",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM checkpoint()",
    "SELECT current_setting('allowed_paths')",
    "SELECT getenv('HOME')",
    "SELECT sleep_ms(100000)",
    "SELECT json_serialize_plan('SELECT current_setting(''allowed_paths'')', optimize := true)",
    "SELECT getvariable('x')",
    "SELECT setval('a', 1)",
    "SELECT write_log('x')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM range(3) AS t, LATERAL (SELECT * FROM glob(t.range::VARCHAR))",
    "WITH a AS MATERIALIZED (FROM glob('*')) SELECT * FROM a",
    "SELECT 1 ORDER BY (SELECT count(*) FROM glob('*'))",
    "SELECT list_transform([1], lambda x: (SELECT getenv('a')))",
    "DESCRIBE SELECT * FROM read_text('/etc/passwd')",
]


@pytest.mark.parametrize("sql", PASSING)
def test_questions_pass(sql: str) -> None:
    check(connect(), sql)


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: sql[:40])
def test_other_statements_are_refused(sql: str) -> None:
    with pytest.raises(QueryError):
        check(connect(), sql)


HARMLESS = frozenset({
    "current_database", "current_date", "current_schema", "current_schemas", "error",
    "gen_random_uuid", "get_current_time", "get_current_timestamp", "in_search_path", "now",
    "random", "today", "transaction_timestamp", "uuid", "uuidv4", "uuidv7", "vector_type",
})  # fmt: skip
"""Functions whose answer is not the same each time, and that tell of no process."""


def test_each_function_of_the_installed_duckdb_that_does_more_than_compute_is_judged() -> None:
    found = connect().sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar' "
        "AND (has_side_effects OR stability <> 'CONSISTENT' "
        "OR regexp_matches(function_name, 'execute|serialize_plan|query|setting|getenv|read_'))"
    )
    assert {name for (name,) in found.fetchall()} <= REFUSED_FUNCTIONS | HARMLESS


@pytest.mark.parametrize("sql", ASKING_THE_MACHINE, ids=lambda sql: sql[:40])
def test_what_asks_the_machine_is_refused_and_says_so(sql: str) -> None:
    with pytest.raises(QueryError, match="not allowed here"):
        check(connect(), sql)


def test_a_statement_tells_what_it_names_and_no_value() -> None:
    sql = "WITH mine AS (SELECT * FROM main.Steps WHERE app_id = 'secret') SELECT * FROM mine JOIN runs USING (x) WHERE a = $who AND b = ?"
    with pytest.raises(QueryError):
        check(connect(), sql)  # named and positional parameters do not mix
    found = check(connect(), sql.replace("?", "$b"))
    assert (found.tables, found.parameters) == (("runs", "steps"), ("b", "who"))
    assert check(connect(), "SELECT ? + ?").parameters == ("1", "2")
    assert check(connect(), "SHOW TABLES").asks_what_there_is
    assert not check(connect(), "SELECT 1").asks_what_there_is
