"""SQLite files that several threads and processes write at once."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from trajectory.errors import IntegrityError
from trajectory.files import make_folders

_AGAIN_SECONDS = 0.005


def open_shared(
    path: Path,
    schema: str,
    *,
    seconds: float,
    synchronous: Literal["OFF", "NORMAL", "FULL"],
) -> sqlite3.Connection:
    """Return a connection to a file with a write-ahead log; the file is made where there is none.

    Any thread may use it, one at a time; each statement stands by itself.

    Args:
        path: of the file, which its owner alone may read.
        schema: statements that make its tables where they are missing.
        seconds: to wait for other writers.
        synchronous: what a power cut may cost: anything, the latest, or nothing.

    Raises:
        sqlite3.Error: it cannot be read or written, or others wrote for longer.
        OSError: its folder cannot be made.
    """
    make_folders(path.parent, 0o700)
    file = sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        path.chmod(0o600)
        begin_log(file, seconds)
        file.execute(f"PRAGMA synchronous = {synchronous}")
        file.executescript(schema)
    except BaseException:
        file.close()
        raise
    return file


def begin_log(file: sqlite3.Connection, seconds: float) -> None:
    """Give a file a write-ahead log, where it has none; wait for others that do the same.

    SQLite's own timeout does not count there: it refuses at once.

    Raises:
        sqlite3.OperationalError: others held the file for longer.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return


def make_lasting(file: sqlite3.Connection) -> None:
    """See that no power cut undoes what a transaction did, in a file without a write-ahead log.

    SQLite deletes a transaction's journal and does not sync the folder: one that is there again undoes the
    transaction. Emptied and synced, it does not.
    """
    file.execute("PRAGMA journal_mode = TRUNCATE")
    file.execute("PRAGMA synchronous = FULL")


@contextmanager
def transaction(file: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Change the file as a whole or not at all; where the disk refuses, later transactions can go on."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield file
        file.execute("COMMIT")
    finally:
        # A full disk ends a transaction by itself, and there is nothing to roll back.
        if file.in_transaction:
            file.execute("ROLLBACK")


@contextmanager
def damage_told(path: Path, remedy: str) -> Iterator[None]:
    """Say of a damaged file which one it is and what to do; full disks and other writers are no damage.

    Raises:
        IntegrityError: it is no database, or part of it is gone.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise
        raise IntegrityError(f"{path} is damaged ({error}); {remedy}") from error
