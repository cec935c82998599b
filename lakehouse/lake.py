"""The lake: Delta tables that are appended to exactly once and read with SQL.

How a batch that spans tables is written, and why a crash cannot hurt it: :mod:`lakehouse.write.batches`. Readers
list the tables against the order of commits, ledger first. They may see steps without their ledger row, but never
a ledger row without its steps, or a step without its messages.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from governance.records import GovernedBatch
from lakehouse.consents import LakeConsents
from lakehouse.erasure.late_names import rewrite_rows
from lakehouse.harness_versions import LakeLineages
from lakehouse.read import conversations
from lakehouse.read.conversations import StepConversation
from lakehouse.read.queries import Queries
from lakehouse.read.session import Session, Snapshot
from lakehouse.read.snapshot import AsOf, Files
from lakehouse.schema.migrations import upgrade
from lakehouse.schema.tables import LEDGER, TABLES
from lakehouse.schema.version import check_version
from lakehouse.storage.lease import hold
from lakehouse.storage.location import Location
from lakehouse.storage.notes import Notes
from lakehouse.storage.tables import STORE_LOCK, Tables
from lakehouse.write.batches import AppendReport, Batches, batch_tables
from lakehouse.write.commits import append, commit_once
from lakehouse.write.rows import to_arrow
from lakehouse.write.stored_content import LakeKnownContent
from lakehouse.write.table_log import TableLog
from trajectory.errors import ConfigurationError
from trajectory.files import make_folders


class Lake:
    """A set of Delta tables under one root; safe for several writers and for threads."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._tables = Tables(location)
        self._files = Files(self._tables)
        self._batches = Batches(self._tables, self._files)
        self._queries = Queries(location, self._files)
        self._reading = threading.RLock() if location.is_local else STORE_LOCK

    @classmethod
    def open(
        cls, path: str, *, create: bool = True, options: Mapping[str, str] | None = None
    ) -> "Lake":
        """Open the lake at ``path``, making missing tables and finishing interrupted batches.

        Args:
            path: a folder, or ``s3://``, ``gs://``, ``az://``.
            create: make tables that do not exist; False refuses a place without a lake.
            options: storage options of delta-rs for object stores.

        Raises:
            ConfigurationError: there is no lake and ``create`` is False.
            IntegrityError: the lake was written by a newer Headrace.
        """
        lake = cls(Location.parse(path, options))
        if create and lake.location.is_local:
            make_folders(lake.location.folder, mode=0o700)  # it will hold what people said
        for name, spec in TABLES.items():
            lake._tables.mend(name)
            if lake._tables.exists(name):
                upgrade(lake.location, spec, lake._tables.handle(name))
            elif create or lake._tables.exists(LEDGER):
                lake._tables.make(name)
            else:
                raise ConfigurationError(
                    f"{lake.location.root} holds no lake (table {name} is missing); give the right "
                    "path, or start `headrace up` to make one"
                )
        lake.recover()
        return lake

    @classmethod
    def read(cls, path: str, *, options: Mapping[str, str] | None = None) -> "Lake":
        """Open the lake at ``path`` to read it; nothing is written there, so rights to read will do.

        Raises:
            ConfigurationError: there is no lake, or it was not upgraded yet.
            IntegrityError: the lake was written by a newer Headrace.
        """
        lake = cls(Location.parse(path, options))
        for name, spec in TABLES.items():
            if not lake._tables.exists(name):
                raise ConfigurationError(
                    f"{lake.location.root} holds no lake, or one that was not upgraded (table {name} "
                    "is missing); open it once to write: `headrace lake status`"
                )
            check_version(lake.location, spec, lake._tables.handle(name), behind=False)
        return lake

    def table(self, name: str) -> DeltaTable:
        """Return the handle of a table at its latest version.

        Raises:
            ConfigurationError: there is no such table.
        """
        return self._tables.latest(name)

    def log(self, name: str) -> TableLog:
        """Return a table's log, to append to the table.

        Raises:
            ConfigurationError: there is no such table.
        """
        return self._tables.log(name)

    def versions(self) -> dict[str, int]:
        """Return the current Delta version of every table."""
        return {name: int(self.table(name).version()) for name in TABLES}

    def append(self, batch: GovernedBatch, *, app_id: str, version: int) -> AppendReport:
        """Write all rows of a governed batch, each exactly once (protocol: :mod:`lakehouse.write.batches`).

        First goes what changes in stored rows (:mod:`lakehouse.erasure.late_names`): until it is done, who asks
        again governs the batch again.

        Args:
            batch: the rows.
            app_id: who ingests; one running ingester per name.
            version: number of the batch, from 0, rising.

        Raises:
            RetryableError: a commit failed for good; the same call may be made again.
        """
        tables = batch_tables(batch)
        with self.lease(), self._tables.lock:
            rewrite_rows(self, batch.rewrites, batch.late_decisions)
            return self._batches.append(tables, app_id, version)

    def append_rows(self, table: str, rows: Sequence[Any]) -> int:
        """Append dataclasses or mappings to one table; return how many.

        Raises:
            ConfigurationError: no such table, or a row does not fit its columns.
            RetryableError: the commit failed for good.
        """
        log = self.log(table)
        if rows:
            data = to_arrow(TABLES[table], rows)
            with self.lease(), self._tables.lock:
                append(log, data)
        return len(rows)

    def next_append(self, table: str) -> int:
        """Return the number that :meth:`append_as` takes next, for who decides by what a table holds."""
        with self._tables.lock:
            return self.log(table).done_version(table) + 1

    def append_as(self, table: str, number: int, rows: Sequence[Any]) -> bool:
        """Append rows to a table as a number, unless another append was that; return whether they are.

        Raises:
            ConfigurationError: no such table, or a row does not fit its columns.
            RetryableError: the commit failed for good.
        """
        log, data = self.log(table), to_arrow(TABLES[table], rows)
        with self.appending():
            if commit_once(log, data, app_id=table, version=number) is None:
                return False
            log.sync()
        return True

    def committed_version(self, app_id: str) -> int:
        """Return the last batch of ``app_id`` that is whole in the lake, -1 when there is none."""
        with self._tables.lock:
            return self._batches.committed_version(app_id)

    def recover(self) -> tuple[AppendReport, ...]:
        """Finish batches that a crash interrupted; :meth:`open` has done so already."""
        with self.lease(), self._tables.lock:
            return tuple(self._batches.recover(None).values())

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        as_of: AsOf | None = None,
        seconds: float | None = None,
    ) -> pa.Table:
        """Return the rows of one SQL statement over tables and views (trusted SQL only).

        ``polars.from_arrow`` and ``.to_pandas()`` turn them into frames.

        Args:
            sql: DuckDB SQL.
            parameters: values for ``?`` or ``$name``.
            as_of: an earlier moment, or table versions from :meth:`versions`.
            seconds: how long it may take; None is without end.

        Raises:
            QueryError: the SQL is wrong.
            QueryTimeoutError: it took longer than ``seconds``.
            RetryableError: files went away while reading, or memory ran out.
        """
        if as_of is not None:
            return self._queries.past(sql, parameters, as_of, seconds)
        with self._reading:
            return self._queries.present(sql, parameters, seconds)

    def session_at(self, as_of: AsOf, tables: Collection[str]) -> AbstractContextManager[Session]:
        """Return a session on some tables in an earlier state, for several statements.

        It may make tables of its own; they go when it ends.

        Raises:
            PastGoneError: the lake does not reach back so far any more.
        """
        return self._queries.session_at(as_of, tables)

    def close(self) -> None:
        """Give back the memory that queries of the present hold; the next one takes it again."""
        with self._reading:
            self._queries.close()

    def query_stored(
        self, sql: str, *, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> pa.Table:
        """Return the rows of one SQL statement over the tables as stored, corrections left aside.

        Raises:
            QueryError: the SQL is wrong.
            RetryableError: files went away while reading, or memory ran out.
        """
        with self._reading:
            return self._queries.stored(sql, parameters)

    def conversation(self, trajectory_id: str) -> tuple[StepConversation, ...]:
        """Return what each step of a trajectory saw and answered, in order."""
        return tuple(self.conversations(trajectory_ids=[trajectory_id]).values())

    def conversations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_ids: Sequence[str] | None = None,
    ) -> dict[str, StepConversation]:
        """Return step id → whole conversation, for steps or for all steps of trajectories."""
        with self._reading:
            return conversations.load(
                self.query,
                step_ids=step_ids,
                trajectory_ids=trajectory_ids,
            )

    def known_content(self) -> LakeKnownContent:
        """Return governance's view of what is stored already."""
        return LakeKnownContent(self)

    def consents(self) -> LakeConsents:
        """Return governance's view of the consent registry."""
        return LakeConsents(self.query, self.snapshot_of)

    def lineages(self) -> LakeLineages:
        """Return governance's register of harness versions."""
        return LakeLineages(self)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Hold off erasure, and other threads that write to this lake's tables."""
        with self.lease(), self._tables.lock:
            yield

    def notes(self) -> Notes:
        """Return the notes that programs keep beside the tables."""
        return Notes(self.location)

    def snapshot(self) -> Snapshot:
        """Return the present files of every table."""
        with self._reading:
            return self._files.now()

    def snapshot_of(self, table: str) -> tuple[str, ...]:
        """Return the present files of one table."""
        with self._reading:
            return self._files.of(table)

    def snapshot_for(
        self,
        tenant: str | None = None,
        as_of: AsOf | None = None,
        *,
        hidden: frozenset[str] = frozenset(),
        names: Collection[str] | None = None,
    ) -> Snapshot:
        """Return the files that a reader may see.

        Args:
            tenant: only this tenant's files, and no table that has no tenants; None for all.
            as_of: an earlier state.
            hidden: tables that are left out.
            names: only these tables; None for all.
        """
        with self._reading:
            return self._files.visible(tenant, as_of, hidden, names)

    def as_snapshot(self, files: Mapping[str, tuple[str, ...]]) -> Snapshot:
        """Return a snapshot of these files of this lake."""
        return self._files.as_snapshot(files)

    def rows_of_file(
        self, table: str, file: str, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of one file of a table, batch by batch; its partition has no columns.

        Raises:
            RetryableError: the file has gone meanwhile, or cannot be read.
        """
        with self._reading:
            yield from self._files.rows_of(table, file, columns)

    def lease(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """Hold off erasure while writing, or with ``alone`` hold off every other writer."""
        return hold(self.location, alone=alone)

    def fresh(self, name: str) -> DeltaTable:
        """Return a handle of its own, which may be moved to another version."""
        return self._tables.fresh(name)

    def fresh_names(self, file: str) -> pa.ChunkedArray | None:
        """Return the names of the rows in a file that was just written here, else None."""
        return self._batches.fresh_names(file)
