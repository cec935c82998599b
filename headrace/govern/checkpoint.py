"""The governor's checkpoint: one SQLite file, so that a crash at any point is harmless.

``state/checkpoint.sqlite`` holds keyed hashes, ids and numbers, never content, and sealed whom traces name:

``conversations``  what assembly remembers after some batch, the batch's number and its spool cursor
``batches``        the cursor after each later batch; the last one may be announced and not yet done

Assembly's state grows to many megabytes, and its parts depend on each other, so not every batch writes it. The
spool keeps what came since; a start assembles that again and reaches the same state. A batch is announced before
its first commit. After a crash the same records are taken again, assembled, and appended under the same number;
the lake skips the tables that have that number already.

A copy of the file stands in the lake's notes, with a small note of the later batches. When the file is lost,
damaged or older, the copy holds, and a conversation that goes on stays one trajectory. A copy may be one batch
behind: then its announced batch is carried again. With neither, or when lake and checkpoint do not fit together,
it reads the spool from its beginning. The governor then passes over what the lake's ledger has.
"""

import json
import sqlite3
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headrace.govern.packed_json import packed_json, unpacked
from lakehouse.lake import Lake
from trajectory.canonical import JsonObject
from trajectory.errors import ConfigurationError, IntegrityError, RetryableError
from trajectory.files import locked, replace_file
from trajectory.sqlite_file import begin_log

NO_MEMORY = packed_json({})
"""What an assembler remembers that has seen nothing, packed."""

_VERSION = 2
_LOCK_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY CHECK (id = 1), application TEXT NOT NULL, batch INTEGER NOT NULL,
    cursor TEXT NOT NULL, ledger INTEGER NOT NULL, remembered BLOB NOT NULL
);
CREATE TABLE batches (batch INTEGER PRIMARY KEY, cursor TEXT NOT NULL, done INTEGER NOT NULL);
"""
_EARLIER = ("checkpoint", "progress", "pending")
"""The JSON files of version 1, in the same folder, and their copies in the lake."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Position of the governor: the state after a batch that is completely in the lake."""

    application: str
    """Name of this line of batches in the lake's application transactions."""
    batch: int
    cursor: JsonObject
    again: bool = False
    """Begun anew beside a lake that may hold what the spool brings: its ledger is asked first."""
    trail: tuple[JsonObject, ...] = ()
    """Cursors from the written conversations to this batch: what lies between is assembled again."""
    announced: JsonObject | None = None
    """Cursor after the next batch, whose rows may be partly in the lake; None where none was begun."""

    @property
    def hold(self) -> JsonObject:
        """The cursor from which on the spool must keep its records."""
        return self.trail[0] if self.trail else self.cursor

    @property
    def reach(self) -> tuple[int, int]:
        """How far this goes, the announced batch included; later checkpoints compare greater."""
        return self.batch + (self.announced is not None), self.batch


class CheckpointCopies(Protocol):
    """Store of checkpoint copies; ``lakehouse.storage.notes.Notes`` implements it."""

    def put(self, name: str, data: bytes) -> None:
        """Write one, whole or not at all."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return one, None when there is none."""
        ...


class _CheckpointFile(NamedTuple):
    """A checkpoint with what assembly remembered at the beginning of its trail, packed."""

    checkpoint: Checkpoint
    remembered: bytes


class CheckpointStore:
    """Reads and writes the file and its copy; one governor writes, others may read."""

    def __init__(
        self, folder: Path, copies: CheckpointCopies | None = None, *, name: str = ""
    ) -> None:
        """Keep the file in ``folder``, and a copy under ``name``."""
        self.path = folder / "checkpoint.sqlite"
        self._copies = copies
        self._name = name
        self._opened: sqlite3.Connection | None = None
        self._is_copied = False

    def load(self) -> Checkpoint:
        """Return the last checkpoint of this folder; one with batch 0 where there is none.

        Raises:
            IntegrityError: the file is damaged.
        """
        if self._opened is not None:
            with self._writing() as file:
                return _checkpoint_of(file)
        saved = self._own() or self._earlier()
        return Checkpoint("", 0, {}) if saved is None else saved.checkpoint

    def remembered(self) -> bytes:
        """Return what assembly remembered where the trail begins, packed: many megabytes."""
        with self._writing() as file:
            return _remembered_of(file)

    def recover(
        self,
        lake: Lake,
        behind: Callable[[int, int], None] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Begin to write: take what goes furthest, here or in the lake, and see that it fits the lake.

        Args:
            lake: where the batches went.
            behind: told of the last batch that was done, and how many up to it the lake lacks.
            report: told of a damaged file that was made again from its copy.

        Raises:
            IntegrityError: the file is damaged and has no copy.
            RetryableError: it cannot be written.
        """
        copy = self._copy()
        try:
            own = self._own() or self._earlier()
        except IntegrityError:
            if copy is None:
                raise
            if report is not None:
                report(
                    f"warning: {self.path} is damaged or of another version; it is made again from its copy in the lake"
                )
            own = None
        found = max(filter(None, (own, copy)), key=lambda one: one.checkpoint.reach, default=None)
        if found is None:
            found = _begun_anew(lake)
        elif missing := missing_batches(found.checkpoint, lake):
            if behind is not None:
                behind(found.checkpoint.batch, missing)
            found = _begun_anew(lake)
        elif _committed(found.checkpoint, lake) > found.checkpoint.reach[0]:
            found = _begun_anew(lake)  # an older copy of the home: its next number is taken
        if found is not own or not self.path.exists():
            self._create(found)
        self._opened = sqlite3.connect(self.path, timeout=_LOCK_SECONDS, check_same_thread=False)
        weakref.finalize(self, self._opened.close)
        begin_log(self._opened, _LOCK_SECONDS)
        self._opened.execute("PRAGMA synchronous = FULL")  # a batch waits for the disk twice
        for name in _EARLIER:
            self.path.with_name(f"{name}.json").unlink(missing_ok=True)
        if found is not own:  # at once: the copy of an abandoned line of batches must not come back
            self._copy_file()

    def announce(self, batch: int, cursor: JsonObject) -> None:
        """Write down, before its first commit, that a batch goes up to a cursor.

        Raises:
            RetryableError: it could not be written; nothing was lost.
        """
        with self._writing() as file:
            file.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, 0)", (batch, _json(cursor)))
        if self._copies is not None:
            self._copy_file()
            self._copies.put(f"{self._name}-batches", self._later_batches())

    def complete(self, batch: int, remembered: bytes | None = None) -> None:
        """Write down that a batch is wholly in the lake.

        With what assembly remembers after it, packed, the trail ends here and the file is copied.

        Raises:
            RetryableError: it could not be written; nothing was lost.
        """
        with self._writing() as file:
            file.execute("UPDATE batches SET done = 1 WHERE batch = ?", (batch,))
            if remembered is not None:
                done = _checkpoint_of(file)
                file.execute("DELETE FROM batches")
                file.execute(
                    "UPDATE conversations SET batch = ?, cursor = ?, remembered = ?",
                    (done.batch, _json(done.cursor), remembered),
                )
        if remembered is not None:
            self._is_copied = False
            self._copy_file()

    def _own(self) -> _CheckpointFile | None:
        if not self.path.exists():
            return None
        try:
            with closing(sqlite3.connect(self.path, timeout=_LOCK_SECONDS)) as file:
                if file.execute("PRAGMA quick_check").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError("malformed")
                return _saved_in(file)
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, sqlite3.OperationalError):
                raise _unwritten(self.path, error) from error
            raise _damaged(self.path) from None

    def _earlier(self) -> _CheckpointFile | None:
        """Return what the files of version 1 hold; None where there are none."""
        paths = [self.path.with_name(f"{name}.json") for name in _EARLIER]
        try:
            return _of_version_1(*(_read_object(path) for path in paths))
        except (ValueError, KeyError, TypeError):
            raise _damaged(paths[0]) from None

    def _copy(self) -> _CheckpointFile | None:
        """Return the copy in the lake; None when there is none that can be read."""
        if self._copies is None:
            return None
        with suppress(sqlite3.Error, zlib.error, ValueError, KeyError, TypeError):
            if (data := self._copies.get(f"{self._name}-state")) is None:
                notes = (self._copies.get(f"{self._name}-{name}") for name in _EARLIER)
                return _of_version_1(*(_object(b"".join(unpacked(one or b""))) for one in notes))
            with closing(sqlite3.connect(":memory:")) as file:
                file.deserialize(data or b"cut off")
                self._take_later_batches(file)
                return _saved_in(file)
        return None

    def _take_later_batches(self, file: sqlite3.Connection) -> None:
        """Move a copy on by the note of later batches, where that goes on from it."""
        data = self._copies.get(f"{self._name}-batches") if self._copies is not None else None
        with suppress(ValueError, KeyError, TypeError):
            note = json.loads(data or b"{}")
            rows = [(number, _json(cursor), done) for number, cursor, done in note["later"]]
            start = file.execute("SELECT application, batch FROM conversations").fetchone()
            if (note["application"], note["batch"]) == start:
                file.execute("DELETE FROM batches")
                file.executemany("INSERT INTO batches VALUES (?, ?, ?)", rows)

    def _later_batches(self) -> bytes:
        with self._writing() as file:
            application, batch = file.execute(
                "SELECT application, batch FROM conversations"
            ).fetchone()
            rows = file.execute("SELECT batch, cursor, done FROM batches ORDER BY batch").fetchall()
        later = [[number, json.loads(cursor), done] for number, cursor, done in rows]
        return _json({"application": application, "batch": batch, "later": later}).encode()

    def _copy_file(self) -> None:
        """Put a copy of the whole file into the lake, unless the one there will do."""
        if self._copies is None or self._is_copied:
            return
        with self._writing() as file, closing(sqlite3.connect(":memory:")) as copy:
            file.backup(copy)
            data = copy.serialize()
        # The two bytes say "WAL", which a database in memory cannot be (SQLite, sqlite3_deserialize).
        self._copies.put(f"{self._name}-state", data[:18] + b"\x01\x01" + data[20:])
        self._is_copied = True

    def _create(self, saved: _CheckpointFile) -> None:
        """Replace any existing file by one with this checkpoint."""
        checkpoint = saved.checkpoint
        start = checkpoint.batch - max(0, len(checkpoint.trail) - 1)
        with closing(sqlite3.connect(":memory:")) as file:
            file.executescript(_SCHEMA)
            file.execute(f"PRAGMA user_version = {_VERSION}")
            row = (checkpoint.application, start, _json(checkpoint.hold), checkpoint.again)
            file.execute(
                "INSERT INTO conversations VALUES (1, ?, ?, ?, ?, ?)", (*row, saved.remembered)
            )
            later = [*checkpoint.trail[1:], *filter(None, (checkpoint.announced,))]
            for number, cursor in enumerate(later, start=start + 1):
                done = number <= checkpoint.batch
                file.execute("INSERT INTO batches VALUES (?, ?, ?)", (number, _json(cursor), done))
            file.commit()
            data = file.serialize()
        try:
            for suffix in ("-wal", "-shm"):  # of the file that goes: never of the one that comes
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            replace_file(self.path, data)
        except OSError as error:
            raise _unwritten(self.path, error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Give the file for one transaction."""
        if self._opened is None:
            raise RuntimeError("recover() comes first")
        try:
            with self._opened:
                yield self._opened
        except sqlite3.OperationalError as error:
            raise _unwritten(self.path, error) from error
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path) from error


def missing_batches(checkpoint: Checkpoint, lake: Lake) -> int:
    """Return how many batches were done and are not in the lake: it is another, older or damaged."""
    return max(0, checkpoint.batch - _committed(checkpoint, lake)) if checkpoint.batch else 0


def lacks(missing: int, lake: str) -> str:
    """Return what to tell of batches that a lake lacks."""
    return (
        f"the lake at {lake} lacks {missing} of the batches that were done: it is another one, an "
        "older copy, or its disk lost them. What the spool still holds of them is governed again; "
        "restore a newer copy of the lake if you have one"
    )


def installation_name(path: Path) -> str:
    """Return the name of an installation, created once and kept in its own file.

    Raises:
        ConfigurationError: the file holds something else.
        RetryableError: it cannot be written.
    """
    name = _name_in(path)
    if not name:
        try:
            with locked(path.with_suffix(".lock"), wait=True):
                name = _name_in(path)
                if not name:
                    name = uuid.uuid4().hex
                    replace_file(path, name.encode())
        except OSError as error:
            raise _unwritten(path, error) from error
    return name


def _name_in(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path} holds no name of an installation; restore it, or remove it to have a new one made"
        ) from None


def _begun_anew(lake: Lake) -> _CheckpointFile:
    """Return a checkpoint that reads the spool from its beginning and asks the ledger, if there is one."""
    has_ledger = bool(lake.query("SELECT 1 FROM exchanges LIMIT 1").num_rows)
    return _CheckpointFile(
        Checkpoint(f"govern-{uuid.uuid4().hex}", 0, {}, again=has_ledger), NO_MEMORY
    )


def _committed(checkpoint: Checkpoint, lake: Lake) -> int:
    return max(0, lake.committed_version(checkpoint.application))


def _saved_in(file: sqlite3.Connection) -> _CheckpointFile:
    """Read a whole file.

    Raises:
        sqlite3.DatabaseError: it is damaged or of another version.
    """
    if file.execute("PRAGMA user_version").fetchone() != (_VERSION,):
        raise sqlite3.DatabaseError("another version")
    return _CheckpointFile(_checkpoint_of(file), _remembered_of(file))


def _checkpoint_of(file: sqlite3.Connection) -> Checkpoint:
    query = "SELECT application, batch, cursor, ledger FROM conversations"
    application, batch, cursor, ledger = file.execute(query).fetchone()
    later = file.execute("SELECT batch, cursor, done FROM batches ORDER BY batch").fetchall()
    done = [json.loads(cursor) for _, cursor, is_done in later if is_done]
    announced = [json.loads(cursor) for _, cursor, is_done in later if not is_done]
    start = json.loads(cursor)
    return Checkpoint(
        application,
        batch + len(done),
        done[-1] if done else start,
        again=bool(ledger),
        trail=(start, *done) if done else (),
        announced=announced[0] if announced else None,
    )


def _remembered_of(file: sqlite3.Connection) -> bytes:
    return bytes(file.execute("SELECT remembered FROM conversations").fetchone()[0])


def _of_version_1(
    whole: dict[str, Any] | None, progress: dict[str, Any] | None, pending: dict[str, Any] | None
) -> _CheckpointFile | None:
    """Return what the JSON files of version 1 say; None without the first of them."""
    if whole is None:
        return None
    batch, trail = whole["batch"], ()
    if (
        progress is not None
        and progress["application"] == whole["application"]
        and progress["batch"] == batch + len(progress["trail"]) - 1
    ):
        batch, trail = progress["batch"], tuple(progress["trail"])
    begun = pending is not None and pending["batch"] == batch + 1
    checkpoint = Checkpoint(
        whole["application"],
        batch,
        trail[-1] if trail else whole["cursor"],
        again=whole.get("again", False),
        trail=trail,
        announced=pending["cursor"] if pending is not None and begun else None,
    )
    return _CheckpointFile(checkpoint, packed_json(whole["assembler"]))


def _read_object(path: Path) -> dict[str, Any] | None:
    try:
        return _object(path.read_bytes() or b"damaged")
    except FileNotFoundError:
        return None


def _object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object of version 1; None for no bytes at all."""
    if not data:
        return None
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("version") != 1:
        raise ValueError("another version")
    return value


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _damaged(path: Path) -> IntegrityError:
    return IntegrityError(
        f"{path} is damaged or of another version. Move it away to read the spool again from its "
        "beginning; records that are in the lake's ledger already are skipped."
    )


def _unwritten(path: Path, error: sqlite3.Error | OSError) -> RetryableError:
    why = error.strerror if isinstance(error, OSError) else error
    return RetryableError(
        f"{path} could not be written ({why}); nothing was lost: check disk space and permissions, "
        "then run the same again"
    )
