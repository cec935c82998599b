"""The table of near-duplicates: kept documents by the keys of their bands, in one SQLite file.

Several processes may use one file. What is deleted is overwritten with zeros, in the log too. A
document costs 0.15 ms of processor time: a million took two and a half minutes (``make bench-dedup``).
"""

import json
import sqlite3
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from governance.near.features import Features, NearDocument
from governance.near.minhash import BandKeys, Signatures, band_keys
from governance.near.shingles import Shingles
from trajectory.errors import IntegrityError
from trajectory.files import make_folders, replace_file
from trajectory.sqlite_file import begin_log, transaction

_FILE = "near.sqlite"
_DAMAGED = "damaged"
"""The file that says so: whoever opens the folder next builds the index again."""
BUCKET = 32
"""Most documents that are kept in one band; more are near each other anyway."""
_WAIT_SECONDS = 60
_CACHE_KIB = 64 * 1024
_SCHEMA = """
CREATE TABLE IF NOT EXISTS algorithm (said TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS document (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, groups TEXT NOT NULL, rank REAL NOT NULL,
    signature BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS document_name ON document (name);
CREATE TABLE IF NOT EXISTS said (number INTEGER PRIMARY KEY, text BLOB NOT NULL, answer BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS band (key INTEGER, number INTEGER, PRIMARY KEY (key, number)) WITHOUT ROWID;
CREATE TEMP TABLE asked (key INTEGER, place INTEGER);
"""
_INTO_BAND = f"""
INSERT OR IGNORE INTO band SELECT ?1, ?2
WHERE (SELECT count(*) FROM (SELECT 1 FROM band WHERE key = ?1 LIMIT {BUCKET})) < {BUCKET}
"""  # noqa: S608 (a fixed number)


class KeptDocument(NamedTuple):
    """A document of the table, without what it says."""

    number: int
    document_id: str
    groups: frozenset[str]
    rank: float
    signature: bytes


class NearStore:
    """Kept documents; with a folder they stay there."""

    def __init__(self, folder: Path | None, algorithm: dict[str, str]) -> None:
        """Open the table in ``folder``; None keeps it in memory.

        Raises:
            IntegrityError: something else computed it, or it cannot be read.
        """
        self._folder = folder
        where = ":memory:"
        if folder is not None:
            make_folders(folder, 0o700)
            if (folder / _DAMAGED).exists():
                raise self._unusable("it was found damaged")
            if any(not path.name.startswith(_FILE) for path in folder.iterdir()):
                raise self._unusable("an earlier version made it")
            where = str(folder / _FILE)
        with self._readable():
            self._database = sqlite3.connect(
                where, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._database.close)
            begin_log(self._database, _WAIT_SECONDS)
            for pragma in (
                "synchronous = FULL",  # the register's note says that it lasts
                "secure_delete = ON",
                "temp_store = MEMORY",
            ):
                self._database.execute(f"PRAGMA {pragma}")
            self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._database.executescript(_SCHEMA)
            self._check(json.dumps(algorithm, sort_keys=True))

    def __len__(self) -> int:
        """Return how many documents are kept."""
        with self._readable():
            ((count,),) = self._database.execute("SELECT count(*) FROM document")
            return int(count)

    def names(self) -> list[str]:
        """Return the documents that are kept."""
        with self._readable():
            return [name for (name,) in self._database.execute("SELECT name FROM document")]

    def sharing_a_band(self, keys: BandKeys) -> dict[int, list[int]]:
        """Return the numbers of kept documents that share a band, by the row of ``keys``."""
        ask, found = self._database.execute, defaultdict[int, list[int]](list)
        sql = (
            "SELECT DISTINCT place, number FROM asked JOIN band USING (key) ORDER BY place, number"
        )
        with self._readable():
            ask("DELETE FROM asked")
            self._database.executemany(
                "INSERT INTO asked VALUES (?, ?)", _bands(keys, range(len(keys)))
            )
            for place, number in ask(sql):
                found[place].append(number)
        return found

    def documents(self, numbers: Sequence[int]) -> list[KeptDocument]:
        """Return the documents of these numbers."""
        sql = "SELECT number, name, groups, rank, signature FROM document WHERE number = ?"
        with self._readable():
            rows = [self._database.execute(sql, (number,)).fetchone() for number in numbers]
        return [
            KeptDocument(number, name, frozenset(json.loads(groups)), rank, signature)
            for number, name, groups, rank, signature in filter(None, rows)
        ]

    def said(self, number: int) -> tuple[Shingles, Shingles]:
        """Return the shingles of a document and of its answer."""
        sql = "SELECT text, answer FROM said WHERE number = ?"
        with self._readable():
            text, answer = self._database.execute(sql, (number,)).fetchone() or (b"", b"")
        return np.frombuffer(text, np.uint32), np.frombuffer(answer, np.uint32)

    def replace(
        self, documents: Sequence[NearDocument], features: Features, gone: Collection[str]
    ) -> None:
        """Keep documents, and take those out that they are better than."""
        with self._transaction() as database:
            self._delete(gone)
            ((last,),) = database.execute("SELECT coalesce(max(number), 0) FROM document")
            numbers = range(last + 1, last + 1 + len(documents))
            answers = features.answers or [np.empty(0, np.uint32)] * len(documents)
            database.executemany(
                "INSERT INTO document VALUES (?, ?, ?, ?, ?)",
                (
                    (number, one.document_id, json.dumps(one.groups), one.rank, row.tobytes())
                    for number, one, row in zip(numbers, documents, features.rows, strict=True)
                ),
            )
            database.executemany(
                "INSERT INTO said VALUES (?, ?, ?)",
                (
                    (number, text.tobytes(), answer.tobytes())
                    for number, text, answer in zip(numbers, features.texts, answers, strict=True)
                ),
            )
            database.executemany(_INTO_BAND, _bands(features.keys, numbers))

    def forget(self, names: Collection[str]) -> int:
        """Delete documents; return how many there were."""
        with self._transaction():
            count = self._delete(names)
        with self._readable():
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def _delete(self, names: Collection[str]) -> int:
        ask = self._database.execute
        sql = "SELECT number, signature FROM document WHERE name = ?"
        rows = [row for name in names for row in ask(sql, (name,)).fetchall()]
        if not rows:
            return 0
        numbers = [number for number, _ in rows]
        signatures = as_signatures([signature for _, signature in rows])
        self._database.executemany(
            "DELETE FROM band WHERE key = ? AND number = ?", _bands(band_keys(signatures), numbers)
        )
        for table in ("document", "said"):
            self._database.executemany(
                f"DELETE FROM {table} WHERE number = ?",  # noqa: S608 (fixed names)
                [(number,) for number in numbers],
            )
        return len(rows)

    def _check(self, algorithm: str) -> None:
        with self._transaction() as database:
            known = database.execute("SELECT said FROM algorithm").fetchone()
            if known is None:
                database.execute("INSERT INTO algorithm VALUES (?)", (algorithm,))
            elif known[0] != algorithm:
                raise self._unusable(f"made with {known[0]}, this version uses {algorithm}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold off other writers; all of it is written, or nothing."""
        with self._readable(), transaction(self._database):
            yield self._database

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Tell damage from full disks and other writers, and leave word of it for whoever opens the index next.

        Only part of the file may be damaged, which nobody sees before that part is asked for.
        """
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = error.sqlite_errorcode & 0xFF
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
                raise  # not other columns, as another version makes them
            if self._folder is not None:
                with suppress(OSError):
                    replace_file(self._folder / _DAMAGED, b"")
            raise self._unusable(f"cannot be read ({type(error).__name__})") from None

    def _unusable(self, why: str) -> IntegrityError:
        name = self._folder.name if self._folder is not None else "in memory"
        return IntegrityError(
            f"near index {name}: {why}; delete the index's folder and build it again"
        )


def as_signatures(rows: Sequence[bytes]) -> Signatures:
    """Return signatures as they are compared."""
    return np.frombuffer(b"".join(rows), np.uint32).reshape(len(rows), -1)


def as_integers(keys: BandKeys) -> list[list[int]]:
    """Return the keys of bands as SQLite holds them."""
    signed: list[list[int]] = keys.view(np.int64).tolist()
    return signed


def _bands(keys: BandKeys, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return rows of the table of bands, in the order that it keeps them in."""
    flat = keys.view(np.int64).ravel()
    order = np.argsort(flat, kind="stable")
    of = np.repeat(np.array(numbers, np.int64), keys.shape[1])
    return zip(flat[order].tolist(), of[order].tolist(), strict=True)
