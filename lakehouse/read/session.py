"""SQL over the lake: DuckDB reads the active files of each table, views are bound on top.

The file list comes from the Delta log, so a query sees one version of each table, and costs what
reading the bare Parquet files costs. ``Session`` is for trusted SQL of this process; SQL of
strangers goes through :mod:`lakehouse.sandbox.client`, which runs the same session locked down.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from lakehouse.read.connection import connect, explained, rows_of
from lakehouse.read.corrections import (
    CORRECTED,
    CORRECTIONS,
    CorrectedFiles,
    corrected_rows,
    parted,
    signals_as_corrected,
    untouched_rows,
)
from lakehouse.read.dependencies import (
    HELPER_TABLES,
    helper_sources,
    named,
    with_dependencies,
)
from lakehouse.read.helper_tables import HelperTable
from lakehouse.read.sources import dataset, empty_rows, literal, parquet_source
from lakehouse.read.views.catalog import DEFINITIONS
from lakehouse.sandbox.deadline import within
from lakehouse.schema.tables import TABLES, TableSpec
from lakehouse.storage.location import Location


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The active files of one version of each table."""

    files: Mapping[str, Sequence[str]]
    """Per table; a table that is not named does not exist for the query."""
    evolved: frozenset[str] = frozenset()
    """Tables whose older files lack columns that a migration added."""
    location: Location | None = None
    """The object store that the files are in; None when they are local."""
    past: bool = False
    """Whether this is an earlier state, whose files may be gone for good."""


class Session:
    """One DuckDB connection on which tables and views of a snapshot are bound."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        connection: Any = None,
        catalog: str | None = None,
        only: Collection[str] | None = None,
        reads: Collection[str] | None = None,
    ) -> None:
        """Bind a snapshot.

        Args:
            snapshot: the files.
            connection: an empty DuckDB; None makes one.
            catalog: name of the database that the tables stand in, for clients that show it.
            only: tables and views that will be asked for, when that is known; None binds all tables,
                and views when they are asked for (all at once where a catalog is shown).
            reads: those among them whose rows will be asked for; None for all.
        """
        self._late = only is None and catalog is None
        self._views: set[str] = set()
        self._past = snapshot.past
        self._only = None if only is None else with_dependencies(only)
        self._reads = self._only if reads is None else with_dependencies(reads)
        self._connection = connection or connect()
        if catalog is not None:
            self._connection.execute(f"ATTACH ':memory:' AS {catalog}")
            self._connection.execute(f"USE {catalog}")
        self._connection.execute("CREATE SCHEMA part")
        self._bound: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Per table: its files, and those of the corrections that it is read with."""
        self.left_behind = 0
        """Files that were read here and have left their tables: DuckDB remembers their metadata."""
        self._unfilled: set[HelperTable] = set()
        """Helper tables that were not needed so far."""
        self.bind(snapshot)

    def bind(self, snapshot: Snapshot) -> None:
        """Point the tables at the files of ``snapshot``; what did not change stays as it is."""
        first = not self._bound
        names = [name for name in snapshot.files if self._only is None or name in self._only]
        names.sort(key=lambda name: name != CORRECTIONS)  # the others are read through them
        corrections = tuple(snapshot.files[CORRECTIONS]) if CORRECTIONS in names else ()
        for name in names:
            wanted = tuple(snapshot.files[name]), corrections if name in CORRECTED else ()
            before = self._bound.get(name)
            if before != wanted:
                if before is not None:
                    self.left_behind += len(set(before[0]).difference(wanted[0]))
                with explained(past=self._past):
                    self._bind_table(TABLES[name], *wanted, snapshot)
                    self._make_room(name, empty=not wanted[0])
                self._bound[name] = wanted
        if first and not self._late:
            self._bind_views(self._only)
            self._fill(self._reads)

    def _bind_table(
        self,
        spec: TableSpec,
        every: tuple[str, ...],
        corrections: tuple[str, ...],
        snapshot: Snapshot,
    ) -> None:
        columns = ", ".join(f'"{name}"' for name in spec.arrow.names)
        if not corrections:
            source = self._source(spec, every, snapshot)
            rows = f"SELECT {columns} FROM {source}"  # noqa: S608
        else:
            rows = self._as_corrected(spec, parted(spec, every, corrections), columns, snapshot)
        self._connection.execute(f"CREATE OR REPLACE VIEW {spec.name} AS {rows}")

    def _as_corrected(
        self, spec: TableSpec, files: CorrectedFiles, columns: str, snapshot: Snapshot
    ) -> str:
        """Return a SELECT of a table's rows, each kind of file read as it needs to be."""
        selects = []
        if files.plain:
            source = self._source(spec, files.plain, snapshot)
            selects.append(f"SELECT {columns} FROM {source}")  # noqa: S608
        mixed = self._source(spec, files.mixed, snapshot, kind="mixed")
        if spec.name == "signals":
            return " UNION ALL ".join([*selects, signals_as_corrected(spec, mixed)])
        if files.mixed:
            selects.append(untouched_rows(spec, mixed))
        found = [*files.only, *files.mixed]
        source = self._source(spec, found, snapshot, kind="corrected")
        return " UNION ALL ".join([*selects, corrected_rows(spec, source)])

    def _source(
        self, spec: TableSpec, files: Sequence[str], snapshot: Snapshot, *, kind: str = "objects"
    ) -> str:
        """Return what stands after FROM to read these files of a table."""
        if not files:
            return f"({empty_rows(spec)})"
        if snapshot.location is None:
            return parquet_source(spec, files, evolved=spec.name in snapshot.evolved)
        name = f"{kind}_{spec.name}"
        self._connection.register(name, dataset(spec, files, snapshot.location))
        return name

    def _make_room(self, table: str, *, empty: bool) -> None:
        """Empty the helper tables of this table; a query that needs them fills them again."""
        for helper in HELPER_TABLES:
            if helper.source == table:
                for statement in helper.prepare:
                    self._connection.execute(statement)
                (self._unfilled.discard if empty else self._unfilled.add)(helper)

    def _fill(self, wanted: Collection[str] | None) -> None:
        """Fill the helper tables of these tables and views; all when None."""
        for helper in [one for one in self._unfilled if wanted is None or one.needed_by in wanted]:
            with explained(past=self._past):
                found = self._connection.execute(helper.find).fetchall()
                for statement in helper.if_any if found else ():
                    self._connection.execute(statement)
            self._unfilled.discard(helper)

    def _bind_views(self, wanted: Collection[str] | None = None) -> None:
        """Bind the views wanted that are not bound yet; all when None."""
        for view in DEFINITIONS:
            if view.name in self._views or (wanted is not None and view.name not in wanted):
                continue
            if not helper_sources(view.name) <= self._bound.keys():
                continue
            self._views.add(view.name)
            try:
                self._connection.execute(view.sql)
            except duckdb.CatalogException:
                # The view asks for a table that this session may not see (a tenant's own connection).
                continue
            if view.comment:
                said = f"COMMENT ON VIEW {view.name} IS {literal(view.comment)}"
                self._connection.execute(said)

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
    ) -> pa.Table:
        """Run one statement and return its rows.

        Raises:
            QueryError: the SQL is wrong.
            QueryTimeoutError: it took longer than ``seconds``; after a ``NotListeningError`` this
                session must not be used again.
            RetryableError: files went away while reading (compaction and vacuum), or memory ran out.
        """

        def answer() -> pa.Table:
            if self._late:
                wanted = named(sql)
                self._bind_views(wanted)
                self._fill(wanted)
            return rows_of(self._connection, sql, parameters)

        with explained(past=self._past):
            return within(seconds, answer, self._connection.interrupt)

    @property
    def connection(self) -> Any:
        """The DuckDB connection itself, every view bound."""
        if self._late:
            self._bind_views()
            self._fill(None)
        return self._connection

    def close(self) -> None:
        """Give memory back."""
        self._connection.close()
