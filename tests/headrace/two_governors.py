"""Two governors with homes and spools of their own on one lake; started by test_two_governors.py.

Usage: python -m tests.headrace.two_governors FOLDER SEED DISK. Governors are killed at random moments
and begun again, beside a process that compacts, while the lake's disk (a small one, when DISK is
``small``) is full now and then. Governors are forked from a process that has imported everything
and used nothing, so that a death costs no more than a life.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.maintenance.verify import verify
from proxy.spool import SpoolWriter
from tests.headrace.pipelines import pipeline
from tests.headrace.test_pipeline import conversation
from tests.lakehouse.full_disk import full
from tests.proxy.spool.scripts import KEY, ExchangeScript
from trajectory.errors import RetryableError

EXCHANGES = 30
BATCH = 3
DEATHS = 8


def fill(home: Path, first: int) -> None:
    """Write a spool of a home, its exchanges numbered from ``first``."""
    home.mkdir()
    with SpoolWriter(home / "spool", KEY) as writer:
        for number in range(first, first + EXCHANGES):
            script = ExchangeScript(writer, number + 1, at=1_790_000_000.0 + 10 * number)
            script.whole(*conversation(number))


def govern(folder: Path, home: Path) -> None:
    """Carry batches until the spool is empty, as the governing process does."""
    work = None
    while True:
        try:
            work = work or pipeline(
                home, batch_records=BATCH, name=home.name, folder=folder / "lake"
            )
            if work.run_batch() is None:
                return
        except RetryableError:
            time.sleep(0.05)


def look_after(folder: Path) -> None:
    """Join small files again and again."""
    while True:
        with suppress(RetryableError):
            compact(Lake.open(str(folder / "lake")), tables=["steps", "messages", "exchanges"])
        time.sleep(0.2)


def begin(work: Callable[[], None]) -> int:
    """Run ``work`` in a process of its own."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001 - whatever it was, it must not go on as the parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def disturb(folder: Path, draw: random.Random, *, small: bool) -> None:
    """Kill governors at random moments until enough have died; then let them come to the end."""
    homes = [folder / "a", folder / "b"]
    running: dict[Path, int] = {}
    maintenance = begin(lambda: look_after(folder))
    deaths = 0
    try:
        while deaths < DEATHS:
            for home in homes:
                if home not in running:
                    running[home] = begin(lambda home=home: govern(folder, home))  # type: ignore[misc]
            if small and deaths % 4 == 1:
                with full(folder, draw.choice((0, 8, 40, 100))):
                    time.sleep(draw.uniform(0.1, 0.3))
            time.sleep(draw.uniform(0.05, 0.9))
            victim = draw.choice(homes)
            os.kill(running[victim], signal.SIGKILL)
            ended = os.waitstatus_to_exitcode(os.waitpid(running.pop(victim), 0)[1])
            assert ended in (0, -signal.SIGKILL), f"a governor ended with {ended}"
            deaths += ended != 0
            if ended == 0:
                break
        for home in homes:
            if home not in running:
                running[home] = begin(lambda home=home: govern(folder, home))  # type: ignore[misc]
        for child in running.values():
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        os.kill(maintenance, signal.SIGKILL)
        os.waitpid(maintenance, 0)
    sys.stdout.write(json.dumps({"deaths": deaths}) + "\n")


def check(folder: Path) -> None:
    """Every record of both spools is in the lake once."""
    lake = Lake.open(str(folder / "lake"))
    ledger = lake.query("select exchange_id, disposition, spool_writer from exchanges").to_pylist()
    names = [row["exchange_id"] for row in ledger]
    expected = [(number + 1).to_bytes(16, "big").hex() for number in range(2 * EXCHANGES)]
    assert sorted(names) == expected, (len(names), len(set(names)))
    assert {row["disposition"] for row in ledger} == {"stored"}
    assert len({row["spool_writer"] for row in ledger}) == 2
    steps = lake.query("select exchange_id, trajectory_id from steps").to_pylist()
    assert sorted(row["exchange_id"] for row in steps) == expected
    assert len({row["trajectory_id"] for row in steps}) == EXCHANGES
    report = verify(lake)
    assert report.ok, report.findings
    assert not list((folder / "lake" / "_intents").iterdir())


def main(folder: Path, seed: int, *, small: bool) -> None:
    """Run one world."""
    if small:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)
    fill(folder / "a", 0)
    fill(folder / "b", EXCHANGES)
    disturb(folder, random.Random(seed), small=small)  # noqa: S311 - no secret
    check(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), small=sys.argv[3] == "small")
