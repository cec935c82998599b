"""Where queries put what does not fit into memory: governed rows, gone with the process or swept."""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

from lakehouse.intents import is_running
from lakehouse.location import Location

_counter = itertools.count()


def spill_folder(location: Location) -> Path:
    """Return a folder of this process's own; DuckDB makes it when it is needed, and empties it."""
    name = f"{os.getpid()}-{next(_counter)}"
    if location.is_local:
        return location.folder / f"_spill-{name}"
    return Path(tempfile.gettempdir()) / f"headrace-spill-{name}"


def sweep_spills(location: Location) -> int:
    """Remove what processes that were killed had spilled; return how many folders."""
    if not location.is_local:
        return 0
    left = [
        folder
        for folder in location.folder.glob("_spill-*")
        if not is_running(int(folder.name.split("-")[1]))
    ]
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)
