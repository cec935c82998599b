"""Sessions of the console, and the one-time tokens that begin them: one SQLite file, hashes alone."""

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from headrace.console.users import User
from trajectory.files import make_folders

_TOKEN_SECONDS = 3600.0
"""How long a one-time token waits for somebody."""
_SEEN_SECONDS = 30.0
"""A session's last use is written down at most so often."""
_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (hash TEXT PRIMARY KEY, user TEXT, ends REAL);
CREATE TABLE IF NOT EXISTS sessions (hash TEXT PRIMARY KEY, user TEXT, name TEXT, begun REAL, seen REAL, ends REAL);
"""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A session of somebody."""

    session: str
    """Name that ends it: the beginning of its hash, which opens nothing."""
    begun: float
    seen: float
    ends: float
    """Seconds since 1970."""


def _hash(secret: str) -> str:
    """Return what is kept of 256 random bits: a slow hash would add nothing."""
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


class SessionStore:
    """Begins, finds and ends sessions; several processes may use one file."""

    def __init__(
        self,
        path: Path,
        *,
        idle_seconds: float,
        longest_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._idle = idle_seconds
        self._longest = longest_seconds
        self._clock = clock
        make_folders(path.parent, mode=0o700)
        path.touch(mode=0o600)
        with self._open() as database:
            database.executescript(_TABLES)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as database, database:
            yield database

    def issue_token(self, user: User) -> str:
        """Return a token that lets somebody sign in once as this user, within an hour."""
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._open() as database:
            database.execute("DELETE FROM tokens WHERE ends <= ?", (now,))
            row = (_hash(token), json.dumps(user.to_json()), now + _TOKEN_SECONDS)
            database.execute("INSERT INTO tokens VALUES (?, ?, ?)", row)
        return token

    def redeem(self, token: str) -> User | None:
        """Return whom a token signs in, and take it away; None where there is no such token."""
        with self._open() as database:
            found = database.execute(
                "DELETE FROM tokens WHERE hash = ? RETURNING user, ends", (_hash(token),)
            ).fetchone()
        if found is None or found[1] <= self._clock():
            return None
        return User.from_json(json.loads(found[0]))

    def begin(self, user: User) -> str:
        """Return the id of a new session; it is kept as a hash."""
        session, now = secrets.token_urlsafe(32), self._clock()
        kept = (_hash(session), json.dumps(user.to_json()), user.name, now, now)
        with self._open() as database:
            database.execute(
                "DELETE FROM sessions WHERE ends <= ? OR seen <= ?", (now, now - self._idle)
            )
            database.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", (*kept, now + self._longest)
            )
        return session

    def user_of(self, session: str) -> User | None:
        """Return whose session this is; None where it has ended or never was."""
        now = self._clock()
        with self._open() as database:
            found = database.execute(
                "SELECT user, seen, ends FROM sessions WHERE hash = ?", (_hash(session),)
            ).fetchone()
            if found is None or found[2] <= now or found[1] <= now - self._idle:
                return None
            if found[1] <= now - _SEEN_SECONDS:
                database.execute(
                    "UPDATE sessions SET seen = ? WHERE hash = ?", (now, _hash(session))
                )
        return User.from_json(json.loads(found[0]))

    def end(self, session: str) -> None:
        """End the session of this id."""
        with self._open() as database:
            database.execute("DELETE FROM sessions WHERE hash = ?", (_hash(session),))

    def list(self, user: User) -> tuple[ConsoleSession, ...]:
        """Return a user's sessions, the latest first."""
        now = self._clock()
        with self._open() as database:
            rows = database.execute(
                "SELECT substr(hash, 1, 16), begun, seen, ends FROM sessions "
                "WHERE name = ? AND ends > ? AND seen > ? ORDER BY begun DESC, hash",
                (user.name, now, now - self._idle),
            ).fetchall()
        return tuple(ConsoleSession(*row) for row in rows)

    def revoke(self, user: User, session: str) -> bool:
        """End one of a user's sessions by its name; False where there is none."""
        with self._open() as database:
            gone = database.execute(
                "DELETE FROM sessions WHERE name = ? AND substr(hash, 1, 16) = ?",
                (user.name, session),
            )
        return gone.rowcount > 0
