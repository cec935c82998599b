"""Layout of the spool's files, and the test whether a writer is alive."""

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trajectory.files import make_folders, sync_folder

SUFFIX = ".spool"
_LOCK = "lock"
_STARTING = ".starting-"


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of a writer's segment."""
    return directory / f"{number:08d}{SUFFIX}"


def segments(directory: Path) -> list[int]:
    """Return the numbers of a writer's segments, in order; none when the writer's folder is gone."""
    try:
        names = [entry.name for entry in os.scandir(directory) if _is_file(entry)]
    except FileNotFoundError:
        return []
    return sorted(
        int(name[: -len(SUFFIX)])
        for name in names
        if name.endswith(SUFFIX) and name[: -len(SUFFIX)].isdecimal()
    )


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Tell whether a name is a file's: of a pipe that somebody put there, reading would never end."""
    return entry.is_file(follow_symlinks=False)


def writers(spool: Path) -> list[str]:
    """Return the names of all writers, oldest first."""
    try:
        found = [entry.name for entry in os.scandir(spool) if entry.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(name for name in found if not name.startswith("."))


class Size(NamedTuple):
    """Disk usage of a spool."""

    bytes: int
    files: int
    """Segment files."""


def size(spool: Path) -> Size:
    """Return what all segments of all writers take."""
    total = files = 0
    for writer in writers(spool):
        with suppress(FileNotFoundError):
            for entry in os.scandir(spool / writer):
                with suppress(FileNotFoundError):
                    total += entry.stat().st_size
                    files += entry.name.endswith(SUFFIX)
    return Size(total, files)


def oldest(spool: Path) -> float | None:
    """Return when the oldest finished segment was finished, in seconds since 1970."""
    times = []
    for writer in writers(spool):
        for number in segments(spool / writer)[:-1][:1]:
            with suppress(FileNotFoundError):
                times.append(segment_path(spool / writer, number).stat().st_mtime)
    return min(times, default=None)


def claim(spool: Path) -> tuple[Path, int]:
    """Make a new writer's folder; return it and the descriptor that holds its lock.

    The folder gets its name only after the lock is held, so that a reader never sees a living
    writer unlocked. A writer's name is never used twice.
    """
    make_folders(spool, 0o700)
    name = f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(4)}"
    starting = spool / (_STARTING + name)
    starting.mkdir(mode=0o700)
    lock = -1
    try:
        lock = os.open(starting / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return starting.rename(spool / name), lock
    except OSError:
        with suppress(OSError):
            if lock >= 0:
                os.close(lock)
            (starting / _LOCK).unlink(missing_ok=True)
            starting.rmdir()
        raise


def lives(directory: Path) -> bool:
    """Tell whether the writer of this folder still holds its lock."""
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def remove(directory: Path) -> None:
    """Remove the folder of a writer that is gone; its lock goes last.

    It does not come back with a power cut: no cursor would name it, and its records be taken again.
    """
    for number in segments(directory):
        segment_path(directory, number).unlink(missing_ok=True)
    (directory / _LOCK).unlink(missing_ok=True)
    with suppress(OSError):  # another has removed it, or somebody keeps something of his own there
        directory.rmdir()
    sync_folder(directory.parent)
