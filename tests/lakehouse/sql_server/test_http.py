"""The server over HTTP: a question as JSON, rows as JSON or Arrow, refusals with a status."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakehouse.sql_server.flight import Tls
from lakehouse.sql_server.http import ARROW, http_server
from lakehouse.sql_server.service import SqlService
from tests.headrace.services.test_sql_server import certificate
from trajectory.http_server import HttpLimits, HttpServer


def serving(service: SqlService, **how: Any) -> HttpServer:
    return http_server(service, host="127.0.0.1", port=0, **how)


@pytest.fixture(scope="module")
def client(service: SqlService) -> Iterator[httpx.Client]:
    with serving(service) as server, asking(server) as made:
        yield made


def asking(server: HttpServer, scheme: str = "http", **how: Any) -> httpx.Client:
    base = f"{scheme}://127.0.0.1:{server.port}"
    keyed = {"authorization": "Bearer key-acme"}
    return httpx.Client(base_url=base, headers=keyed, timeout=60, trust_env=False, **how)


def posted(client: httpx.Client, sql: str, **more: Any) -> httpx.Response:
    return client.post("/v1/sql", json={"sql": sql, **more})


def test_rows_as_json(client: httpx.Client) -> None:
    sql = "SELECT step_id, started_at, 'nan'::DOUBLE AS x, [1.5::DOUBLE] AS l FROM steps WHERE step_index = $i"
    found = posted(client, sql, parameters={"i": 1}).json()
    assert [column["name"] for column in found["columns"]] == ["step_id", "started_at", "x", "l"]
    assert found["rows"] == [["t1-s1", "2026-11-20T12:00:01+00:00", None, [1.5]]]
    assert found["truncated"] is False
    cut = posted(client, "SELECT * FROM range(3000)").json()
    assert (len(cut["rows"]), cut["truncated"]) == (1000, True)


def test_rows_as_arrow(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/sql",
        json={"sql": "SELECT tenant_id, tool_calls FROM steps"},
        headers={"accept": ARROW},
    )
    table = pa.ipc.open_stream(answer.content).read_all()
    assert (table.num_rows, set(table["tenant_id"].to_pylist())) == (3, {"acme"})
    empty = client.post(
        "/v1/sql", json={"sql": "SELECT 1 AS a WHERE false"}, headers={"accept": ARROW}
    )
    assert pa.ipc.open_stream(empty.content).read_all().schema.names == ["a"]


def test_an_earlier_state(client: httpx.Client) -> None:
    before = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
    assert posted(client, "SELECT count(*) FROM steps", as_of=before).json()["rows"] == [[0]]


def test_what_there_is(client: httpx.Client) -> None:
    tables = {one["name"]: one for one in client.get("/v1/tables").json()["tables"]}
    assert "runs" not in tables
    step = next(column for column in tables["steps"]["columns"] if column["name"] == "step_id")
    assert (tables["steps"]["kind"], step["comment"]) == ("TABLE", "The step")
    assert httpx.get(client.base_url.join("/health")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b'{"sql": "DROP VIEW steps"}', 400, "one SELECT"),
        (b'{"sql": "SELECT ?", "parameters": "x"}', 400, "parameters are a list"),
        (b'{"sql": "SELECT 1", "as_of": "yesterday"}', 400, "as_of"),
        (b'{"sql": "SELECT 1", "asof": "2026-11-20"}', 400, "'asof' means nothing"),
        (b'{"sql": "SELECT \\ud800"}', 400, "surrogate"),
        (b'{"sql": "SELECT ?", "parameters": [' + b"[" * 900 + b"]" * 900 + b"]}", 400, "32 deep"),
        (b"not json", 400, "send JSON"),
        (b"[" * 100_000, 400, "send JSON"),
        (b"{}", 400, "send JSON"),
        (b"", 400, "1 to"),
    ],
)
def test_refusals_have_a_status_and_a_reason(
    client: httpx.Client, body: bytes, status: int, said: str
) -> None:
    answer = client.post("/v1/sql", content=body)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]


def test_without_a_key_nothing_is_answered(client: httpx.Client) -> None:
    for headers in (
        {"authorization": ""},
        {"authorization": "Bearer nobody"},
        {"authorization": "Basic a2V5LWFjbWU="},
    ):
        assert client.post("/v1/sql", json={"sql": "SELECT 1"}, headers=headers).status_code == 401
        assert client.get("/v1/tables", headers=headers).status_code == 401
    assert client.get("/nothing").status_code == 404


def test_an_answer_that_breaks_off_has_no_end(client: httpx.Client) -> None:
    sql = "SELECT if(range < 900, repeat('x', 9000000), error('late')) AS a FROM range(1000)"
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(
            "/v1/sql", json={"sql": "SELECT * FROM range(30000)"}, headers={"accept": ARROW}
        )
    assert posted(client, sql).status_code in (400, 503)


def test_a_client_that_leaves_gives_its_place_back(service: SqlService) -> None:
    body = b'{"sql": "SELECT range, repeat(range::VARCHAR, 9999) FROM range(900)"}'
    head = (
        b"POST /v1/sql HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-acme\r\n"
        b"content-length: %d\r\n\r\n"
    )
    with serving(service) as server, asking(server) as client:
        left, due = 0, time.monotonic() + 60
        while left <= service.limits.queries_per_key:
            assert time.monotonic() < due
            with half(server, head % len(body) + body) as leaving:
                left += leaving.recv(100).startswith(b"HTTP/1.1 200")
        while posted(client, "SELECT 1").status_code != 200:
            assert time.monotonic() < due


HURRIED = HttpLimits(request_seconds=1)
HALF = b"POST /v1/sql HTTP/1.1\r\nhost: x\r\nauthorization: "


def half(server: HttpServer, sent: bytes = HALF, source: str = "127.0.0.1") -> socket.socket:
    address = ("127.0.0.1", server.port)
    made = socket.create_connection(address, timeout=20, source_address=(source, 0))
    made.sendall(sent)
    return made


def is_closed(waiting: socket.socket) -> bool:
    """Return whether the other side has closed a connection, without waiting for it."""
    waiting.setblocking(False)
    try:
        return not waiting.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_strangers_with_half_requests_keep_nobody_out(service: SqlService) -> None:
    """The crowd loses places, not who came before it from elsewhere."""
    with serving(service) as server, ExitStack() as held, asking(server) as before:
        assert posted(before, "SELECT 1").status_code == 200
        patient = held.enter_context(half(server, source="127.0.0.2"))
        crowd = [held.enter_context(half(server)) for _ in range(150)]
        with asking(server) as client:
            assert posted(client, "SELECT 1").status_code == 200
        assert sum(map(is_closed, crowd)) >= 150 - 64
        assert not is_closed(patient)


def test_one_key_with_half_requests_takes_no_place_of_another_key(service: SqlService) -> None:
    begun = (
        b"POST /v1/sql HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-rival\r\n"
        b"content-length: 99\r\n\r\n{"
    )
    with serving(service) as server, ExitStack() as held, asking(server) as other:
        for _ in range(150):
            held.enter_context(half(server, begun))
        assert posted(other, "SELECT 1").status_code == 200


def test_a_request_has_a_deadline_as_a_whole(service: SqlService) -> None:
    keyed = b"POST /v1/sql HTTP/1.1\r\nauthorization: Bearer key-acme\r\ncontent-length: 99\r\n\r\n"
    with serving(service, limits=HURRIED) as server:
        for begun in (HALF, keyed, b""):
            with half(server, begun) as dripping:
                due = time.monotonic() + 60
                while not is_closed(dripping) and time.monotonic() < due:
                    time.sleep(0.1)
                    dripping.setblocking(True)
                    with suppress(OSError):
                        dripping.sendall(b"x" if begun else b"")
                assert time.monotonic() < due, begun


def test_an_answer_may_take_longer_than_its_request(service: SqlService) -> None:
    slow = "SELECT count(*) FROM range(9000) a, range(9000) b WHERE (a.range * b.range) % 7 = 3"
    with serving(service, limits=HURRIED) as server, asking(server) as client:
        assert posted(client, slow).status_code in (200, 504)
        assert posted(client, "SELECT 1").status_code == 200


def test_half_handshakes_keep_nobody_out(service: SqlService, tmp_path: Path) -> None:
    chain, private = certificate(tmp_path)
    with serving(service, tls=Tls(chain, private)) as server, ExitStack() as held:
        for _ in range(70):
            held.enter_context(half(server, b"\x16\x03"))
        with asking(server, "https", verify=False) as client:
            assert posted(client, "SELECT 1").status_code == 200
            assert posted(client, "SELECT 2").status_code == 200
