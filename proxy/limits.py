"""Limits of client keys: requests per minute, tokens per day, steps per session.

Counting happens in memory. A thread carries the counts into one SQLite file that all workers of
an installation share, a few times a second, and brings back what the others counted: a restart
forgets nothing, ``kill -9`` the last quarter of a second. Keys without limits cost nothing.
"""

import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from proxy.answers import Reason
from proxy.identity import Limits

FLUSH_SECONDS = 0.25
_MINUTE = 60
_DAY = 86_400
_SESSION_SECONDS = 7 * _DAY
"""How long after its last step a session is remembered."""
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


@dataclass(slots=True)
class _Count:
    known: int
    """What the file said last, and what is on its way there."""
    pending: int
    expires: float


class Ledger:
    """Counts by name, each until it expires; the file is made when the first count is needed.

    When the file cannot be read or written, counting goes on in memory alone and ``failures``
    grows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, _Count] = {}
        self._touched: set[str] = set()
        self._mutex = threading.Lock()
        self._reading: sqlite3.Connection | None = None
        self.failures = 0
        """How often the file failed."""

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

    def _total(self, name: str, expires: float) -> int:
        count = self._counts.get(name)
        if count is None:
            count = self._counts[name] = _Count(self._read(name), 0, expires)
        self._touched.add(name)
        return count.known + count.pending

    def _read(self, name: str) -> int:
        """Look a name up that this process has not met yet."""
        try:
            if self._reading is None:
                self._reading = self._open()
            row = self._reading.execute(
                "SELECT used FROM counts WHERE name = ? AND expires > ?", (name, time.time())
            ).fetchone()
        except (sqlite3.Error, OSError):
            self.failures += 1
            return 0
        return int(row[0]) if row else 0

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self._path, timeout=2.0, isolation_level=None, check_same_thread=False
        )
        self._path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(_SCHEMA)
        return connection

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
        try:
            totals = self._exchange(taken, now)
        except (sqlite3.Error, OSError):
            self.failures += 1
            self._give_back(taken)
            return
        with self._mutex:
            for name, total in totals.items():
                self._counts[name].known = total
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
            for name, (amount, _) in taken.items():
                self._counts[name].known -= amount
                self._counts[name].pending += amount
                self._touched.add(name)

    def _exchange(self, taken: Mapping[str, tuple[int, float]], now: float) -> dict[str, int]:
        totals = {}
        with closing(self._open()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM counts WHERE expires <= ?", (now,))
            for name, (amount, expires) in taken.items():
                row = connection.execute(_ADD, (name, amount, expires)).fetchone()
                totals[name] = int(row[0])
            connection.execute("COMMIT")
        return totals

    def close(self) -> None:
        """Flush and close."""
        if self._touched:
            self.flush()
        if self._reading is not None:
            with suppress(sqlite3.Error):
                self._reading.close()


@dataclass(frozen=True, slots=True)
class Denial:
    """Which limit a call met."""

    reason: Reason
    retry_after: int
    """Seconds until it is worth asking again."""


class Budgets:
    """Decides whether a key's limits let a call pass, and counts those that do."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def admit(
        self, key_id: str, limits: Limits, *, session: str | None, step: bool
    ) -> Denial | None:
        """Count a call that may pass; return what stands against one that may not.

        Args:
            key_id: whose limits these are.
            limits: the limits.
            session: fingerprint of the session that the client named.
            step: whether the call asks a model.
        """
        now = time.time()
        denial = self._over(key_id, limits, session if step else None, now)
        if denial is None:
            if limits.requests_per_minute is not None:
                minute = int(now) // _MINUTE
                self.ledger.add(f"minute:{key_id}:{minute}", 1, (minute + 2) * _MINUTE)
            if step and session is not None and limits.steps_per_session is not None:
                self.ledger.add(f"steps:{key_id}:{session}", 1, now + _SESSION_SECONDS)
        return denial

    def _over(self, key_id: str, limits: Limits, session: str | None, now: float) -> Denial | None:
        if limits.steps_per_session is not None and session is not None:
            steps = self.ledger.used(f"steps:{key_id}:{session}", now + _SESSION_SECONDS)
            if steps >= limits.steps_per_session:
                return Denial(Reason.SESSION_STEPS, _SESSION_SECONDS)
        if limits.tokens_per_day is not None:
            name, end = _today(key_id, now)
            if self.ledger.used(name, end) >= limits.tokens_per_day:
                return Denial(Reason.TOKENS, max(1, int(end - now)))
        if limits.requests_per_minute is not None:
            return self._too_fast(key_id, limits.requests_per_minute, now)
        return None

    def _too_fast(self, key_id: str, most: int, now: float) -> Denial | None:
        """Look at the last sixty seconds: this minute, and the rest of the one before in proportion."""
        minute, second = divmod(now, _MINUTE)
        this = self.ledger.used(f"minute:{key_id}:{int(minute)}", (minute + 2) * _MINUTE)
        before = self.ledger.used(f"minute:{key_id}:{int(minute) - 1}", (minute + 1) * _MINUTE)
        if this + before * (1 - second / _MINUTE) < most:
            return None
        return Denial(Reason.RATE, max(1, int(_MINUTE - second)) if this >= most else 1)

    def spend(self, key_id: str, tokens: int) -> None:
        """Count the tokens of a call that has ended."""
        self.ledger.add(_today(key_id, time.time())[0], tokens, _today(key_id, time.time())[1])


def _today(key_id: str, now: float) -> tuple[str, float]:
    day = int(now) // _DAY
    return f"tokens:{key_id}:{day}", float((day + 1) * _DAY)


_SESSION_HEADERS = frozenset({b"x-headrace-session", b"x-session-id", b"session-id", b"session_id"})


def session_of(fields: tuple[tuple[bytes, bytes], ...], in_url: bytes | None) -> bytes | None:
    """Return the session that a client names: Headrace's header, the URL, or a header of its own."""
    found = in_url
    for name, value in fields:
        lower = name.lower()
        if lower == b"x-headrace-session":
            return value
        own = lower.startswith(b"x-") and lower.endswith(b"-session-id") and b"parent" not in lower
        if found is None and (own or lower in _SESSION_HEADERS):
            found = value
    return found
