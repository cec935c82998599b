"""What waits for a second person, in one SQLite file: it outlives a killed process, and is done once.

A request says what shall be done in the words of the act that does it; no person stands in it but by
pseudonym, and the names of who asked and who decided.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.console.users import User
from trajectory.canonical import JsonValue, canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import locked, make_folders
from trajectory.sqlite_file import damage_told, make_lasting

WAITING, APPROVED, DONE, FAILED = "waiting", "approved", "done", "failed"
REJECTED, EXPIRED = "rejected", "expired"
STATUSES = (WAITING, APPROVED, DONE, FAILED, REJECTED, EXPIRED)
_WAIT_SECONDS = 14 * 86400.0
"""A request that nobody decided by then has expired."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    request_id TEXT PRIMARY KEY, act TEXT NOT NULL, tenant TEXT NOT NULL, subject TEXT NOT NULL,
    parameters TEXT NOT NULL, status TEXT NOT NULL, asked_at REAL NOT NULL, asked_by TEXT NOT NULL,
    why TEXT NOT NULL, expires REAL NOT NULL, decided_at REAL, decided_by TEXT, reason TEXT,
    done INTEGER, total INTEGER, ended_at REAL, outcome TEXT
);
"""
_COLUMNS = (
    "request_id, act, tenant, subject, parameters, status, asked_at, asked_by, why, expires, "
    "decided_at, decided_by, reason, done, total, ended_at, outcome"
)


@dataclass(frozen=True, slots=True)
class ActRequest:
    """Somebody wants an act that a second person must approve."""

    request_id: str
    act: str
    tenant: str
    """In whose data; ``*`` is every tenant's."""
    subject: str
    """What it is done to, for the eye and the audit log."""
    parameters: Mapping[str, JsonValue]
    status: str
    """waiting | approved | done | failed | rejected | expired"""
    asked_at: float
    asked_by: User
    why: str
    expires: float
    decided_at: float | None
    decided_by: User | None
    reason: str | None
    done: int | None
    total: int | None
    """How far it is, and of how much."""
    ended_at: float | None
    outcome: Mapping[str, JsonValue] | None


class RequestStore:
    """The file; each call opens it anew, so that any thread and process may."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Keep requests in ``folder``."""
        self._folder = folder
        self._path = folder / "requests.sqlite"
        self._clock = clock
        make_folders(folder, mode=0o700)
        self._path.touch(mode=0o600)
        with self._open() as file:
            file.executescript(_SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        remedy = "restore it, or move it away: what waits in it is then asked for again"
        with (
            damage_told(self._path, remedy),
            closing(sqlite3.connect(self._path, timeout=30)) as file,
        ):
            make_lasting(file)
            with file:
                yield file

    def ask(
        self,
        user: User,
        act: str,
        *,
        tenant: str,
        subject: str,
        parameters: Mapping[str, JsonValue],
        why: str,
        is_approved: bool = False,
    ) -> tuple[ActRequest, bool]:
        """Return a person's request, and whether it is new: the same one waits at most once."""
        now = self._clock()
        said = canonical_json(dict(parameters)).decode()
        who = json.dumps(user.to_json())
        with self._open() as file:
            self._expire(file)
            rows = file.execute(
                f"SELECT {_COLUMNS} FROM requests WHERE act = ? AND parameters = ? AND status IN (?, ?)",  # noqa: S608
                (act, said, WAITING, APPROVED),
            ).fetchall()
            for found in map(_request, rows):
                if found.asked_by.is_same(user):
                    return found, False
            request_id = secrets.token_hex(6)
            status = APPROVED if is_approved else WAITING
            file.execute(
                "INSERT INTO requests (request_id, act, tenant, subject, parameters, status, asked_at, "
                "asked_by, why, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(request_id, act, tenant, subject, said, status, now, who, why),
                    now + _WAIT_SECONDS,
                ),
            )
        return self.get(request_id), True

    def get(self, request_id: str) -> ActRequest:
        """Return a request.

        Raises:
            ConfigurationError: there is none of this id.
        """
        with self._open() as file:
            self._expire(file)
            row = file.execute(
                f"SELECT {_COLUMNS} FROM requests WHERE request_id = ?",  # noqa: S608
                (request_id,),
            ).fetchone()
        if row is None:
            raise ConfigurationError(
                f"no request {request_id!r}; `headrace requests list --status all` shows them."
            )
        return _request(row)

    def list(self, status: str = WAITING) -> tuple[ActRequest, ...]:
        """Return requests of a status, or ``all``, the latest first.

        Raises:
            ConfigurationError: there is no such status.
        """
        if status not in (*STATUSES, "all"):
            raise ConfigurationError(f"no status {status!r}. Valid: {', '.join(STATUSES)}, all.")
        with self._open() as file:
            self._expire(file)
            rows = file.execute(
                f"SELECT {_COLUMNS} FROM requests WHERE ?1 = 'all' OR status = ?1 "  # noqa: S608
                "ORDER BY asked_at DESC, request_id LIMIT 500",
                (status,),
            ).fetchall()
        return tuple(map(_request, rows))

    def decide(self, request_id: str, user: User, *, approve: bool, reason: str) -> bool:
        """Approve or reject a request that waits; True for one caller alone."""
        status = APPROVED if approve else REJECTED
        with self._open() as file:
            self._expire(file)
            changed = file.execute(
                "UPDATE requests SET status = ?, decided_at = ?, decided_by = ?, reason = ? "
                "WHERE request_id = ? AND status = ?",
                (
                    *(status, self._clock(), json.dumps(user.to_json()), reason),
                    *(request_id, WAITING),
                ),
            )
        return changed.rowcount == 1

    def progress(self, request_id: str, done: int, total: int) -> None:
        """Say how far a request is."""
        with self._open() as file:
            file.execute(
                "UPDATE requests SET done = ?, total = ? WHERE request_id = ?",
                (done, total, request_id),
            )

    def end(self, request_id: str, status: str, outcome: Mapping[str, JsonValue]) -> None:
        """Say what became of a request that was approved."""
        with self._open() as file:
            file.execute(
                "UPDATE requests SET status = ?, ended_at = ?, outcome = ? "
                "WHERE request_id = ? AND status = ?",
                (
                    *(status, self._clock(), canonical_json(dict(outcome)).decode()),
                    *(request_id, APPROVED),
                ),
            )

    @contextmanager
    def alone(self, request_id: str) -> Iterator[bool]:
        """Yield whether nobody else does this request now; a killed process holds nothing."""
        folder = self._folder / "under-way" / request_id
        make_folders(folder, mode=0o700)
        with locked(folder, wait=False) as lock:
            yield lock is not None

    def _expire(self, file: sqlite3.Connection) -> None:
        file.execute(
            "UPDATE requests SET status = ? WHERE status = ? AND expires <= ?",
            (EXPIRED, WAITING, self._clock()),
        )


def _request(row: tuple[object, ...]) -> ActRequest:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    for name in ("parameters", "outcome"):
        fields[name] = None if fields[name] is None else json.loads(str(fields[name]))
    for name in ("asked_by", "decided_by"):
        fields[name] = (
            None if fields[name] is None else User.from_json(json.loads(str(fields[name])))
        )
    return ActRequest(**fields)  # type: ignore[arg-type]
