"""Measures the SQL server beside the same query in this process; the last line is JSON.

``flight_vs_local``: rows per second through Flight SQL (a real ADBC client on loopback, the query in
its sandboxed process) over those of ``Lake.query`` into Arrow. ``http_vs_local`` the same through the
HTTP endpoint in Arrow. ``first_row_ms``: median from sending a small question to its whole answer,
with a process that waited for it; ``cold_ms`` without.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import httpx
import pyarrow as pa

from lakehouse.lake import Lake
from lakehouse.sandbox.request import Limits
from lakehouse.sql_server.flight import FlightServer
from lakehouse.sql_server.http import ARROW, http_server
from lakehouse.sql_server.service import Reader, SqlLimits, SqlService
from tests.lakehouse import make
from tests.lakehouse.sandbox_results import query_untrusted

WIDE = "SELECT * FROM steps"
SMALL = "SELECT count(*) FROM steps WHERE trajectory_id = 't1'"


def filled(root: str, rows: int) -> Lake:
    """Return a lake with ``rows`` steps."""
    lake = Lake.open(root)
    base = make.step("t1", 0)
    batch = 50_000
    for start in range(0, rows, batch):
        steps = [replace(base, step_id=f"s{n}") for n in range(start, min(rows, start + batch))]
        lake.append_rows("steps", steps)
    return lake


def best(times: int, work: Callable[[], int]) -> float:
    """Return the most rows per second of a few runs."""
    rates = []
    for _ in range(times):
        begun = time.perf_counter()
        rows = work()
        rates.append(rows / (time.perf_counter() - begun))
    return max(rates)


def milliseconds(times: int, work: Callable[[], object], pause: float = 0.0) -> float:
    """Return the median of a few runs."""
    taken = []
    for _ in range(times):
        time.sleep(pause)
        begun = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - begun))
    return statistics.median(taken)


def measured(lake: Lake, times: int) -> dict[str, Any]:
    """Return the figures of one lake."""
    reader = Reader("bench", "acme")
    limits = SqlLimits(Limits(seconds=120, memory_mib=1024, rows=1 << 40, result_mib=1 << 20))
    service = SqlService(
        lake,
        authenticate=lambda _: reader,
        record=lambda **_: None,
        hash_key=b"bench",
        limits=limits,
    )
    flight = FlightServer(service, host="127.0.0.1", port=0, version="bench")
    http = http_server(service, host="127.0.0.1", port=0)
    threading.Thread(target=flight.serve, daemon=True).start()
    header = {"adbc.flight.sql.authorization_header": "Bearer bench"}
    address = f"grpc://127.0.0.1:{flight.port}"
    connection = flightsql.connect(address, db_kwargs=header, autocommit=True)
    url = f"http://127.0.0.1:{http.port}/v1/sql"

    def by_flight(sql: str = WIDE) -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.fetch_arrow_table().num_rows)

    def by_http() -> int:
        answer = httpx.post(
            url,
            json={"sql": WIDE},
            headers={"accept": ARROW, "authorization": "Bearer bench"},
            timeout=120,
        )
        return int(pa.ipc.open_stream(answer.content).read_all().num_rows)

    table = lake.query(WIDE)
    local = best(times, lambda: int(lake.query(WIDE).num_rows))
    by_flight()
    with http:
        http_rows_s = best(times, by_http)
    figures = {
        "rows": table.num_rows,
        "mib": round(table.nbytes / (1 << 20), 1),
        "local_rows_s": round(local),
        "flight_rows_s": round(best(times, by_flight)),
        "http_rows_s": round(http_rows_s),
        "first_row_ms": round(milliseconds(5, lambda: by_flight(SMALL), pause=1.5), 1),
        "cold_ms": round(milliseconds(3, lambda: query_untrusted(lake, SMALL)), 1),
    }
    figures["flight_vs_local"] = round(figures["flight_rows_s"] / local, 3)
    figures["http_vs_local"] = round(figures["http_rows_s"] / local, 3)
    connection.close()
    service.close()
    flight.shutdown()
    return figures


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s")
    options = parser.parse_args()
    rows = 50_000 if options.quick else options.rows
    with tempfile.TemporaryDirectory() as root:
        print(json.dumps(measured(filled(root, rows), 2 if options.quick else 3)))


if __name__ == "__main__":
    main()
