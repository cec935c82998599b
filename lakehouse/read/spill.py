"""Where queries put what does not fit into memory: governed rows, gone with the process or swept.

Beside an object store they, and the copies that compaction sorts, lie in this machine's temporary
folder.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex

from lakehouse.storage.location import Location
from trajectory.files import is_left

_IN_LAKE, _ELSEWHERE = "_spill-", "headrace-spill-"
COPIES = "headrace-compact-"
"""How the folders begin that copies of a store's files are sorted in; their process follows."""


class SpillFolder:
    """A folder of one session's own, where DuckDB puts rows and removes them again.

    In a lake it is locked as long as the session lives, so that nobody sweeps it: two containers on one lake
    do not see each other's processes.
    """

    def __init__(self, location: Location) -> None:
        """Make one."""
        self._process = os.getpid()
        self._lock: int | None = None
        if location.is_local:
            self.path = self._locked(location.folder)
        else:
            self.path = _private(self._process, tempfile.gettempdir()) / token_hex(6)

    def _locked(self, lake: Path) -> Path:
        while True:
            try:
                folder = Path(tempfile.mkdtemp(prefix=_IN_LAKE, dir=lake))
            except (
                OSError
            ):  # nobody may write here, or the disk is full: DuckDB says so if it has to spill
                return lake / f"{_IN_LAKE}{token_hex(6)}"
            try:
                self._lock = os.open(folder, os.O_RDONLY)
            except FileNotFoundError:  # it was swept
                continue
            with suppress(OSError):  # without locks nobody can sweep either
                fcntl.flock(self._lock, fcntl.LOCK_SH)
            if folder.exists():
                return folder
            os.close(self._lock)  # it was swept before it was locked

    def release(self) -> None:
        """Let go of the folder when its session has ended."""
        if self._lock is None or os.getpid() != self._process:  # a fork has it from its parent
            return
        with suppress(OSError):  # rows that are left over are swept
            self.path.rmdir()
        os.close(self._lock)
        self._lock = None


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
    """Remove what sessions had spilled whose processes were killed; return how many folders."""
    if location.is_local:
        return sum(map(_swept, location.folder.glob(f"{_IN_LAKE}*")))
    left = [
        path
        for start in (_ELSEWHERE, COPIES)
        for path in Path(tempfile.gettempdir()).glob(f"{start}*")
        if (process := path.name.removeprefix(start).split("-")[0]).isdecimal()
        and is_left(path, int(process))
    ]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(left)


def _swept(folder: Path) -> bool:
    """Remove a folder unless a session that lives holds it."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:  # it has gone, or is another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
