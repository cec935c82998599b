"""Batches that span tables: decided once, appended exactly once, finished by whoever comes next.

How a batch that spans tables is written (:meth:`Batches.append`), and why a crash cannot hurt it:

1. A batch has a name, ``(app_id, version)``; the version says which extent of the spool it holds.
   The caller fixes that extent durably before it governs, and asks for versions in rising order.
2. The rows go to one *intent* file (governed rows, fsync, atomic rename). From here on the batch
   is decided. Another attempt at the same version is ignored, so a policy that changed in between
   cannot mix two decisions. In a folder data files are written meanwhile; they count for nothing
   until a commit names them.
3. Each table gets one Delta commit that carries the application transaction ``(app_id, version)``
   and stands right behind the state that the version was read from. A table that holds the version
   already is passed over; a conflicting commit makes the attempt read again and go on. Tables
   are committed one after another: messages, harnesses and tokens; then what names them.
4. The ledger ``exchanges`` is committed last, even when it has no rows. It marks the batch as whole.
5. The intent is removed.

In a folder data files are on the disk before a commit names them, and all commits before the intent
goes. So a power cut is a crash like others. It may leave a last commit without its bytes: ``Lake.open``
removes that commit, and finishing the intent makes it again.

If it is killed before 2, nothing happened and the caller governs again. If it is killed between 2
and 5, the next ``Lake.open`` (or ``append`` of the same ``app_id``) repeats 3 to 5, where every
step is idempotent. Readers list the tables in the opposite order, ledger first. They may see steps
without their ledger row, but never a ledger row without its steps, or a step without its messages.
On an object store the intent is one object under ``_intents/``: a put shows it whole or not at all.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from governance.records import GovernedBatch
from lakehouse.read.snapshot import Files
from lakehouse.schema.tables import BATCH_TABLES, LEDGER, TABLES
from lakehouse.storage.tables import Tables
from lakehouse.write.commits import SYNCS, commit_once, write_ahead
from lakehouse.write.data_files import FreshFile
from lakehouse.write.intents import Intent, Intents, intents_of
from lakehouse.write.rows import to_arrow
from lakehouse.write.stored_content import NAMED_BY
from lakehouse.write.table_log import TableLog
from trajectory.exchange import has_folder

_FRESH_FILES = 32


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What one append did."""

    version: int
    rows: Mapping[str, int]
    """Rows that this call committed, per table."""
    repeated: bool
    """True when the batch, or a part of it, had been committed before."""


class Batches:
    """Appends batches to a lake; who calls holds its lease, one thread at a time."""

    def __init__(self, tables: Tables, files: Files) -> None:
        self._tables = tables
        self._files = files
        self._fresh_names: dict[str, pa.ChunkedArray] = {}

    @property
    def intents(self) -> Intents:
        """What was decided and is perhaps not finished."""
        return intents_of(self._tables.location)

    def append(self, tables: Mapping[str, pa.Table], app_id: str, version: int) -> AppendReport:
        """Write the tables of a batch, in this order, each exactly once (see the module's text).

        Raises:
            RetryableError: a commit failed for good; the same call may be made again.
        """
        recovered = self.recover(app_id)
        if self.committed_version(app_id) >= version:
            return recovered.get(version, AppendReport(version, {}, repeated=True))
        location = self._tables.location
        if not location.is_local:
            return self._finish(self.intents.write(app_id, version, tables), app_id, tables)
        with ThreadPoolExecutor(1) as beside:  # the intent waits for the disk, much of it
            said = beside.submit(self.intents.write, app_id, version, tables)
            with write_ahead(location, tables) as files:
                return self._finish(said.result(), app_id, tables, files)

    def committed_version(self, app_id: str) -> int:
        """Return the last batch of ``app_id`` that is whole, -1 when there is none."""
        return self._tables.log(LEDGER).done_version(app_id)

    def recover(self, app_id: str | None) -> dict[int, AppendReport]:
        """Finish the batches of an application, or of all, that a crash interrupted."""
        self.intents.sweep()
        reports = {}
        for intent in self.intents.pending(app_id):
            try:
                owner, tables = intent.read()
            except FileNotFoundError:  # another process has just finished it
                continue
            stored = {name: _with_folder(data) for name, data in tables.items()}
            reports[intent.version] = self._finish(intent, owner, stored, repeated=True)
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
        logs = [self._tables.log(name) for name in tables]
        with ThreadPoolExecutor(SYNCS) as disk:
            list(disk.map(TableLog.sync, logs))  # a killed process may have left unsynced commits
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
            log, data = self._tables.log(name), tables[name]
            ready = written.pop(name, None)
            files = commit_once(log, data, app_id=app_id, version=version, files=ready)
            if files is None:
                repeated = True
                continue
            rows[name] = data.num_rows
            if self._tables.location.is_local:
                self._note(name, log.version, files, data)
        return AppendReport(version, rows, repeated)

    def _note(self, name: str, version: int, files: Sequence[str], data: pa.Table) -> None:
        """Remember what was just written, for those who ask after each batch."""
        addresses = [f"{self._tables.location.table(name)}/{file}" for file in files]
        self._files.appended(name, version, addresses)
        if name in NAMED_BY and len(addresses) == 1:
            while len(self._fresh_names) >= _FRESH_FILES:
                del self._fresh_names[next(iter(self._fresh_names))]
            self._fresh_names[addresses[0]] = data[NAMED_BY[name]]

    def fresh_names(self, file: str) -> pa.ChunkedArray | None:
        """Return the names of the rows in a file that was just written here, else None."""
        return self._fresh_names.get(file)


def _with_folder(data: pa.Table) -> pa.Table:
    """Leave out rows of tenants whose name no folder can have: batches decided earlier may hold some."""
    if "tenant_id" not in data.column_names:
        return data
    refused = [one for one in data["tenant_id"].unique().to_pylist() if not has_folder(one)]
    return (
        data.filter(pc.invert(pc.is_in(data["tenant_id"], pa.array(refused, pa.string()))))
        if refused
        else data
    )


def batch_tables(batch: GovernedBatch) -> dict[str, pa.Table]:
    """Return the Arrow tables of a batch in the order of commits; empty ones but the ledger go."""
    tables = {}
    for name in BATCH_TABLES:
        rows = getattr(batch, name)
        if rows or name == LEDGER:
            tables[name] = to_arrow(TABLES[name], rows)
    return tables
