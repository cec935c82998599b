"""Files that are replaced as a whole, grown by whole lines, or locked by one process at a time.

A reader sees the old bytes or the new, after a power cut too.
"""

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL
from pathlib import Path
from typing import Any, BinaryIO

from trajectory.errors import ConfigurationError

OWNER_ONLY = 0o600
READABLE = 0o644
_START = 19
"""Place of a process's start behind its name in ``/proc/<pid>/stat`` (proc(5))."""
_CLOCKS_DIFFER = 0.1
"""Seconds between the clock of files and that of processes, and more."""


@contextmanager
def replacing(path: Path, mode: int = OWNER_ONLY, *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Give a file to write that takes the place of ``path`` when the block ends without an error.

    Bytes and name are on disk when the block has ended; after an error ``path`` is as it was, and
    nothing is left beside it. Two writers at once, of one process or of several, do not mix.
    With ``lasting`` False it costs no wait for the disk, and a power cut may take or damage it.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.{os.getpid()}.tmp")
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            error.filename = str(path)  # the name that the caller knows
            raise
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask is
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename, error.filename2 = str(path), None  # the name that the caller knows
        raise
    if lasting:
        sync_folder(path.parent)


def replace_file(path: Path, data: bytes, mode: int = OWNER_ONLY, *, lasting: bool = True) -> None:
    """Replace a file's bytes; see :func:`replacing`."""
    with replacing(path, mode, lasting=lasting) as file:
        file.write(data)


def delete_leftovers(folder: Path, name: str = "*") -> int:
    """Delete what killed processes of this machine left of files that they were replacing in a folder.

    Nothing else finds it: what expires, is erased or rotates goes by the names of whole files.

    Args:
        folder: where the files are.
        name: of one file, where others in the folder are somebody else's.

    Returns:
        How many there were.
    """
    left = [
        path
        for path in folder.glob(f".{name}.*.tmp")
        if (process := path.name.split(".")[-2]).isdecimal() and is_left(path, int(process))
    ]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def delete_lastingly(paths: Iterable[Path]) -> int:
    """Delete files and folders; none comes back with a power cut.

    Returns:
        How many were there.
    """
    gone: list[Path] = []
    for path in paths:
        with suppress(FileNotFoundError):  # another process deleted it meanwhile
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            gone.append(path)
    for folder in dict.fromkeys(path.parent for path in gone):
        with suppress(FileNotFoundError):  # it went with the next
            sync_folder(folder)
    return len(gone)


def is_left(path: Path, process: int) -> bool:
    """Tell whether the process of this machine that made a file or folder is gone.

    Another one may have its number since: in a container every start has the same.
    """
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
    begun = _begun(process)
    try:
        return begun is not None and path.stat().st_mtime < begun - _CLOCKS_DIFFER
    except FileNotFoundError:
        return False


def _begun(process: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        ticks = int(fields[_START])
    except (OSError, ValueError, IndexError):
        return None
    lived = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - lived


def read_file(path: Path) -> bytes:
    """Return a file's bytes; a pipe or a device in its place is refused: reading it may never end.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(EINVAL, "it is no file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """Return the JSON object that a file of an installation holds.

    Args:
        path: of the file.
        remedy: what a person does where the file is damaged.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigurationError: it cannot be read, or holds something else.
    """
    try:
        value = json.loads(read_file(path))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise damaged_file(path, error, remedy) from None
    if not isinstance(value, dict):
        raise damaged_file(path, TypeError(), remedy)
    return value


def damaged_file(path: Path, error: Exception, remedy: str) -> ConfigurationError:
    """Return the error of a file that cannot be read as what it is; its text holds nothing of the file."""
    return ConfigurationError(f"{path}: cannot be read ({type(error).__name__}); {remedy}")


def append_line(path: Path, line: str, mode: int = OWNER_ONLY) -> None:
    """Append a line; it is on disk when this returns, and a line that a crash cut off stays alone."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
    with os.fdopen(descriptor, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        torn = size and file.read(1) != b"\n"
        file.write(b"\n" * bool(torn) + line.encode() + b"\n")
        file.flush()
        os.fsync(descriptor)
    if not size:  # its name may be as new as its first line
        sync_folder(path.parent)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects that :func:`append_line` wrote; a line cut off by a crash is left out."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [one for one in found if isinstance(one, dict)]


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[int | None]:
    """Hold a lock; yields its descriptor, or None where another process has it and we do not wait.

    The lock of a folder that is there is held by the folder itself, so that nobody can take a lock file
    away for a stale one; any other path is a file made for it. A process that inherits the descriptor
    holds the lock too.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text that a person hands in, as editors and spreadsheets save it.

    Without the mark that some put before UTF-8, and without the ends of lines of any system; blank
    lines stay, so that a line has its number.

    Raises:
        ConfigurationError: it is no UTF-8.
        OSError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8; save the file as UTF-8 text") from None
    return text.split("\n")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut."""
    _sync(folder)


def sync_files(paths: Iterable[Path]) -> None:
    """Make files that were written, and their names, last through a power cut."""
    folders: dict[Path, None] = {}
    for path in paths:
        _sync(path)
        folders[path.parent] = None
    for folder in folders:
        _sync(folder)


def make_folders(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it that are missing; their names last through a power cut."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=mode, exist_ok=True)
        _sync(one.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
