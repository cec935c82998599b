"""What surrogates stand for in what their provider keeps: sealed, and for a short time.

A request that goes on from a response or within a conversation has its newest words alone. What the
words before it got is known from here, to every worker and after a restart.
"""

import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trajectory.canonical import canonical_json
from trajectory.errors import IntegrityError
from trajectory.files import delete_lastingly
from trajectory.sqlite_file import damage_told, open_shared, transaction

_SCHEMA = """
CREATE TABLE IF NOT EXISTS histories (
    name TEXT PRIMARY KEY, expires REAL NOT NULL, sealed BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_expiry ON histories (expires);
"""
_NONCE_BYTES = 12
_LONGEST = 2 * 1024 * 1024
"""Bytes of a history that are kept; who has more sends the whole conversation."""
_REMEDY = (
    "move it away: who goes on with what a provider keeps sends the whole conversation once more"
)


class SurrogateConflictError(Exception):
    """Two requests at once gave one surrogate to two values."""


class LongHistoryError(Exception):
    """A history has grown longer than one that is kept."""


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """What the gateway knows of a conversation up to one response, or of all of it."""

    scope: tuple[str, ...] = ()
    """Within which its values keep their surrogates."""
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Surrogates that were issued, and what they stand for."""
    entities: Mapping[str, str] = field(default_factory=dict)
    """Types of these values, by their surrogates."""
    numbers: tuple[str, ...] = ()
    """Those that stand for bare numbers of JSON."""
    subjects: tuple[str, ...] = ()
    """Whom they name, as keyed pseudonyms."""
    earned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Surrogates that stand for what tools said themselves, by the names of the tools."""
    calls: Mapping[str, str] = field(default_factory=dict)
    """Names of tools, by the ids of calls that wait for a result."""
    asked: str = ""
    """The end of the answer, which may ask for something."""
    in_json: bool = False
    """The answer's text is JSON."""
    conversation: str = ""
    """The id of the conversation at the provider that a response is part of."""
    requests: str = ""
    """Under which those of the requests in a file or a batch are kept, each by its name."""
    is_answers: bool = False
    """The file holds the answers to these requests, not they themselves."""

    def with_file(self, file: "KeptHistory") -> "KeptHistory":
        """Return what is known of a conversation in which a file is named.

        Raises:
            SurrogateConflictError: a surrogate stands for two values.
        """
        known = file.joined(self)
        return replace(
            known,
            scope=self.scope,
            conversation=self.conversation,
            requests=self.requests or file.requests,
            is_answers=False,
        )

    def joined(self, other: "KeptHistory") -> "KeptHistory":
        """Return what both know; what ends the conversation is the other's.

        Raises:
            SurrogateConflictError: a surrogate stands for two values.
        """
        if any(other.values.get(name, value) != value for name, value in self.values.items()):
            raise SurrogateConflictError
        earned = {
            tool: tuple(sorted({*self.earned.get(tool, ()), *other.earned.get(tool, ())}))
            for tool in (*self.earned, *other.earned)
        }
        return replace(
            self,
            values={**self.values, **other.values},
            entities={**other.entities, **self.entities},
            numbers=tuple(sorted({*self.numbers, *other.numbers})),
            subjects=tuple(dict.fromkeys((*self.subjects, *other.subjects))),
            earned=earned,
            calls={**self.calls, **other.calls},
            asked=other.asked,
            in_json=other.in_json,
        )


@dataclass(frozen=True, slots=True)
class HistoryOwner:
    """Who alone may go on from what the provider keeps."""

    tenant: str
    key_id: str
    route: str


class KeptHistories:
    """The file, which threads and processes share; each thread has a connection of its own."""

    def __init__(
        self, path: Path, key: bytes, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        """Keep each history for so many seconds in ``path``, sealed with a key made of ``key``."""
        self._path = path
        self._key = hmac.digest(key, b"histories", "sha256")
        self._seal = AESGCM(self._key)
        self._seconds = seconds
        self._clock = clock
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    def keep(
        self, owner: HistoryOwner, object_id: str, history: KeptHistory, *, longer: float = 0.0
    ) -> None:
        """Keep a history under the id of what the provider keeps, for so many seconds longer than others.

        Raises:
            LongHistoryError: it is too long.
            IntegrityError: the file is damaged.
        """
        with damage_told(self._path, _REMEDY):
            self._write(self._name(owner, object_id), history, longer)

    def merge(self, owner: HistoryOwner, object_id: str, history: KeptHistory) -> bool:
        """Add to the history of a conversation; its writers wait for each other.

        Returns:
            Whether there is such a history; none is begun.

        Raises:
            SurrogateConflictError: another writer gave one of its surrogates to another value.
            LongHistoryError: together they are too long.
            IntegrityError: the file is damaged.
        """
        name = self._name(owner, object_id)
        with damage_told(self._path, _REMEDY), transaction(self._opened()):
            before = self._found(name)
            if before is not None:
                self._write(name, before.joined(history))
        return before is not None

    def find(self, owner: HistoryOwner, object_id: str) -> KeptHistory | None:
        """Return what is known of an object; None where it is nobody's, another's or too old.

        Raises:
            IntegrityError: the file is damaged.
        """
        if not self._path.exists():
            return None
        with damage_told(self._path, _REMEDY):
            return self._found(self._name(owner, object_id))

    def drop(self, owner: HistoryOwner, object_id: str) -> None:
        """Delete the history of what the provider has deleted.

        Raises:
            IntegrityError: the file is damaged.
        """
        if self._path.exists():
            name = self._name(owner, object_id)
            with damage_told(self._path, _REMEDY):
                self._opened().execute("DELETE FROM histories WHERE name = ?", (name,))

    def _write(self, name: str, history: KeptHistory, longer: float = 0.0) -> None:
        raw = _written(history)
        now, nonce = self._clock(), os.urandom(_NONCE_BYTES)
        sealed = nonce + self._seal.encrypt(nonce, raw, name.encode())
        file = self._opened()
        file.execute("DELETE FROM histories WHERE expires <= ?", (now,))
        file.execute(
            "INSERT OR REPLACE INTO histories (name, expires, sealed) VALUES (?, ?, ?)",
            (name, now + self._seconds + longer, sealed),
        )

    def _found(self, name: str) -> KeptHistory | None:
        found = self._opened().execute(
            "SELECT sealed FROM histories WHERE name = ? AND expires > ?", (name, self._clock())
        )
        row = found.fetchone()
        return None if row is None else self._unsealed(name, row[0])

    def forget(self, subjects: Collection[str]) -> int | None:
        """Delete every history that names one of these people; return how many did.

        Of a damaged file nobody can tell whom it names, so it goes whole; then None is returned.
        """
        if not self._path.exists():
            return 0
        try:
            with damage_told(self._path, _REMEDY):
                return self._forget(subjects)
        except IntegrityError:
            self.close()
            delete_lastingly(self._path.parent.glob(f"{self._path.name}*"))
            return None

    def _forget(self, subjects: Collection[str]) -> int:
        file = self._opened()
        file.execute("PRAGMA synchronous = FULL")  # an erasure that is done waited for the disk
        named = [
            (name,)
            for name, sealed in file.execute("SELECT name, sealed FROM histories")
            if (kept := self._unsealed(name, sealed)) and not {*kept.subjects}.isdisjoint(subjects)
        ]
        file.executemany("DELETE FROM histories WHERE name = ?", named)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # nothing of them stays in the log
        return len(named)

    def _unsealed(self, name: str, row: bytes) -> KeptHistory | None:
        """Return what a row holds; None where somebody else wrote it."""
        try:
            raw = self._seal.decrypt(row[:_NONCE_BYTES], row[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError, TypeError):  # the latter where it is cut short
            return None
        return read_kept_history(json.loads(raw))

    def _name(self, owner: HistoryOwner, object_id: str) -> str:
        parts = canonical_json([owner.tenant, owner.key_id, owner.route, object_id])
        return blake2b(parts, digest_size=20, key=self._key).hexdigest()

    def close(self) -> None:
        """Let go of the file; whoever asks for it again opens it anew."""
        self._own = threading.local()
        with self._lock:
            while self._connections:
                self._connections.pop().close()

    def _opened(self) -> sqlite3.Connection:
        """Return this thread's connection; each statement stands by itself.

        It stays open, for who closes the last one waits for the disk. A file that was deleted is made anew.
        """
        place = self._number()
        if place is not None and getattr(self._own, "place", None) == place:
            found: sqlite3.Connection = self._own.connection
            return found
        file = open_shared(self._path, _SCHEMA, seconds=2.0, synchronous="NORMAL")
        with self._lock:
            self._connections.append(file)
        file.execute("PRAGMA secure_delete = ON")
        self._own.place, self._own.connection = self._number(), file
        return file

    def _number(self) -> int | None:
        """Return which file it is; None where there is none."""
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return None


def check_length(history: KeptHistory) -> None:
    """Refuse a history that could not be kept.

    Raises:
        LongHistoryError: it is too long.
    """
    _written(history)


def _written(history: KeptHistory) -> bytes:
    raw = json.dumps(asdict(history)).encode()
    if len(raw) > _LONGEST:
        raise LongHistoryError
    return raw


def read_kept_history(value: dict[str, Any]) -> KeptHistory:
    """Return the history that a row holds, written by this version or an earlier one."""
    return KeptHistory(
        scope=tuple(value["scope"]),
        values=value["values"],
        entities=value.get("entities", {}),  # who wrote it may be a version before
        numbers=tuple(value["numbers"]),
        subjects=tuple(value["subjects"]),
        earned={tool: tuple(names) for tool, names in value["earned"].items()},
        calls=value["calls"],
        asked=value["asked"],
        in_json=value["in_json"],
        conversation=value.get("conversation", ""),
        requests=value.get("requests", ""),
        is_answers=value.get("is_answers", False),
    )
