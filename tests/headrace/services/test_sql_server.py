"""``headrace sql-server``: real keys, TLS, audit; it listens beyond this machine only with a certificate."""
# ruff: noqa: S104 - addresses of all interfaces are what is refused here

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import httpx
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from headrace.app.settings import SqlServerSettings
from headrace.services.sql_server import limits_of, tls_of
from lakehouse.lake import Lake
from lakehouse.sql_server import flight_sql_pb2 as messages
from lakehouse.sql_server.flight import packed
from proxy.clients.keys import KeyRegistry
from tests.lakehouse import make
from trajectory.errors import ConfigurationError


def certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "door.pem", folder / "door.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, private


@pytest.fixture
def running(tmp_path: Path) -> Iterator[dict[str, Any]]:
    home = tmp_path / "home"
    lake = Lake.open(str(home / "lake"))
    lake.append(make.batch("t1"), app_id="a", version=0)
    chain, private = certificate(tmp_path)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
        "HEADRACE_HOME": str(home),
        "HEADRACE_SQL_SERVER_PORT": "0",
        "HEADRACE_SQL_SERVER_SECONDS": "20",
        "HEADRACE_SQL_SERVER_HTTP_PORT": "0",
        "HEADRACE_SQL_SERVER_CERTIFICATE": str(chain),
        "HEADRACE_SQL_SERVER_CERTIFICATE_KEY": str(private),
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace", "sql-server"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert process.stderr is not None
    grpc, http = (process.stderr.readline().split()[-1] for _ in range(2))
    registry = KeyRegistry.load(home / "keys.json")
    yield {
        "grpc": grpc.replace("127.0.0.1", "localhost"),
        "http": http.replace("127.0.0.1", "localhost"),
        "chain": chain,
        "registry": registry,
        "home": home,
        "process": process,
    }
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stderr.close()


def connected(door: dict[str, Any], key: str) -> Any:
    options = {
        DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {key}",
        DatabaseOptions.TLS_ROOT_CERTS.value: door["chain"].read_text(encoding="ascii"),
    }
    return dbapi.connect(door["grpc"], db_kwargs=options, autocommit=True)


def test_the_sql_server_of_an_installation(running: dict[str, Any]) -> None:
    registry = running["registry"]
    reader = registry.create(tenant_id="acme", app_id="bi", roles=("lake",))
    caller = registry.create(tenant_id="acme", app_id="bot")
    with connected(running, reader.secret) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM steps WHERE app_id = ?", ("shop",))
        assert cursor.fetchall() == [(2,)]
        with pytest.raises(dbapi.ProgrammingError) as refused:
            cursor.execute("SELECT nosuch FROM steps")
        assert "Traceback" not in str(refused.value)
        assert "/" not in str(refused.value)
    with pytest.raises(dbapi.Error), connected(running, caller.secret) as connection:
        connection.adbc_get_table_types()
    trusted = str(running["chain"])
    context = ssl.create_default_context(cafile=trusted)
    asked = httpx.post(
        running["http"],
        json={"sql": "SELECT 1 AS a"},
        headers={"authorization": f"Bearer {reader.secret}"},
        verify=context,
    )
    assert asked.json()["rows"] == [[1]]
    registry.revoke(reader.key.key_id)
    lines = (running["home"] / "audit" / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    actions = [json.loads(line)["action"] for line in lines]
    pair = ["lake.asked", "lake.answered"]
    assert actions == [*pair, "lake.refused", *pair]
    assert "shop" not in "".join(lines)


@pytest.mark.slow
def test_a_client_that_reads_no_more_does_not_keep_the_server_from_stopping(
    running: dict[str, Any],
) -> None:
    reader = running["registry"].create(tenant_id="acme", app_id="bi", roles=("lake",))
    audit = running["home"] / "audit" / "audit.jsonl"
    query = messages.TicketStatementQuery(
        statement_handle=b"SELECT repeat('z', 200) FROM range(40000) a, range(100) b"
    )
    keyed = flight.FlightCallOptions(
        headers=[(b"authorization", f"Bearer {reader.secret}".encode())]
    )
    trusted = running["chain"].read_bytes()
    with flight.FlightClient(running["grpc"], tls_root_certs=trusted) as client:
        answer = client.do_get(flight.Ticket(packed(query)), keyed)
        answer.read_chunk()
        due = time.monotonic() + 120
        while "timed_out" not in audit.read_text(encoding="utf-8"):  # the server waits for it
            assert time.monotonic() < due
            time.sleep(0.1)
        running["process"].send_signal(signal.SIGTERM)
        assert running["process"].wait(60) == 0


def test_beyond_this_machine_a_certificate_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="in clear"):
        tls_of(SqlServerSettings(host="0.0.0.0"))
    assert tls_of(SqlServerSettings(host="0.0.0.0", allow_plaintext=True)) is None
    assert tls_of(SqlServerSettings(host="::1")) is None
    with pytest.raises(ConfigurationError, match="belong together"):
        tls_of(SqlServerSettings(certificate=tmp_path / "a"))
    with pytest.raises(ConfigurationError, match="not a file"):
        tls_of(SqlServerSettings(certificate=tmp_path / "a", certificate_key=tmp_path / "b"))


def test_limits_come_from_the_settings() -> None:
    limits = limits_of(SqlServerSettings(seconds=5, rows=7, queries=3))
    assert (limits.query.seconds, limits.query.rows, limits.queries) == (5, 7, 3)


def test_a_lake_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no lake"):
        Lake.read(str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
