"""Measures what erasing a person costs; the last line is JSON.

A lake of ``--steps`` steps over 32 days (five rows in other tables for each) is filled and compacted.
Then one person after the other is erased, whose rows lie on 1, 4, 16 and all days: ``seconds``
beside ``files_touched`` and ``mib_touched``, the data files that had to be written anew. Before
that the same is done to people on 1 and 4 days of a lake of a quarter of the days and steps
(``quarter``): the cost grows with the files touched, not with the lake. ``crowd`` is as many
people at once as the lake has days, all of them on one day: more rows, the files of one person.
``cpu_s_per_file`` is the slope of a line through the single people of the whole lake, and
``cpu_s_beside`` what it costs to look for a person before the first file is written.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.lake import STEPS_PER_TRAJECTORY, compacted, fill
from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from lakehouse.schema.tables import TABLES

DAYS = 32
SPREADS = (1, 4, 16, DAYS)
DAY_SECONDS = 86_400


def living(steps_per_day: int) -> str:
    """Return SQL for whom step ``i`` is about.

    The ``n``-th trajectory of a day is about ``over-n`` if the lake is at most ``n`` days old, for
    each spread; those of the second half of the first day about one of the ``crowd``.
    """
    number, day = f"i % {steps_per_day} // {STEPS_PER_TRAJECTORY}", f"i // {steps_per_day}"
    crowd = steps_per_day // STEPS_PER_TRAJECTORY // 2
    return (
        f"CASE WHEN {number} IN {SPREADS} AND {day} < {number} THEN 'over-' || {number} "
        f"WHEN {day} = 0 AND {number} BETWEEN {crowd} AND {crowd + DAYS - 1} "
        f"THEN 'crowd-' || ({number} - {crowd}) ELSE 'p' || (i // 50) END"
    )


def made(folder: Path, days: int, steps_per_day: int) -> tuple[Lake, dict[str, Any]]:
    """Return a compacted lake of so many days, and what making it cost."""
    cost = fill(
        folder,
        days * steps_per_day,
        2,
        steps_per_second=steps_per_day / DAY_SECONDS,
        subject=living(steps_per_day),
    )
    return Lake.open(str(folder)), cost | compacted(folder)


def files_of(lake: Lake) -> dict[str, int]:
    """Return every data file of the lake with its size."""
    return {file: Path(file).stat().st_size for name in TABLES for file in lake.snapshot_of(name)}


def erased(lake: Lake, people: list[str]) -> dict[str, Any]:
    """Erase people and return what it cost."""
    before = files_of(lake)
    begun, cpu = time.perf_counter(), time.process_time()
    report = erase_subject(lake, "acme", people)
    seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
    touched = before.keys() - files_of(lake).keys()
    left = lake.query(
        "SELECT count(*) AS n FROM governance WHERE list_has_any(subjects, ?::VARCHAR[])",
        parameters=[people],
    )
    assert left["n"][0].as_py() == 0
    result = {
        "people": len(people),
        "seconds": round(seconds, 2),
        "cpu_s": round(spent, 2),
        "steps_erased": report.rows["steps"],
        "files_touched": len(touched),
        "mib_touched": round(sum(before[file] for file in touched) / 2**20, 1),
        "files_in_all": len(before),
        "mib_in_all": round(sum(before.values()) / 2**20, 1),
    }
    print(json.dumps(result), flush=True)
    return result


def measured(folder: Path, steps: int) -> dict[str, Any]:
    """Return what every kind of erasure cost."""
    per_day = steps // DAYS // STEPS_PER_TRAJECTORY * STEPS_PER_TRAJECTORY
    small, cost = made(folder / "quarter", DAYS // 4, per_day)
    print(json.dumps(cost), flush=True)
    erased(small, ["p1"])  # imports, opens
    quarter = {f"over_{days}": erased(small, [f"over-{days}"]) for days in SPREADS[:2]}
    lake, cost = made(folder / "whole", DAYS, per_day)
    print(json.dumps(cost), flush=True)
    rows = sum(
        lake.query(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py()  # noqa: S608
        for name in ("steps", "messages", "governance", "signals", "exchanges")
    )
    single = [erased(lake, [f"over-{days}"]) for days in SPREADS]
    crowd = erased(lake, [f"crowd-{number}" for number in range(DAYS)])
    line = statistics.linear_regression(
        [one["files_touched"] for one in single], [one["cpu_s"] for one in single]
    )
    return {
        "steps": DAYS * per_day,
        "rows": rows,
        **{f"over_{days}": one for days, one in zip(SPREADS, single, strict=True)},
        "crowd": crowd,
        "quarter": quarter,
        "cpu_s_per_file": round(line.slope, 3),
        "cpu_s_beside": round(line.intercept, 2),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small lake; within 50 seconds")
    parser.add_argument("--steps", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        result = measured(Path(scratch), 32_000 if options.quick else options.steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result | {"peak_mib": round(peak)}))


if __name__ == "__main__":
    main()
