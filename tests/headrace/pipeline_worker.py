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

from headrace.govern.checkpoint import CheckpointStore
from lakehouse.lake import Lake
from tests.headrace.pipelines import pipeline

BATCH_RECORDS = 7


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
    work = pipeline(home, batch_records=BATCH_RECORDS, name="home")
    while work.run_batch() is not None:
        pass


if __name__ == "__main__":
    given = sys.argv[2:]
    main(Path(sys.argv[1]), given[0] if given else None, int(given[1]) if given else 0)
