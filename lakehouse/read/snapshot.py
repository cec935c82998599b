"""Which files belong to which version of each table: now, at a moment, or at named versions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakehouse.errors import PastGoneError, in_one_line
from lakehouse.maintenance.log_cleanup import version_at
from lakehouse.read.corrections import CORRECTIONS
from lakehouse.read.session import Snapshot
from lakehouse.schema.migrations import added_columns
from lakehouse.schema.tables import TABLES
from lakehouse.storage.tables import Tables
from trajectory.errors import IntegrityError, RetryableError

type AsOf = datetime | Mapping[str, int]
"""A moment, or table versions as :meth:`lakehouse.lake.Lake.versions` returned them."""


class Files:
    """Remembers the file list of each table until its version changes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def now(self, names: Collection[str] | None = None) -> Snapshot:
        """Return the present files of the tables named, or of every table.

        Rows that name others come before the named ones, against the order of commits. A batch that is committed
        meanwhile shows rows that nothing names yet, never names without their rows.
        """
        wanted = [name for name in reversed(TABLES) if names is None or name in names]
        return self.as_snapshot({name: self.of(name) for name in wanted})

    def of(self, name: str) -> tuple[str, ...]:
        """Return the present files of one table."""
        known = self._known.get(name, (-1, ()))
        if self._tables.log(name).is_at(known[0]):
            return known[1]
        handle = self._tables.latest(name)
        version = int(handle.version())
        if known[0] != version:
            known = self._known[name] = (version, active_files(handle))
        return known[1]

    def appended(self, name: str, version: int, files: Sequence[str]) -> None:
        """Take note of a commit of our own, so that nobody has to read it from the log."""
        before, present = self._known.get(name, (-1, ()))
        if before == version - 1:
            self._known[name] = (version, tuple(sorted((*present, *files))))

    def at(self, as_of: AsOf, names: Collection[str] | None = None) -> Snapshot:
        """Return the files that the tables named, or all, had in an earlier state.

        Raises:
            PastGoneError: a version does not exist (any more).
        """
        wanted = [name for name in TABLES if names is None or name in names]
        files = {name: self._files_at(name, as_of) for name in wanted}
        return replace(self.as_snapshot(files), past=True)

    def visible(
        self,
        tenant: str | None,
        as_of: AsOf | None,
        hidden: frozenset[str],
        names: Collection[str] | None = None,
    ) -> Snapshot:
        """Return the files of the tables named, or of all, and of the tenant that a reader may see."""
        wanted = [
            name
            for name, spec in reversed(TABLES.items())
            if name not in hidden
            and (names is None or name in names)
            and (tenant is None or "tenant_id" in spec.partition_by)
        ]
        files = {name: self._of(name, tenant, as_of) for name in wanted}
        return replace(self.as_snapshot(files), past=as_of is not None)

    def as_snapshot(self, files: Mapping[str, tuple[str, ...]]) -> Snapshot:
        """Return a snapshot of these files."""
        location = self._tables.location
        with self._tables.lock:
            evolved = frozenset(name for name in files if added_columns(self._tables.handle(name)))
        return Snapshot(files, evolved, None if location.is_local else location)

    def rows_of(self, table: str, file: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of one file of a table, batch by batch; its partition has no columns.

        Raises:
            RetryableError: the file has gone meanwhile, or cannot be read.
        """
        import pyarrow.parquet as parquet

        try:
            with self._opened(file) as data, parquet.ParquetFile(data) as source:
                yield from source.iter_batches(columns=list(columns), use_threads=False)
        except OSError as error:
            raise RetryableError(
                f"table {table}: a file could not be read ({in_one_line(error)}); run the same again"
            ) from error

    def _opened(self, file: str) -> Any:
        location = self._tables.location
        if location.is_local:
            return pa.OSFile(file)
        return location.filesystem().open_input_file(location.relative(file))

    def _of(self, name: str, tenant: str | None, as_of: AsOf | None) -> tuple[str, ...]:
        if as_of is not None:
            return self._files_at(name, as_of, tenant)
        if tenant is None:
            return self.of(name)
        return active_files(self._tables.latest(name), tenant=tenant)

    def _files_at(self, name: str, as_of: AsOf, tenant: str | None = None) -> tuple[str, ...]:
        handle = self._tables.fresh(name)
        try:
            if isinstance(as_of, Mapping) and name == CORRECTIONS and name not in as_of:
                return ()  # versions that were noted before the table was there
            if isinstance(as_of, Mapping):
                handle.load_as_version(int(as_of.get(name, handle.version())))
            else:
                moment = as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)
                if moment < _born(handle):
                    return ()
                version = version_at(self._tables.location, name, moment)
                if version is None:
                    raise ValueError("it is older than the log")
                handle.load_as_version(version)
        except (DeltaError, ValueError, OverflowError, OSError) as error:
            asked = f" {as_of.get(name)}" if isinstance(as_of, Mapping) else f" for {as_of}"
            raise PastGoneError(
                f"table {name} has no version{asked} any more: {in_one_line(error)}. An erasure removes what was before it; else the log "
                "keeps 30 days, and not more than lake.log_commits commits; `headrace lake status` shows how far back it goes"
            ) from error
        return active_files(handle, tenant=tenant)


def active_files(handle: DeltaTable, *, tenant: str | None = None) -> tuple[str, ...]:
    """Return the addresses of a table's active files, refusing tables that hide deleted rows in them.

    Raises:
        IntegrityError: another writer turned deletion vectors or column mapping on.
    """
    if int(handle.protocol().min_reader_version) > 1:
        raise IntegrityError(
            f"{handle.table_uri} was raised to Delta reader version "
            f"{handle.protocol().min_reader_version} by another writer; rewrite it at version 1"
        )
    only = None if tenant is None else [("tenant_id", "=", tenant)]
    found = handle.file_uris(file_pruning_predicate=only)
    address = urlsplit(handle.table_uri)
    root = address.path if address.scheme in ("", "file") else handle.table_uri
    # Of an address delta-rs escapes the table's part, but what stands below it is as it is stored.
    return tuple(sorted(unquote(root) + uri.removeprefix(root) for uri in found))


def _born(handle: DeltaTable) -> datetime:
    created = handle.metadata().created_time or 0
    return datetime.fromtimestamp(created / 1000, tz=UTC)
