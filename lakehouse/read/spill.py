"""Where queries put what does not fit into memory: governed rows, gone with the process or swept.

Beside an object store they, and the copies that compaction sorts, lie in this machine's temporary
folder.
"""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

from lakehouse.storage.location import Location
from lakehouse.write.intents import is_running

_counter = itertools.count()
_IN_LAKE, _ELSEWHERE = "_spill-", "headrace-spill-"
COPIES = "headrace-compact-"
"""How the folders begin that copies of a store's files are sorted in; their process follows."""


def spill_folder(location: Location) -> Path:
    """Return a folder of this process's own; DuckDB makes it when it is needed, and empties it."""
    name = f"{os.getpid()}-{next(_counter)}"
    if location.is_local:
        return location.folder / f"{_IN_LAKE}{name}"
    return Path(tempfile.gettempdir()) / f"{_ELSEWHERE}{name}"


def sweep_spills(location: Location) -> int:
    """Remove what processes of this machine that were killed had spilled; return how many folders."""
    folder = location.folder if location.is_local else Path(tempfile.gettempdir())
    left = [
        path
        for start in ((_IN_LAKE,) if location.is_local else (_ELSEWHERE, COPIES))
        for path in folder.glob(f"{start}*")
        if (process := path.name.removeprefix(start).split("-")[0]).isdecimal()
        and not is_running(int(process))
    ]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(left)
