"""Where queries put what does not fit into memory: governed rows, gone with the process or swept.

Beside an object store they, and the copies that compaction sorts, lie in this machine's temporary
folder.
"""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from secrets import token_hex

from lakehouse.storage.location import Location
from trajectory.files import is_left

_IN_LAKE, _ELSEWHERE = "_spill-", "headrace-spill-"
COPIES = "headrace-compact-"
"""How the folders begin that copies of a store's files are sorted in; their process follows."""
SCANNED = "headrace-scan-"
"""How those begin that hold an object while it is searched."""


def spill_folder(location: Location) -> Path:
    """Return a folder of this process's own; DuckDB makes it when it is needed, and empties it."""
    process, name = os.getpid(), token_hex(6)  # another container may have a process of this number
    if location.is_local:
        return location.folder / f"{_IN_LAKE}{process}-{name}"
    return _private(process, tempfile.gettempdir()) / name


@cache
def _private(process: int, temporary: str) -> Path:
    """Return a folder that other users can neither read nor make first; it goes with its process."""
    folder = Path(tempfile.mkdtemp(prefix=f"{_ELSEWHERE}{process}-", dir=temporary))

    def remove() -> None:
        if os.getpid() == process:  # else it is a fork that ends
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def sweep_spills(location: Location) -> int:
    """Remove what processes of this machine that were killed had spilled; return how many folders."""
    folder = location.folder if location.is_local else Path(tempfile.gettempdir())
    left = [
        path
        for start in ((_IN_LAKE,) if location.is_local else (_ELSEWHERE, COPIES, SCANNED))
        for path in folder.glob(f"{start}*")
        if (process := path.name.removeprefix(start).split("-")[0]).isdecimal()
        and is_left(path, int(process))
    ]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(left)
