"""Measures what erasing a person costs; the last line is JSON.

A lake of ``--steps`` steps (five rows in other tables for each) is filled and compacted. Then people
are erased: one whose rows lie together, then ``--people`` at once whose rows lie on different days,
in one go. ``files_touched`` and ``mib_touched`` count the data files that had to be written anew:
the cost grows with them, not with the lake.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.lake import compacted, fill
from lakehouse.erase import erase_subject
from lakehouse.lake import Lake
from lakehouse.schema import TABLES

STEPS_PER_PERSON = 50


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
    return {
        "people": len(people),
        "seconds": round(seconds, 1),
        "cpu_s": round(spent, 1),
        "steps_erased": report.rows["steps"],
        "files_touched": len(touched),
        "mib_touched": round(sum(before[file] for file in touched) / 2**20, 1),
        "files_in_all": len(before),
        "mib_in_all": round(sum(before.values()) / 2**20, 1),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small lake; within 50 seconds")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--people", type=int, default=6)
    options = parser.parse_args()
    steps = 60_000 if options.quick else options.steps
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        folder = Path(scratch) / "lake"
        made = fill(folder, steps, 2) | compacted(folder)
        print(json.dumps(made), flush=True)
        lake = Lake.open(str(folder))
        rows = sum(
            lake.query(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py()  # noqa: S608
            for name in ("steps", "messages", "governance", "signals", "exchanges")
        )
        one = erased(lake, ["p1"])
        print(json.dumps(one), flush=True)
        apart = steps // STEPS_PER_PERSON // options.people
        many = erased(lake, [f"p{2 + apart * number}" for number in range(options.people)])
        print(json.dumps(many), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {"steps": steps, "rows": rows, "one": one, "many": many, "peak_mib": round(peak)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
