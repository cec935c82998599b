"""Fills a disk of its own and ingests into it; started by test_full_disk.py inside a mount namespace.

Usage: python -m tests.lakehouse.full_disk FOLDER. Mounts a small tmpfs on FOLDER; nobody else sees it.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.govern.checkpoint import CheckpointStore
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact, vacuum_table
from lakehouse.maintenance.verify import verify
from lakehouse.schema.tables import BATCH_TABLES
from tests.lakehouse import make
from trajectory.errors import RetryableError

LEFT_KIB = (0, 4, 12, 24, 40, 64, 96, 140, 200)
"""How much room is left, so that the disk is full at another step of a batch each time."""


@contextmanager
def full(folder: Path, left_kib: int) -> Iterator[None]:
    """Leave only so much room on the disk."""
    ballast = folder / "ballast"
    size = 0
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                size += file.write(b"\0" * 4096)
        except OSError:
            pass
        file.truncate(max(0, size - left_kib * 1024))
    try:
        yield
    finally:
        ballast.unlink()


def counts(lake: Lake) -> dict[str, int]:
    return {name: int(lake.table(name).count()) for name in BATCH_TABLES}


def main(folder: Path) -> None:
    """Ingest on a disk that is full again and again."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    lake = Lake.open(str(folder / "lake"))
    store = CheckpointStore(folder)
    store.recover(lake)
    refused = 0
    for version, left in enumerate(LEFT_KIB):
        batch = make.batch(f"t{version}", steps=3)
        with full(folder, left):
            for _ in range(2):
                try:
                    lake.append(batch, app_id="a", version=version)
                except RetryableError:
                    refused += 1
            try:
                store.announce(version, {"writer": version})
            except RetryableError:
                refused += 1
        lake.append(batch, app_id="a", version=version)
        assert lake.committed_version("a") == version
    assert refused > len(LEFT_KIB), f"the disk was hardly ever full: {refused}"
    expected = {"steps": 3, "exchanges": 3, "messages": 6, "links": 2, "signals": 1}
    found = counts(lake)
    for name, each in expected.items():
        assert found[name] == each * len(LEFT_KIB), (name, found)
    report = verify(Lake.open(str(folder / "lake")))
    assert report.ok, report.findings
    assert not list((folder / "lake" / "_intents").iterdir())
    compacting(folder, len(LEFT_KIB))


def compacting(folder: Path, version: int) -> None:
    """Compact on a full disk, at the commit behind which delta-rs would write a checkpoint."""
    root = folder / "lake"
    lake = Lake.open(str(root))
    while lake.versions()["steps"] < 98:
        lake.append(make.batch(f"t{version}", steps=1), app_id="a", version=version)
        version += 1
    before = lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist()
    refused = 0
    for left in range(4, 120, 8):
        copy = folder / "copy"
        shutil.copytree(root, copy)
        with full(folder, left):
            try:
                compact(Lake.open(str(copy)), tables=["steps"])
            except (RetryableError, OSError):
                refused += 1
        again = Lake.open(str(copy))
        compact(again, tables=["steps"])
        vacuum_table(again, "steps", hours=0)
        found = Lake.open(str(copy)).query("SELECT count(*) AS n FROM steps")["n"].to_pylist()
        assert found == before, (left, found, before)
        shutil.rmtree(copy)
    assert refused, "the disk was never full"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
