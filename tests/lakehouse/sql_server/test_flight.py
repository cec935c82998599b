"""The server as ADBC clients meet it: rows, parameters, what there is to ask, and refusals."""

import threading
from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import polars
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager import AdbcStatement
from pyarrow import flight

from lakehouse.lake import Lake
from lakehouse.sandbox.request import Limits
from lakehouse.sql_server import flight_sql_pb2 as messages
from lakehouse.sql_server.flight import FlightServer, packed, unpacked
from lakehouse.sql_server.service import SqlLimits, SqlService
from tests.lakehouse import make
from tests.lakehouse.sql_server.conftest import READERS, AuditEntries


def connected(address: str, key: str) -> Any:
    header = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {key}"}
    return dbapi.connect(address, db_kwargs=header, autocommit=True)


@pytest.fixture(scope="module")
def acme(flight_address: str) -> Iterator[Any]:
    with connected(flight_address, "key-acme") as connection:
        yield connection


def asked(connection: Any, sql: str, parameters: Any = None) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
    return rows


def test_rows_with_and_without_parameters(acme: Any) -> None:
    assert asked(acme, "SELECT count(*) AS n FROM steps") == [{"n": 3}]
    sql = "SELECT step_id FROM steps WHERE step_index = ? AND started_at >= ? AND tenant_id = ?"
    assert asked(acme, sql, (1, make.NOON, "acme")) == [{"step_id": "t1-s1"}]
    with acme.cursor() as cursor:
        cursor.execute("SELECT step_index, step_id FROM headrace.main.steps ORDER BY 1 LIMIT 2")
        assert cursor.fetchone() == (0, "t1-s0")
        assert [column[0] for column in cursor.description] == ["step_index", "step_id"]
        assert cursor.fetchall() == [(1, "t1-s1")]


def test_polars_reads_nested_columns(acme: Any) -> None:
    frame = polars.read_database("SELECT step_id, started_at, tool_calls FROM steps", acme)
    assert frame.schema["started_at"] == polars.Datetime("us", "UTC")
    assert frame.height == 3


def test_what_there_is_to_ask(acme: Any, flight_address: str) -> None:
    found = acme.adbc_get_objects(depth="columns", table_name_filter="ste%").read_all().to_pylist()
    schema = found[0]["catalog_db_schemas"][0]
    assert (found[0]["catalog_name"], schema["db_schema_name"]) == ("headrace", "main")
    tables = {one["table_name"]: one for one in schema["db_schema_tables"]}
    assert {"steps", "steps_refused"} <= set(tables)
    assert all(name.startswith("ste") for name in tables)
    assert [tables["steps"]["table_type"], tables["steps_refused"]["table_type"]] == [
        "TABLE",
        "VIEW",
    ]
    assert "step_id" in {column["column_name"] for column in tables["steps"]["table_columns"]}
    assert acme.adbc_get_table_types() == ["TABLE", "VIEW"]
    assert acme.adbc_get_info()["vendor_name"] == "Headrace"
    assert acme.adbc_get_table_schema("trajectories").names[:2] == ["tenant_id", "trajectory_id"]
    with acme.cursor() as cursor:
        assert cursor.adbc_execute_schema("SELECT 1::BIGINT AS a") == pa.schema([("a", pa.int64())])


def test_a_tenants_key_finds_no_table_without_tenants_nor_token_ids(
    acme: Any, flight_address: str
) -> None:
    def names(connection: Any) -> set[str]:
        objects = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        tables = objects[0]["catalog_db_schemas"][0]["db_schema_tables"]
        return {table["table_name"] for table in tables}

    assert names(acme).isdisjoint({"tokens", "runs", "models", "substrates", "runs_latest"})
    with connected(flight_address, "key-all") as everything:
        assert {"tokens", "runs", "runs_latest"} <= names(everything)
        assert asked(everything, "SELECT count(DISTINCT tenant_id) AS n FROM steps") == [{"n": 2}]
    with pytest.raises(dbapi.ProgrammingError, match="tokens"):
        asked(acme, "SELECT * FROM tokens")


def test_a_password_is_a_key_too(flight_address: str) -> None:
    words = {"username": "anybody", "password": "key-rival"}
    with dbapi.connect(flight_address, db_kwargs=words, autocommit=True) as connection:
        assert asked(connection, "SELECT DISTINCT tenant_id FROM steps") == [{"tenant_id": "rival"}]


@pytest.mark.parametrize("key", ["", "wrong", "key-acme "])
def test_without_a_key_nothing_is_answered(flight_address: str, key: str) -> None:
    headers = [(b"authorization", f"Bearer {key}x".encode())]
    client = flight.connect(flight_address)
    with pytest.raises(flight.FlightUnauthenticatedError, match="role lake"):
        list(client.list_actions(flight.FlightCallOptions(headers=headers)))
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.get_flight_info(flight.FlightDescriptor.for_command(b""))
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.do_get(flight.Ticket(b"")).read_all()
    client.close()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nosuch FROM steps", "nosuch"),
        ("DROP VIEW steps", "one SELECT"),
        ("SELECT * FROM read_text('/etc/passwd')", "read_text"),
        ("SELECT * FROM range(2000)", "more than 1,000 rows"),
    ],
)
def test_refusals_say_why(acme: Any, sql: str, said: str) -> None:
    with pytest.raises(dbapi.Error, match=said):
        asked(acme, sql)


@pytest.mark.slow
def test_time_and_memory_are_limited_and_the_next_question_is_answered(
    lake: Lake, noted: AuditEntries
) -> None:
    limits = SqlLimits(Limits(seconds=10, memory_mib=100))
    service = SqlService(lake, authenticate=READERS.get, record=noted, hash_key=b"k", limits=limits)
    server = FlightServer(service, host="127.0.0.1", port=0, version="0")
    threading.Thread(target=server.serve, daemon=True).start()
    with connected(f"grpc://127.0.0.1:{server.port}", "key-acme") as client:
        with pytest.raises(dbapi.Error, match="stopped after 10 s"):
            asked(client, "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b")
        with pytest.raises(dbapi.Error, match=r"memory|stopped after"):
            asked(client, "SELECT list(a.range) FROM range(200000000) a")
        assert asked(client, "SELECT count(*) AS n FROM steps") == [{"n": 3}]
    server.shutdown()
    service.close()


def test_nothing_is_written(acme: Any) -> None:
    with acme.cursor() as cursor:
        with pytest.raises(dbapi.Error, match="only reads"):
            cursor.adbc_ingest("mine", pa.table({"a": [1]}))
        with pytest.raises(dbapi.Error, match="only reads"):
            cursor.executemany("SELECT ?", [(1,), (2,)])


def test_bytes_that_are_no_message_are_refused(flight_address: str) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer key-acme")])
    client = flight.connect(flight_address)
    for data in (b"", b"\xff", b"SELECT 1", b"\x0a\x03abc"):
        with pytest.raises(pa.ArrowInvalid):
            client.get_flight_info(flight.FlightDescriptor.for_command(data), options)
        with pytest.raises(pa.ArrowInvalid):
            client.do_get(flight.Ticket(data), options)
    with pytest.raises(pa.ArrowInvalid):
        client.get_flight_info(flight.FlightDescriptor.for_path("messages"), options)
    client.close()


def test_a_ticket_that_holds_no_text_is_refused(flight_address: str) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer key-acme")])
    client = flight.connect(flight_address)
    ticket = flight.Ticket(packed(messages.TicketStatementQuery(statement_handle=b"\xff")))
    with pytest.raises(pa.ArrowInvalid, match="no text"):
        client.do_get(ticket, options)
    client.close()


def test_a_prepared_statement_belongs_to_its_key(flight_address: str, acme: Any) -> None:
    with acme.cursor() as cursor:
        statement: AdbcStatement = cursor.adbc_statement
        statement.set_sql_query("SELECT ?::BIGINT AS a")
        statement.prepare()
        for value in (1, 2):
            statement.bind(pa.record_batch({"a": [value]}))
            stream, _ = statement.execute_query()
            assert pa.RecordBatchReader._import_from_c(stream.address).read_all().to_pylist() == [
                {"a": value}
            ]


def test_what_an_answer_holds_is_told_before_it_is_fetched(flight_address: str) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer key-acme")])
    client = flight.connect(flight_address)

    def prepared(sql: str) -> Any:
        asked = packed(messages.ActionCreatePreparedStatementRequest(query=sql))
        (made,) = client.do_action(flight.Action("CreatePreparedStatement", asked), options)
        result = unpacked(made.body.to_pybytes())
        handle = result.prepared_statement_handle
        command = packed(messages.CommandPreparedStatementQuery(prepared_statement_handle=handle))
        return client.get_flight_info(flight.FlightDescriptor.for_command(command), options).schema

    assert prepared("SELECT count(*) AS n FROM steps") == pa.schema([("n", pa.int64())])
    assert prepared("SELECT ? AS n") is None  # what is bound has its own type
    command = flight.FlightDescriptor.for_command(packed(messages.CommandGetTableTypes()))
    assert client.get_flight_info(command, options).schema.names == ["table_type"]
    client.close()


def test_the_audit_has_the_question_and_no_value(acme: Any, noted: AuditEntries) -> None:
    noted.clear()
    asked(acme, "SELECT step_id FROM steps WHERE app_id = 'a-secret-word'")
    before, after = noted
    assert (before["actor"], before["action"]) == ("acme-1", "lake.asked")
    assert before["detail"] == {"tenant": "acme", "tables": ["steps"]}
    assert (after["action"], after["subject"]) == ("lake.answered", before["subject"])
    assert (after["detail"]["outcome"], after["detail"]["rows"]) == ("answered", 0)
    assert "a-secret-word" not in str(list(noted))
