"""How long the console's pages take over a lake of a million steps; the last line is JSON.

    make bench-console ARGS=--quick

Each page is asked several times by somebody who sees every tenant, in this process, without a network.
``pages_p95_ms``: of all requests after each page's first one; ``pages_p50_ms`` likewise;
``pages_cpu_p95_ms``: the same in processor time, whatever else the machine does; ``slowest``: the median of
each page, the slowest first.

Then ``headrace up`` runs over the lake. ``label_visible_s``: the median time from a click in Review until
``rewards_latest`` has the verdict, ``label_visible_s_max`` the longest; the first click is told apart as
``label_after_start_s``, for governance still opens the lake then. ``people_p95_ms``: fifty people (``--quick``:
twenty) ask a page each, about every five seconds, over HTTP; ``people_failed`` counts answers other than a page.

Chromium opens pages that hold 500 hostile payloads: ``scripts_run`` counts scripts that ran and are not the console's,
``foreign_requests`` requests to another host. Both are null where there is no Chromium; ``browser`` says so.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from benchmarks.evolve import large_lake
from headrace.app.context import AppContext
from headrace.app.settings import ConsoleSettings
from headrace.console.app import application
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from headrace.console.sign_in import COOKIE
from headrace.console.users import TrustedProxies, local_user
from headrace.processes.supervisor import headrace_command
from headrace.services.sql_server import sql_service
from lakehouse.lake import Lake
from trajectory.child_process import free_port

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


def opened(folder: Path) -> dict[str, Any]:
    """Return what ran, and who was asked, where a browser shows what strangers wrote."""
    from playwright.sync_api import sync_playwright

    from tests.support.hostile_pages import chromium_path, open_hostile_pages

    chromium = chromium_path()
    if chromium is None:
        missing = "chromium is not installed: apt-get install chromium"
        return {"scripts_run": None, "foreign_requests": None, "browser": missing}
    with sync_playwright() as playwright:
        found = open_hostile_pages(folder, chromium, playwright)
    return {
        "scripts_run": found.scripts_run,
        "foreign_requests": found.foreign_requests,
        "browser": Path(chromium).name,
    }


@dataclass(slots=True)
class Seen:
    """What people saw: milliseconds of pages, and how many answers were none."""

    milliseconds: list[float] = field(default_factory=list)
    failed: int = 0


def used(home: Path, *, labels: int, people: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a console that people use while everything of a home runs."""
    with everything(home) as (console, store):
        lake = Lake.open(str(home / "lake"), create=False)
        first, *waits = [_label(console, store, lake, number) for number in range(labels + 1)]
        newest = lake.query("SELECT trajectory_id FROM steps ORDER BY started_at DESC LIMIT 50")
        lake.close()
        trajectories = newest.column(0).to_pylist()
        seen, ends = Seen(), time.monotonic() + seconds
        threads = [
            threading.Thread(target=_look, args=(console, store, trajectories, number, ends, seen))
            for number in range(people)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {
        "label_after_start_s": round(first, 2),
        "label_visible_s": round(statistics.median(waits), 2),
        "label_visible_s_max": round(max(waits), 2),
        "people": people,
        "people_pages": len(seen.milliseconds),
        "people_p50_ms": round(statistics.median(seen.milliseconds)),
        "people_p95_ms": round(statistics.quantiles(seen.milliseconds, n=20)[18]),
        "people_failed": seen.failed,
    }


@contextmanager
def everything(home: Path) -> Iterator[tuple[str, SessionStore]]:
    """Run ``headrace up``; yield where its console is, and its sessions."""
    port, forward, admin, sql, console = (free_port() for _ in range(5))
    settings = {
        "gateway": {"port": port, "forward_port": forward, "admin_port": admin},
        "sql_server": {"port": sql},
        "console": {"port": console},
    }
    (home / "headrace.yaml").write_text(json.dumps(settings))
    url = f"http://127.0.0.1:{console}"
    up = subprocess.Popen(headrace_command(["--home", str(home), "up"]), stderr=subprocess.DEVNULL)
    try:
        _until(lambda: _answers(url) and _answers(f"http://127.0.0.1:{port}"), up)
        path = AppContext(home, debug=False).home.sessions
        yield url, SessionStore(path, idle_seconds=36_000, longest_seconds=36_000)
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(timeout=120)


def _until(done: Callable[[], bool], up: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        if up.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("headrace up does not come up; see logs/ of the home")
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        return bool(httpx.get(url, timeout=10).status_code)
    except httpx.TransportError:
        return False


def _client(console: str, store: SessionStore, name: str) -> httpx.Client:
    """Return a browser of somebody who is signed in."""
    headers = {
        "cookie": f"{COOKIE}={store.begin(local_user(name))}",
        "sec-fetch-site": "same-origin",
    }
    return httpx.Client(base_url=console, headers=headers, timeout=60)


def _label(console: str, store: SessionStore, lake: Lake, number: int) -> float:
    """Accept the queue's next conversation; return seconds until the verdict is seen."""
    with _client(console, store, "rater") as client:
        found = client.get("/review.json").raise_for_status().json()["trajectory"]["trajectory_id"]
        begun = time.perf_counter()
        sent = client.post("/review", data={"trajectory": found, "answer.success": "yes"})
        if sent.is_error:
            raise SystemExit(f"/review: HTTP {sent.status_code}")
        asked = "SELECT 1 FROM rewards_latest WHERE trajectory_id = $id AND source_kind = 'human_explicit'"
        while not len(lake.query(asked, {"id": found})):
            if time.perf_counter() > begun + 60:
                raise SystemExit(f"label {number} is not seen within a minute")
            time.sleep(0.02)
    return time.perf_counter() - begun


def _look(
    console: str, store: SessionStore, trajectories: list[str], number: int, ends: float, seen: Seen
) -> None:
    """Ask for one page after the other, as a person would who reads each for some seconds."""
    drawn = random.Random(number)  # noqa: S311 - pages to look at
    with _client(console, store, f"person-{number}") as client:
        time.sleep(drawn.uniform(0, min(5.0, max(0.0, ends - time.monotonic()))))
        while time.monotonic() < ends:
            page = drawn.choice(_PAGES).format(id=drawn.choice(trajectories))
            begun = time.perf_counter()
            try:
                answer = client.get(page)
                seen.failed += answer.status_code != 200
            except httpx.TransportError:
                seen.failed += 1
            seen.milliseconds.append(1000 * (time.perf_counter() - begun))
            time.sleep(min(drawn.uniform(3, 7), max(0.0, ends - time.monotonic())))


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="20,000 steps, within 50 s")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    steps, rounds = (20_000, 2) if chosen.quick else (chosen.steps, chosen.rounds)
    labels, people, seconds = (1, 20, 4.0) if chosen.quick else (20, 50, 60.0)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        large_lake(home / "lake", steps)
        pages = measured(home, rounds)
        everybody = used(home, labels=labels, people=people, seconds=seconds)
        print(json.dumps({**pages, **everybody, **opened(home / "hostile")}))


if __name__ == "__main__":
    main()
