"""Pins: which version answers a trajectory until its end, shared by all workers and kept over restarts.

The pins lie in one SQLite file beside the publication. A pin holds a keyed fingerprint of the name that
the client gave, never the name itself. Its end is not known, so it goes after some silence.
"""

import logging
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from proxy.clients.credentials import RawFields
from trajectory.dialects.hints import session_name
from trajectory.sqlite_file import open_shared

FILE_NAME = "pins.sqlite"
MOST = 200_000
"""Pins in the file, some 20 MB; beyond it those go that were quiet the longest."""
_REFRESH_SECONDS = 60.0
"""A pin's time is written anew at most so often: a call reads, and rarely writes."""
_PATIENCE_SECONDS = 0.05
_SWEEP_SECONDS = 2.0
"""How long the event loop may wait for a worker that is writing."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pins (
    name BLOB PRIMARY KEY, label TEXT NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pins_by_age ON pins (expires);
CREATE TABLE IF NOT EXISTS labels (label TEXT PRIMARY KEY, expires REAL NOT NULL) WITHOUT ROWID;
"""
_FIND = "SELECT label, expires FROM pins WHERE name = ?"
_SET = """
INSERT INTO pins VALUES (:name, :label, :expires) ON CONFLICT (name)
DO UPDATE SET label = excluded.label, expires = excluded.expires
WHERE label = :before OR expires <= :now
"""
_HOLD = """
INSERT INTO labels VALUES (?, ?) ON CONFLICT (label)
DO UPDATE SET expires = max(expires, excluded.expires)
"""

_log = logging.getLogger(__name__)


def trajectory_name(fields: RawFields, in_url: bytes | None) -> bytes | None:
    """Return what names the trajectory in a request's head, by the strength that assembly goes by.

    None where nothing does: such calls are put together from their content, once they are over.
    """
    headers = tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in fields
    )
    found = session_name(headers, None if in_url is None else in_url.decode("latin-1"))
    return None if found is None else found.encode("utf-8", "surrogatepass")


class Pins:
    """Pins by fingerprint. Where the file fails, versions are drawn as without pins, and it is told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._told = False

    def keep(self, name: bytes, drawn: str, able: Mapping[str, object], seconds: float) -> str:
        """Return the version that a trajectory has; without one it gets the version that was drawn.

        Args:
            name: a fingerprint of the trajectory's name.
            drawn: the version that a new trajectory gets now.
            able: versions that can answer; a trajectory whose version is none of them moves once.
            seconds: of silence after which the pin goes.
        """
        now = time.time()
        try:
            label, expires = self._found(name)
            if label not in able or expires <= now:
                self._set(name, drawn, label, now, seconds)
                label, expires = self._found(name)
            elif expires < now + seconds - _REFRESH_SECONDS:
                self._set(name, label, label, now, seconds)
        except (sqlite3.Error, OSError) as error:
            self._tell(error)
            return drawn
        self._told = False
        return label if label in able else drawn

    def _found(self, name: bytes) -> tuple[str, float]:
        row = self._open().execute(_FIND, (name,)).fetchone()
        return ("", 0.0) if row is None else (str(row[0]), float(row[1]))

    def _set(self, name: bytes, label: str, before: str, now: float, seconds: float) -> None:
        """Write a pin, unless another worker has given the trajectory a version since."""
        expires = now + seconds
        values = {"name": name, "label": label, "expires": expires, "before": before, "now": now}
        connection = self._open()
        connection.execute(_SET, values)
        connection.execute(_HOLD, (label, expires))

    def sweep(self) -> None:
        """Remove what is over, and the quietest beyond the most; called in another thread."""
        if not self._path.exists():
            return
        now = time.time()
        try:
            with closing(_opened(self._path, _SWEEP_SECONDS)) as connection:
                connection.execute("DELETE FROM pins WHERE expires <= ?", (now,))
                connection.execute("DELETE FROM labels WHERE expires <= ?", (now,))
                connection.execute(
                    "DELETE FROM pins WHERE name IN (SELECT name FROM pins "
                    "ORDER BY expires DESC LIMIT -1 OFFSET ?)",
                    (MOST,),
                )
        except (sqlite3.Error, OSError) as error:
            self._tell(error)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _opened(self._path, _PATIENCE_SECONDS)
        return self._connection

    def _tell(self, error: Exception) -> None:
        if not self._told:
            _log.error(
                "%s: %s; versions are drawn anew where a pin cannot be read: check the disk, or move the file away, "
                "and pins begin anew",
                self._path,
                type(error).__name__,
            )
        self._told = True

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
    return open_shared(path, _SCHEMA, seconds=seconds, synchronous="OFF")


def pinned_labels(path: Path) -> set[str]:
    """Return the versions that some trajectory is pinned to; none where no pin was ever made.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists():
        return set()
    try:
        with closing(_opened(path, _SWEEP_SECONDS)) as connection:
            rows = connection.execute("SELECT label FROM labels WHERE expires > ?", (time.time(),))
            return {str(label) for (label,) in rows}
    except sqlite3.Error as error:
        raise OSError(
            f"{path}: {type(error).__name__}; check the disk, or move the file away, and pins begin anew"
        ) from None
