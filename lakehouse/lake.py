"""The lake: Delta tables that are appended to exactly once and read with SQL.

How a batch that spans tables is written (:meth:`Lake.append`), and why a crash cannot hurt it:

1. A batch has a name, ``(app_id, version)``; the version says which extent of the spool it holds.
   The caller fixes that extent durably before it governs, and asks for versions in rising order.
2. The rows go to one *intent* file (governed rows, fsync, atomic rename). From here on the batch
   is decided: what a later attempt may bring for the same version is not looked at, so that a
   policy that changed in between cannot mix two decisions.
3. Each table gets one Delta commit that carries the application transaction ``(app_id, version)``
   and is made through the handle that the version was read from. A table that holds the version
   already is passed over; a conflicting commit makes the attempt read again and go on.
4. The ledger ``exchanges`` is committed last, even when it has no rows. It marks the batch as whole.
5. The intent is removed.

Killed before 2: nothing happened, the caller governs again. Killed between 2 and 5: the next
:meth:`Lake.open` (or ``append`` of the same ``app_id``) finishes the intent by repeating 3 to 5,
where every step is idempotent. Readers in between may see steps without their ledger row; they
never see a ledger row without its steps. On an object store there is no intent file: an attempt
is repeated by the caller, and the caller has to bring the same rows again.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from governance.records import GovernedBatch
from lakehouse.commits import append, commit_once, done_version, refresh
from lakehouse.intents import Intent, Intents
from lakehouse.location import Location
from lakehouse.rows import to_arrow
from lakehouse.schema import BATCH_TABLES, LAKE_VERSION, LEDGER, TABLES, VERSION_PROPERTY
from trajectory.errors import ConfigurationError, IntegrityError


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
        self._lock = threading.RLock()

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

    def table(self, name: str) -> DeltaTable:
        """Return the handle of a table at its latest version.

        Raises:
            ConfigurationError: there is no such table.
        """
        with self._lock:
            handle = self._handle(name)
            refresh(handle)
            return handle

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
        with self._lock:
            recovered = self._recover(app_id)
            if self.committed_version(app_id) >= version:
                return recovered.get(version, AppendReport(version, {}, repeated=True))
            tables = _batch_tables(batch)
            if not self.location.is_local:
                return self._commit(app_id, version, tables)
            intent = self._intents.write(app_id, version, tables)
            return self._finish(intent, app_id, tables)

    def append_rows(self, table: str, rows: Sequence[Any]) -> int:
        """Append dataclasses or mappings to one table; return how many.

        Raises:
            ConfigurationError: no such table, or a row does not fit its columns.
            RetryableError: the commit failed for good.
        """
        with self._lock:
            handle = self._handle(table)
            if rows:
                append(handle, TABLES[table], to_arrow(TABLES[table], rows))
            return len(rows)

    def committed_version(self, app_id: str) -> int:
        """Return the last batch of ``app_id`` that is whole in the lake, -1 when there is none."""
        with self._lock:
            return done_version(self._handle(LEDGER), app_id)

    def recover(self) -> tuple[AppendReport, ...]:
        """Finish batches that a crash interrupted; :meth:`open` has done so already."""
        with self._lock:
            return tuple(self._recover(None).values())

    @property
    def _intents(self) -> Intents:
        return Intents(self.location.folder / "_intents")

    def _recover(self, app_id: str | None) -> dict[int, AppendReport]:
        if not self.location.is_local:
            return {}
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
        self, intent: Intent, app_id: str, tables: Mapping[str, pa.Table], *, repeated: bool = False
    ) -> AppendReport:
        report = self._commit(app_id, intent.version, tables, repeated=repeated)
        intent.remove()
        return report

    def _commit(
        self, app_id: str, version: int, tables: Mapping[str, pa.Table], *, repeated: bool = False
    ) -> AppendReport:
        rows = {}
        for name, data in tables.items():
            if commit_once(self._handle(name), TABLES[name], data, app_id=app_id, version=version):
                rows[name] = data.num_rows
            else:
                repeated = True
        return AppendReport(version, rows, repeated)

    def _handle(self, name: str) -> DeltaTable:
        if name not in TABLES:
            raise ConfigurationError(f"no table {name!r} in the lake; tables: {', '.join(TABLES)}")
        if name not in self._handles:
            self._handles[name] = DeltaTable(
                self.location.table(name), storage_options=dict(self.location.options) or None
            )
        return self._handles[name]

    def _ensure(self, name: str, create: bool) -> None:
        options = dict(self.location.options) or None
        if DeltaTable.is_deltatable(self.location.table(name), storage_options=options):
            found = int(self._handle(name).metadata().configuration.get(VERSION_PROPERTY, "0"))
            if found > LAKE_VERSION:
                raise IntegrityError(
                    f"{self.location.root}: table {name} has version {found}, this Headrace knows "
                    f"{LAKE_VERSION}; upgrade Headrace"
                )
            return
        if not create:
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
