"""The lake: Delta tables that are appended to exactly once and read with SQL.

How a batch that spans tables is written (:meth:`Lake.append`), and why a crash cannot hurt it:

1. A batch has a name, ``(app_id, version)``; the version says which extent of the spool it holds.
   The caller fixes that extent durably before it governs, and asks for versions in rising order.
2. The rows go to one *intent* file (governed rows, fsync, atomic rename). From here on the batch
   is decided: what a later attempt may bring for the same version is not looked at, so that a
   policy that changed in between cannot mix two decisions. In a folder data files are written
   meanwhile; they count for nothing until a commit names them.
3. Each table gets one Delta commit that carries the application transaction ``(app_id, version)``
   and stands right behind the state that the version was read from. A table that holds the version
   already is passed over; a conflicting commit makes the attempt read again and go on. Tables
   are committed one after another: messages, harnesses and tokens; then what names them.
4. The ledger ``exchanges`` is committed last, even when it has no rows. It marks the batch as whole.
5. The intent is removed.

Killed before 2: nothing happened, the caller governs again. Killed between 2 and 5: the next
:meth:`Lake.open` (or ``append`` of the same ``app_id``) finishes the intent by repeating 3 to 5,
where every step is idempotent. Readers list the tables in the opposite order, ledger first: they
may see steps without their ledger row, never a ledger row without its steps or a step without its
messages. On an object store the intent is one object under
``_intents/``: a put shows it whole or not at all.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from governance.records import GovernedBatch
from lakehouse import conversations
from lakehouse.commits import append, commit_once, write_ahead
from lakehouse.connection import connect
from lakehouse.consents import LakeConsents
from lakehouse.conversations import StepConversation
from lakehouse.deadline import NotListeningError
from lakehouse.dependencies import named
from lakehouse.fresh_files import FreshFile
from lakehouse.intents import Intent, Intents, intents_of
from lakehouse.known import NAMED_BY, LakeKnownContent
from lakehouse.lease import hold
from lakehouse.location import Location
from lakehouse.migrations import added_columns, check_version, upgrade
from lakehouse.notes import Notes
from lakehouse.rows import to_arrow
from lakehouse.schema import BATCH_TABLES, LEDGER, TABLES
from lakehouse.snapshot import AsOf, Files
from lakehouse.spill import spill_folder
from lakehouse.sql import Session, Snapshot
from lakehouse.table_log import TableLog, refresh
from trajectory.errors import ConfigurationError, RetryableError

_STORE_LOCK = threading.RLock()
"""One thread at a time works on object stores: delta-rs waits for the network with Python's lock
held, and two threads that do so at once can wait for each other for ever. Processes are free."""


_FRESH_FILES = 32
_QUERY_MEMORY = "640MiB"
_LEFT_BEHIND = 2_000
"""Files of the past that a session may remember (some 25 KB each); then a new one begins."""


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What one append did."""

    version: int
    rows: Mapping[str, int]
    """Rows that this call committed, per table."""
    repeated: bool
    """True when the batch, or a part of it, had been committed before."""


class Lake:
    """A set of Delta tables under one root; safe for several writers and for threads."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._handles: dict[str, DeltaTable] = {}
        self._logs: dict[str, TableLog] = {}
        self._fresh_names: dict[str, pa.ChunkedArray] = {}
        self._lock = threading.RLock() if location.is_local else _STORE_LOCK
        self._files = Files(self)
        self._session: Session | None = None
        self._reading = threading.RLock() if location.is_local else _STORE_LOCK

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
        for name in TABLES:
            lake._ensure(name, create)
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
            if not lake._exists(name):
                raise ConfigurationError(
                    f"{lake.location.root} holds no lake, or one that was not upgraded (table {name} "
                    "is missing); open it once to write: `headrace lake status`"
                )
            check_version(lake, spec, lake._handle(name), behind=False)
        return lake

    def table(self, name: str) -> DeltaTable:
        """Return the handle of a table at its latest version.

        Raises:
            ConfigurationError: there is no such table.
        """
        with self._lock:
            handle = self._handle(name)
            refresh(handle)
            return handle

    def log(self, name: str) -> TableLog:
        """Return a table's log, to append to the table.

        Raises:
            ConfigurationError: there is no such table.
        """
        with self._lock:
            if name not in self._logs:
                handle = self._handle(name)
                self._logs[name] = TableLog(self.location, TABLES[name], handle)
            return self._logs[name]

    def versions(self) -> dict[str, int]:
        """Return the current Delta version of every table."""
        return {name: int(self.table(name).version()) for name in TABLES}

    def append(self, batch: GovernedBatch, *, app_id: str, version: int) -> AppendReport:
        """Write all rows of a governed batch, each exactly once (protocol: module docstring).

        Args:
            batch: the rows.
            app_id: who ingests; one running ingester per name.
            version: number of the batch, from 0, rising.

        Raises:
            RetryableError: a commit failed for good; the same call may be made again.
        """
        tables = _batch_tables(batch)
        with self.lease(), self._lock:
            recovered = self._recover(app_id)
            if self.committed_version(app_id) >= version:
                return recovered.get(version, AppendReport(version, {}, repeated=True))
            if not self.location.is_local:
                return self._finish(self._intents.write(app_id, version, tables), app_id, tables)
            with ThreadPoolExecutor(1) as beside:  # the intent waits for the disk, much of it
                said = beside.submit(self._intents.write, app_id, version, tables)
                with write_ahead(self.location, tables) as files:
                    return self._finish(said.result(), app_id, tables, files)

    def append_rows(self, table: str, rows: Sequence[Any]) -> int:
        """Append dataclasses or mappings to one table; return how many.

        Raises:
            ConfigurationError: no such table, or a row does not fit its columns.
            RetryableError: the commit failed for good.
        """
        log = self.log(table)
        if rows:
            data = to_arrow(TABLES[table], rows)
            with self.lease(), self._lock:
                append(log, data)
        return len(rows)

    def committed_version(self, app_id: str) -> int:
        """Return the last batch of ``app_id`` that is whole in the lake, -1 when there is none."""
        with self._lock:
            return self.log(LEDGER).done_version(app_id)

    def recover(self) -> tuple[AppendReport, ...]:
        """Finish batches that a crash interrupted; :meth:`open` has done so already."""
        with self.lease(), self._lock:
            return tuple(self._recover(None).values())

    def query(
        self,
        sql: str,
        *,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
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
            past = Session(self._files.at(as_of, named(sql)), connection=connect(self._bounds()))
            try:
                rows = past.query(sql, parameters, seconds=seconds)
            except NotListeningError:  # in use for ever: closing it would wait as long
                raise
            except BaseException:
                past.close()
                raise
            past.close()
            return rows
        with self._reading:
            if self._session is not None and self._session.left_behind > _LEFT_BEHIND:
                self._session.close()
                self._session = None
            if self._session is None:
                self._session = Session(self._files.now(), connection=connect(self._bounds()))
            else:
                self._session.bind(self._files.now(named(sql)))
            try:
                return self._session.query(sql, parameters, seconds=seconds)
            except NotListeningError:
                self._session = None
                raise

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
                lambda sql, values: self.query(sql, parameters=values),
                step_ids=step_ids,
                trajectory_ids=trajectory_ids,
            )

    def known_content(self) -> LakeKnownContent:
        """Return governance's view of what is stored already."""
        return LakeKnownContent(self)

    def consents(self) -> LakeConsents:
        """Return governance's view of the consent registry."""
        return LakeConsents(self)

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
    ) -> Snapshot:
        """Return the files that a reader may see.

        Args:
            tenant: only this tenant's files, and no table that has no tenants; None for all.
            as_of: an earlier state.
            hidden: tables that are left out.
        """
        with self._reading:
            return self._files.visible(tenant, as_of, hidden)

    def as_snapshot(self, files: Mapping[str, tuple[str, ...]]) -> Snapshot:
        """Return a snapshot of these files of this lake."""
        with self._lock:
            evolved = frozenset(name for name in files if added_columns(self._handle(name)))
        return Snapshot(files, evolved, None if self.location.is_local else self.location)

    def rows_of_file(
        self, table: str, file: str, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of one file of a table, batch by batch; its partition has no columns.

        Raises:
            RetryableError: the file has gone meanwhile, or cannot be read.
        """
        import pyarrow.parquet as parquet

        try:
            with self._reading, self._opened(file) as data, parquet.ParquetFile(data) as source:
                yield from source.iter_batches(columns=list(columns), use_threads=False)
        except OSError as error:
            raise RetryableError(
                f"table {table}: a file could not be read ({error}); run the same again"
            ) from error

    def _opened(self, file: str) -> Any:
        if self.location.is_local:
            return pa.OSFile(file)
        return self.location.filesystem().open_input_file(self.location.relative(file))

    def lease(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """Hold off erasure while writing, or with ``alone`` hold off every other writer."""
        return hold(self.location, alone=alone)

    def fresh(self, name: str) -> DeltaTable:
        """Return a handle of its own, which may be moved to another version."""
        return DeltaTable(
            self.location.table(name), storage_options=dict(self.location.options) or None
        )

    def _bounds(self) -> dict[str, str]:
        """Return DuckDB's settings: memory that leaves room for the rest of 1 GiB, then the disk."""
        return {"memory_limit": _QUERY_MEMORY, "temp_directory": str(spill_folder(self.location))}

    @property
    def _intents(self) -> Intents:
        return intents_of(self.location)

    def _recover(self, app_id: str | None) -> dict[int, AppendReport]:
        self._intents.sweep()
        reports = {}
        for intent in self._intents.pending(app_id):
            try:
                owner, tables = intent.read()
            except FileNotFoundError:  # another process has just finished it
                continue
            reports[intent.version] = self._finish(intent, owner, tables, repeated=True)
        return reports

    def _finish(
        self,
        intent: Intent,
        app_id: str,
        tables: Mapping[str, pa.Table],
        written: dict[str, list[FreshFile]] | None = None,
        *,
        repeated: bool = False,
    ) -> AppendReport:
        """Commit a batch; ``written`` are data files of it that are there already."""
        report = self._commit(app_id, intent.version, tables, written or {}, repeated=repeated)
        intent.remove()
        return report

    def _commit(
        self,
        app_id: str,
        version: int,
        tables: Mapping[str, pa.Table],
        written: dict[str, list[FreshFile]],
        *,
        repeated: bool,
    ) -> AppendReport:
        rows = {}
        for name in BATCH_TABLES:
            if name not in tables:
                continue
            log, data = self.log(name), tables[name]
            ready = written.pop(name, None)
            files = commit_once(log, data, app_id=app_id, version=version, files=ready)
            if files is None:
                repeated = True
                continue
            rows[name] = data.num_rows
            if self.location.is_local:
                self._note(name, log.version, files, data)
        return AppendReport(version, rows, repeated)

    def _note(self, name: str, version: int, files: Sequence[str], data: pa.Table) -> None:
        """Remember what was just written, for those who ask after each batch."""
        addresses = [f"{self.location.table(name)}/{file}" for file in files]
        self._files.appended(name, version, addresses)
        if name in NAMED_BY and len(addresses) == 1:
            while len(self._fresh_names) >= _FRESH_FILES:
                del self._fresh_names[next(iter(self._fresh_names))]
            self._fresh_names[addresses[0]] = data[NAMED_BY[name]]

    def fresh_names(self, file: str) -> pa.ChunkedArray | None:
        """Return the names of the rows in a file that was just written here, else None."""
        return self._fresh_names.get(file)

    def _handle(self, name: str) -> DeltaTable:
        if name not in TABLES:
            raise ConfigurationError(f"no table {name!r} in the lake; tables: {', '.join(TABLES)}")
        if name not in self._handles:
            self._handles[name] = self.fresh(name)
        return self._handles[name]

    def _exists(self, name: str) -> bool:
        options = dict(self.location.options) or None
        return bool(DeltaTable.is_deltatable(self.location.table(name), storage_options=options))

    def _ensure(self, name: str, create: bool) -> None:
        options = dict(self.location.options) or None
        if self._exists(name):
            upgrade(self, TABLES[name], self._handle(name))
            return
        if not create and not self._exists(LEDGER):
            raise ConfigurationError(
                f"{self.location.root} holds no lake (table {name} is missing); give the right "
                "path, or start `headrace up` to make one"
            )
        spec = TABLES[name]
        DeltaTable.create(
            self.location.table(name),
            spec.arrow,
            mode="ignore",
            partition_by=list(spec.partition_by),
            name=name,
            description=spec.comment,
            configuration=dict(spec.configuration),
            storage_options=options,
            raise_if_key_not_exists=False,
        )


def _batch_tables(batch: GovernedBatch) -> dict[str, pa.Table]:
    """Return the Arrow tables of a batch in the order of commits; empty ones but the ledger go."""
    tables = {}
    for name in BATCH_TABLES:
        rows = getattr(batch, name)
        if rows or name == LEDGER:
            tables[name] = to_arrow(TABLES[name], rows)
    return tables
