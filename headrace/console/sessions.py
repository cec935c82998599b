"""Sessions of the console, and the one-time tokens that begin them: one SQLite file, hashes alone."""

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Self

from headrace.app.settings import ConsoleSettings, RoleGrant
from headrace.console.attempt import SignInAttempt
from headrace.console.users import User
from trajectory.files import make_folders
from trajectory.sqlite_file import damage_told, make_lasting

_TOKEN_SECONDS = 3600.0
"""How long a one-time token waits for somebody."""
_ATTEMPT_SECONDS = 600.0
"""So long somebody may take at the identity provider."""
_SEEN_SECONDS = 30.0
"""A session's last use is written down at most so often."""
_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (hash TEXT PRIMARY KEY, user TEXT, ends REAL);
CREATE TABLE IF NOT EXISTS attempts (hash TEXT PRIMARY KEY, nonce TEXT, verifier TEXT, next TEXT, ends REAL);
DROP TABLE IF EXISTS sessions;
CREATE TABLE IF NOT EXISTS signed_in (
    hash TEXT PRIMARY KEY, user TEXT, name TEXT, authority TEXT, door TEXT, begun REAL, seen REAL, ends REAL
);
"""
BROWSER, COMMAND_LINE = "browser", "command line"


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A session of somebody."""

    session: str
    """Name that ends it: the beginning of its hash, which opens nothing."""
    name: str
    """Whose it is."""
    authority: str
    """Who vouches for the name."""
    door: str
    """browser | command line"""
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
        grants: Sequence[RoleGrant] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep sessions in ``path``; what the roles of a group are now, ``grants`` says."""
        self._path = path
        self._grants = tuple(grants)
        self._idle = idle_seconds
        self._longest = longest_seconds
        self._clock = clock
        make_folders(path.parent, mode=0o700)
        path.touch(mode=0o600)
        with self._open() as database:
            database.executescript(_TABLES)

    @classmethod
    def of(cls, path: Path, settings: ConsoleSettings) -> Self:
        """Return the store of an installation."""
        return cls(
            path,
            idle_seconds=60 * settings.idle_minutes,
            longest_seconds=3600 * settings.session_hours,
            grants=settings.groups,
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        remedy = "move it away, and everybody signs in again"
        with (
            damage_told(self._path, remedy),
            closing(sqlite3.connect(self._path, timeout=10)) as database,
        ):
            make_lasting(database)
            with database:
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

    def keep_attempt(self, attempt: SignInAttempt, then: str) -> None:
        """Remember that somebody went to the identity provider, and to which page that was to lead."""
        now = self._clock()
        row = (_hash(attempt.state), attempt.nonce, attempt.verifier, then, now + _ATTEMPT_SECONDS)
        with self._open() as database:
            database.execute("DELETE FROM attempts WHERE ends <= ?", (now,))
            database.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?)", row)

    def take_attempt(self, state: str) -> tuple[SignInAttempt, str] | None:
        """Return the attempt of a state and where it leads, once; None where there is none."""
        with self._open() as database:
            found = database.execute(
                "DELETE FROM attempts WHERE hash = ? RETURNING nonce, verifier, next, ends",
                (_hash(state),),
            ).fetchone()
        if found is None or found[3] <= self._clock():
            return None
        return SignInAttempt(state, found[0], found[1]), str(found[2])

    def begin(self, user: User, door: str = BROWSER) -> str:
        """Return the id of a new session; it is kept as a hash."""
        session, now = secrets.token_urlsafe(32), self._clock()
        kept = (_hash(session), json.dumps(user.to_json()), user.name, user.authority, door)
        with self._open() as database:
            database.execute(
                "DELETE FROM signed_in WHERE ends <= ? OR seen <= ?", (now, now - self._idle)
            )
            database.execute(
                "INSERT INTO signed_in VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*kept, now, now, now + self._longest),
            )
        return session

    def user_of(self, session: str, *, is_use: bool = True) -> User | None:
        """Return whose session this is, with the roles of today; None where it has ended or never was.

        What a browser asks of itself is no use: the session ends as if nobody had asked.
        """
        now = self._clock()
        with self._open() as database:
            found = database.execute(
                "SELECT user, seen, ends FROM signed_in WHERE hash = ?", (_hash(session),)
            ).fetchone()
        if found is None or found[2] <= now or found[1] <= now - self._idle:
            return None
        if is_use and found[1] <= now - _SEEN_SECONDS:
            self._note_seen(session, now)
        return User.from_json(json.loads(found[0])).granted(self._grants)

    def _note_seen(self, session: str, now: float) -> None:
        # A full disk signs nobody out before the time: who mends it looks here what is wrong.
        with suppress(sqlite3.OperationalError), self._open() as database:
            database.execute("UPDATE signed_in SET seen = ? WHERE hash = ?", (now, _hash(session)))

    def end(self, session: str) -> None:
        """End the session of this id."""
        with self._open() as database:
            database.execute("DELETE FROM signed_in WHERE hash = ?", (_hash(session),))

    def list(self, user: User | None = None) -> tuple[ConsoleSession, ...]:
        """Return a user's sessions, or everybody's, the latest first."""
        now = self._clock()
        with self._open() as database:
            rows = database.execute(
                "SELECT user, substr(hash, 1, 16), name, authority, door, begun, seen, ends "
                "FROM signed_in WHERE ends > ? AND seen > ? ORDER BY begun DESC, hash",
                (now, now - self._idle),
            ).fetchall()
        return tuple(ConsoleSession(*row) for kept, *row in rows if _is_of(kept, user))

    def revoke(self, session: str, user: User | None = None) -> str | None:
        """End a session by its name, where it is this user's or no user is given; return whose it was."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            found = database.execute(
                "SELECT user, hash, name FROM signed_in WHERE substr(hash, 1, 16) = ?", (session,)
            ).fetchall()
            for kept, name, whose in found:
                if _is_of(kept, user):
                    database.execute("DELETE FROM signed_in WHERE hash = ?", (name,))
                    return str(whose)
        return None


def _is_of(kept: str, user: User | None) -> bool:
    """Tell whether a session's user is this one: two people of an authority may have one name."""
    return user is None or User.from_json(json.loads(kept)).is_same(user)
