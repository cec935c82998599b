"""Runs an append in a process that is killed at a chosen point; started by test_crash.py.

Usage: python -m tests.lakehouse.crash FOLDER POINT…  One lake per point, in FOLDER/POINT.
A point is ``before:N`` or ``after:N`` for the N-th durable act of the append.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakehouse.write.batches
from lakehouse.lake import Lake
from lakehouse.write import intents
from tests.lakehouse import make

ACTS = 11
"""The intent, nine tables, the intent's removal."""


def arm(point: str) -> None:
    """Make this process die before or after its n-th durable act."""
    moment, number = point.split(":")
    acts = count()  # two threads commit at a time: this counts each act once

    def dying(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            mine = next(acts) == int(number)
            if mine and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = act(*args, **options)
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return run

    lakehouse.write.batches.commit_once = dying(lakehouse.write.batches.commit_once)
    intents.FolderIntents.write = dying(intents.FolderIntents.write)  # type: ignore[method-assign]
    intents.FolderIntent.remove = dying(intents.FolderIntent.remove)  # type: ignore[method-assign]


def main(folder: Path, points: list[str]) -> None:
    """Fork one process per point, so that imports are paid once; none is forked from a lake's threads."""
    pa.array([""])  # imports what Arrow imports late
    if _fork(partial(_begin, folder / "begun")) != 0:
        sys.exit("the lake could not be made")
    for point in points:
        shutil.copytree(folder / "begun", folder / point)
        ended = _fork(partial(_append, folder / point, point))
        if ended != -signal.SIGKILL:
            sys.exit(f"{point}: the process was not killed but ended with {ended}")


def _begin(folder: Path) -> None:
    Lake.open(str(folder)).append(make.batch("t0"), app_id="a", version=0)


def _append(folder: Path, point: str) -> None:
    lake = Lake.open(str(folder))
    arm(point)
    lake.append(make.batch("t1", steps=3), app_id="a", version=1)


def _fork(work: Callable[[], None]) -> int:
    """Do work in a process of its own; return its exit code, negative when a signal ended it."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
