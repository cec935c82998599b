"""How long the console's pages take over a lake of a million steps; the last line is JSON.

    make bench-console ARGS=--quick

Each page is asked several times by somebody who sees every tenant, in this process, without a network.
``pages_p95_ms``: of all requests after each page's first one; ``pages_p50_ms`` likewise;
``pages_cpu_p95_ms``: the same in processor time, whatever else the machine does; ``slowest``: the median of
each page, the slowest first. That no script runs and no other host is asked, Chromium shows in
``tests/interop/browser``.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from benchmarks.evolve import large_lake
from headrace.app.context import AppContext
from headrace.app.settings import ConsoleSettings
from headrace.console.app import application
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from headrace.console.sign_in import COOKIE
from headrace.console.users import TrustedProxies, local_user
from headrace.services.sql_server import sql_service

_PAGES = (
    "/home",
    "/trajectories",
    "/trajectories?outcome=failed",
    "/trajectories?outcome=tool+failures",
    "/trajectories/{id}",
    "/trajectories/{id}?view=steps",
    "/review?outcome=failed",
    "/policy",
    "/privacy",
    "/models",
    "/evolve",
    "/runs",
    "/tables",
    "/account",
)


def measured(home: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of the pages over a home's lake."""
    running = AppContext(home, debug=False)
    running.home.create()
    service = sql_service(running.settings, running.home, running.secrets, running.lake)
    sessions = SessionStore(running.home.sessions, idle_seconds=36_000, longest_seconds=36_000)
    console = Console(running, service, sessions, TrustedProxies(ConsoleSettings()))
    client = TestClient(application(console), base_url="https://localhost", follow_redirects=False)
    client.headers["cookie"] = f"{COOKIE}={sessions.begin(local_user('bench'))}"
    newest = running.lake.query("SELECT trajectory_id FROM steps ORDER BY started_at DESC LIMIT 1")
    trajectory = newest.column(0)[0].as_py()
    taken: dict[str, list[float]] = {page: [] for page in _PAGES}
    spent: list[float] = []
    for number in range(rounds + 1):
        for page in _PAGES:
            begun, used = time.perf_counter(), time.process_time()
            answer = client.get(page.format(id=trajectory))
            seconds, cpu = time.perf_counter() - begun, time.process_time() - used
            if answer.status_code != 200:
                raise SystemExit(f"{page}: HTTP {answer.status_code}")
            if number:
                taken[page].append(1000 * seconds)
                spent.append(1000 * cpu)
    steps = running.lake.query("SELECT count(*) FROM steps").column(0)[0].as_py()
    console.close()
    every = [one for times in taken.values() for one in times]
    medians = {page: round(statistics.median(times)) for page, times in taken.items()}
    slowest = sorted(medians.items(), key=lambda one: -one[1])
    return {
        "steps": steps,
        "pages_p50_ms": round(statistics.median(every)),
        "pages_p95_ms": round(statistics.quantiles(every, n=20)[18]),
        "pages_cpu_p95_ms": round(statistics.quantiles(spent, n=20)[18]),
        "slowest": dict(slowest),
    }


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="20,000 steps, within 50 s")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    steps, rounds = (20_000, 3) if chosen.quick else (chosen.steps, chosen.rounds)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        large_lake(home / "lake", steps)
        print(json.dumps(measured(home, rounds)))


if __name__ == "__main__":
    main()
