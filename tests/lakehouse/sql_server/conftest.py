"""One lake of two tenants behind one server, for all tests of the server."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.sandbox.request import Limits
from lakehouse.sql_server.flight import FlightServer
from lakehouse.sql_server.service import Reader, SqlLimits, SqlService
from tests.lakehouse import make

READERS = {
    "key-acme": Reader("acme-1", "acme"),
    "key-rival": Reader("rival-1", "rival"),
    "key-tokens": Reader("acme-2", "acme", tokens=True),
    "key-all": Reader("all-1", None, tokens=True),
}


class AuditEntries(list[dict[str, Any]]):
    """An audit that keeps its entries."""

    def __call__(self, **entry: Any) -> None:
        self.append(entry)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.open(str(tmp_path_factory.mktemp("door") / "lake"))
    made.append(make.batch("t1", steps=3), app_id="a", version=0)
    other = make.step("t2", 0, tenant_id="rival")
    rows = GovernedBatch(
        exchanges=(make.ledger(other),),
        steps=(other,),
        governance=(make.governed(other),),
        signals=(make.signal("t2", 0.0, tenant_id="rival"),),
    )
    made.append(rows, app_id="a", version=1)
    return made


@pytest.fixture(scope="session")
def noted() -> AuditEntries:
    return AuditEntries()


@pytest.fixture(scope="session")
def service(lake: Lake, noted: AuditEntries) -> Iterator[SqlService]:
    limits = SqlLimits(Limits(seconds=20, rows=1000, memory_mib=256), wait_seconds=0.3)
    made = SqlService(
        lake, authenticate=READERS.get, record=noted, hash_key=b"k" * 32, limits=limits
    )
    yield made
    made.close()


@pytest.fixture(scope="session")
def flight_address(service: SqlService) -> Iterator[str]:
    server = FlightServer(service, host="127.0.0.1", port=0, version="0")
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield f"grpc://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join(5)
