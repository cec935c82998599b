"""Counts that all workers of an installation share: in memory, and in one SQLite file.

Counting happens in memory. A thread writes the counts into the file a few times a second, and reads what the
others counted. A restart loses nothing; ``kill -9`` loses the last quarter of a second. What must be exact over
all workers is claimed in the file itself, one by one.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from trajectory.sqlite_file import open_shared, transaction

FLUSH_SECONDS = 0.25
_KEPT = 100_000
"""Counts in memory; beyond it all go to the file and come back when they are asked for."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (
    name TEXT PRIMARY KEY, used INTEGER NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (name)
DO UPDATE SET used = used + excluded.used, expires = max(expires, excluded.expires)
RETURNING used
"""
_CLAIM = """
INSERT INTO counts VALUES (:name, 1, :expires) ON CONFLICT (name)
DO UPDATE SET used = CASE WHEN expires <= :now THEN 1 ELSE used + 1 END, expires = :expires
WHERE used < :most OR expires <= :now
RETURNING used
"""
_GIVE_BACK = "UPDATE counts SET used = used - 1 WHERE name = ? AND used > 0"
_PATIENCE_MS = 50
"""How long the event loop may wait for a worker that is writing."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Count:
    known: int
    """What the file said last, and what is on its way there."""
    pending: int
    expires: float
    looked: float = 0.0
    """When the file was asked last."""


class SharedCounters:
    """Counts by name, each until it expires; the file is made when the first count is needed.

    When the file cannot be read or written, counting goes on in memory alone, ``failures`` grows, and the log
    says so once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, _Count] = {}
        self._touched: set[str] = set()
        self._flying: frozenset[str] = frozenset()
        self._mutex = threading.Lock()
        self._reading: sqlite3.Connection | None = None
        self.failures = 0
        """How often the file failed."""
        self._told = False

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if not self._told:
            _log.error(
                "%s: %s; each worker counts alone: check the disk, or move the file away, and counts begin anew",
                self._path,
                type(error).__name__,
            )
        self._told = True

    def used(self, name: str, expires: float) -> int:
        """Return how much was counted under a name."""
        with self._mutex:
            return self._total(name, expires)

    def add(self, name: str, amount: int, expires: float) -> None:
        """Count."""
        with self._mutex:
            self._total(name, expires)
            count = self._counts[name]
            count.pending += amount
            count.expires = max(expires, count.expires)

    def claim(self, name: str, most: int, expires: float) -> bool:
        """Count one where that does not go beyond ``most``; exact over all who share the file."""
        if most <= 0:
            return False
        with self._mutex:
            try:
                claim = {"name": name, "most": most, "expires": expires, "now": time.time()}
                return self._shared().execute(_CLAIM, claim).fetchone() is not None
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
            if self._total(name, expires) >= most:
                return False
            self._counts[name].pending += 1
            return True

    def give_back(self, name: str) -> None:
        """Take back what was claimed and came to nothing; where the file fails, it stays counted."""
        with self._mutex:
            try:
                self._shared().execute(_GIVE_BACK, (name,))
            except (sqlite3.Error, OSError) as error:
                self._failed(error)

    def _total(self, name: str, expires: float) -> int:
        count, now = self._counts.get(name), time.monotonic()
        if count is None:
            count = self._counts[name] = _Count(self._read(name), 0, expires, now)
        elif now - count.looked > FLUSH_SECONDS and not count.pending and name not in self._flying:
            count.known, count.looked = self._read(name, count.known), now
        self._touched.add(name)
        return count.known + count.pending

    def _read(self, name: str, before: int = 0) -> int:
        """Look a name up in the file; what was known before where it cannot be read."""
        try:
            row = (
                self._shared()
                .execute(
                    "SELECT used FROM counts WHERE name = ? AND expires > ?", (name, time.time())
                )
                .fetchone()
            )
            return int(row[0]) if row else 0
        except (
            sqlite3.Error,
            OSError,
            ValueError,
            TypeError,
        ) as error:  # damage may leave no number
            self._failed(error)
            return before

    def _shared(self) -> sqlite3.Connection:
        """Return the connection of the event loop, which does not wait for long."""
        if self._reading is None:
            self._reading = self._open()
            self._reading.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        return self._reading

    def _open(self) -> sqlite3.Connection:
        return open_shared(self._path, _SCHEMA, seconds=2.0, synchronous="OFF")

    @property
    def dirty(self) -> bool:
        """Whether a flush has something to do."""
        return bool(self._touched)

    def flush(self) -> None:
        """Carry what was counted into the file, and bring back what others counted."""
        now = time.time()
        with self._mutex:
            touched, self._touched = self._touched, set()
            taken = {name: self._take(name) for name in touched if name in self._counts}
            self._flying = frozenset(taken)
        try:
            totals = self._exchange(taken, now)
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            self._failed(error)
            self._give_back(taken)
            return
        self._told = False
        with self._mutex:
            self._flying = frozenset()
            for name, total in totals.items():
                self._counts[name].known = total
                self._counts[name].looked = time.monotonic()
            if len(self._counts) > _KEPT and not self._touched:
                self._counts.clear()
            for name in [name for name, count in self._counts.items() if count.expires < now]:
                del self._counts[name]

    def _take(self, name: str) -> tuple[int, float]:
        count = self._counts[name]
        taken, count.pending = count.pending, 0
        count.known += taken
        return taken, count.expires

    def _give_back(self, taken: Mapping[str, tuple[int, float]]) -> None:
        with self._mutex:
            self._flying = frozenset()
            for name, (amount, _) in taken.items():
                self._counts[name].known -= amount
                self._counts[name].pending += amount
                self._touched.add(name)

    def _exchange(self, taken: Mapping[str, tuple[int, float]], now: float) -> dict[str, int]:
        totals = {}
        with closing(self._open()) as connection, transaction(connection):
            connection.execute("DELETE FROM counts WHERE expires <= ?", (now,))
            for name, (amount, expires) in taken.items():
                row = connection.execute(_ADD, (name, amount, expires)).fetchone()
                totals[name] = int(row[0])
        return totals

    def close(self) -> None:
        """Flush and close."""
        if self._touched:
            self.flush()
        if self._reading is not None:
            with suppress(sqlite3.Error):
                self._reading.close()
