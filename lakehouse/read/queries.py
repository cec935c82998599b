"""Trusted SQL of this process: one session that is kept from query to query, one for each of the past."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakehouse.read.connection import connect
from lakehouse.read.corrections import CORRECTIONS
from lakehouse.read.dependencies import named
from lakehouse.read.session import Session, Snapshot
from lakehouse.read.snapshot import AsOf, Files
from lakehouse.read.spill import spill_folder
from lakehouse.sandbox.deadline import NotListeningError
from lakehouse.storage.location import Location

_MEMORY = "640MiB"
"""Leaves room for the rest of 1 GiB; beyond it the disk is used."""

_LEFT_BEHIND = 2_000
"""Files of the past that a session may remember (some 25 KB each); then a new one begins."""

type Parameters = Sequence[Any] | Mapping[str, Any] | None


class Queries:
    """Answers queries over a lake; those of the present one at a time."""

    def __init__(self, location: Location, files: Files) -> None:
        self._location = location
        self._files = files
        self.session: Session | None = None
        """The session of the present; None until it is."""

    def present(self, sql: str, parameters: Parameters, seconds: float | None) -> pa.Table:
        """Return the rows of a statement over the present files."""
        if self.session is not None and self.session.left_behind > _LEFT_BEHIND:
            self.close()
        if self.session is None:
            self.session = Session(self._files.now(), connection=connect(self._bounds()))
        else:
            self.session.bind(self._files.now(named(sql)))
        try:
            return self.session.query(sql, parameters, seconds=seconds)
        except NotListeningError:
            self.session = None
            raise

    def close(self) -> None:
        """End the session that is kept."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def stored(self, sql: str, parameters: Parameters) -> pa.Table:
        """Return the rows of a statement over the present files, as they were before corrections."""
        files = self._files.now(named(sql))
        with self._session(replace(files, files={**files.files, CORRECTIONS: ()})) as session:
            return session.query(sql, parameters)

    def past(
        self, sql: str, parameters: Parameters, as_of: AsOf, seconds: float | None
    ) -> pa.Table:
        """Return the rows of a statement over the files of an earlier state."""
        with self._session(self._files.at(as_of, named(sql))) as session:
            return session.query(sql, parameters, seconds=seconds)

    @contextmanager
    def session_at(self, as_of: AsOf, tables: Collection[str]) -> Iterator[Session]:
        """Yield a session on some tables in an earlier state."""
        with self._session(self._files.at(as_of, tables)) as session:
            yield session

    @contextmanager
    def _session(self, files: Snapshot) -> Iterator[Session]:
        session = Session(files, connection=connect(self._bounds()))
        try:
            yield session
        except NotListeningError:  # in use for ever: closing it would wait as long
            raise
        except BaseException:
            session.close()
            raise
        session.close()

    def _bounds(self) -> dict[str, str]:
        return {"memory_limit": _MEMORY, "temp_directory": str(spill_folder(self._location))}
