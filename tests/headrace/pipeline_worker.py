"""Runs a pipeline until the spool is empty, and kills itself at a chosen point; see test_pipeline.py.

Usage: python -m tests.headrace.pipeline_worker HOME [POINT COUNT]
POINT is one of ``announced``, ``appended``, ``completed``; the process dies at its COUNT-th time.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from governance.engine import Governor
from governance.policy import load_bundle
from governance.quality import RowGate
from headrace.checkpoint import CheckpointStore
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from proxy.spool import SpoolReader
from tests.governance.building import MailRedactor
from tests.proxy.spool.writing import KEY

BATCH_RECORDS = 7


def build(home: Path) -> Pipeline:
    """Put a pipeline together with a light redactor and the plain form of the quality gate."""
    lake = Lake.open(str(home / "lake"))
    bundle = load_bundle()
    governor = Governor(
        bundle,
        MailRedactor(),
        message_key=b"m" * 32,
        pseudonym_key=b"p" * 32,
        known=lake.known_content(),
        consents=lake.consents(),
        gate=RowGate(bundle.quality.spec),
    )
    (home / "state").mkdir(exist_ok=True)
    return Pipeline(
        spool=SpoolReader(home / "spool", KEY),
        lake=lake,
        governor=lambda: governor,
        checkpoints=CheckpointStore(home / "state", lake.notes(), name="home"),
        assembly_key=b"a" * 32,
        batch_records=BATCH_RECORDS,
    )


def die_after(act: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return ``act``, which kills this process when it has been done ``count`` times."""
    left = [count]

    def done(*arguments: Any, **options: Any) -> Any:
        result = act(*arguments, **options)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return done


def main(home: Path, point: str | None, count: int) -> None:
    """Run until nothing is left, or until the chosen death."""
    if point == "announced":
        CheckpointStore.announce = die_after(CheckpointStore.announce, count)  # type: ignore[method-assign]
    elif point == "appended":
        Lake.append = die_after(Lake.append, count)  # type: ignore[method-assign]
    elif point == "completed":
        CheckpointStore.complete = die_after(CheckpointStore.complete, count)  # type: ignore[method-assign]
    pipeline = build(home)
    while pipeline.run_batch() is not None:
        pass


if __name__ == "__main__":
    given = sys.argv[2:]
    main(Path(sys.argv[1]), given[0] if given else None, int(given[1]) if given else 0)
