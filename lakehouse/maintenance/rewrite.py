"""Rewrites files of a partition into sorted ones, as one Delta commit that changes no data.

delta-rs merges files without sorting, or sorts by a space-filling curve that keeps no order of
steps. So DuckDB sorts (within a memory limit, spilling to disk) and delta-rs commits removes and
adds with ``dataChange: false``. Writers that append meanwhile are not disturbed; when another
commit removed one of our sources, ours is given up. The files of an object store are sorted in a
temporary folder of this machine.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from lakehouse.errors import in_one_line
from lakehouse.maintenance.compaction_io import LocalFiles, StoredFiles
from lakehouse.maintenance.sorted_file import write_sorted
from lakehouse.read.connection import connect
from lakehouse.read.corrections import ONLY, WITHOUT
from lakehouse.read.sources import empty_rows, literal
from lakehouse.schema.tables import TableSpec
from lakehouse.storage.location import Location
from lakehouse.write.data_files import log_statistics
from lakehouse.write.table_log import lasting, names_any
from trajectory.errors import RetryableError

_MEMORY = "512MiB"


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """An active file of a table, as its log names it."""

    path: str
    """As in the log: relative, percent-encoded."""
    size: int
    rows: int
    partition: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def relative(self) -> str:
        """Path on disk, relative to the table."""
        return unquote(self.path)


class OvertakenError(RetryableError):
    """Another commit removed a file that was being rewritten."""


def list_files(handle: DeltaTable) -> list[ActiveFile]:
    """Return the active files of a table with size, rows and partition."""
    table = pa.table(handle.get_add_actions(flatten=True))
    keep = [
        name
        for name in table.column_names
        if name in ("path", "size_bytes", "num_records") or name.startswith("partition.")
    ]
    found = []
    for row in table.select(keep).to_pylist():
        partition = {
            name.removeprefix("partition."): None if value is None else str(value)
            for name, value in row.items()
            if name.startswith("partition.")
        }
        found.append(
            ActiveFile(row["path"], row["size_bytes"], row.get("num_records") or 0, partition)
        )
    return found


@dataclass(frozen=True, slots=True)
class SeparateFile:
    """Steps whose rows are to stand in a file of their own."""

    mark: str
    steps: Any
    """An Arrow table with the column ``step_id``."""


def rewrite(
    handle: DeltaTable,
    spec: TableSpec,
    location: Location,
    sources: Sequence[ActiveFile],
    *,
    apart: SeparateFile | None = None,
) -> list[ActiveFile]:
    """Replace ``sources``, files of one partition, by one sorted file; return it.

    With ``apart`` by two: one without the steps that are named, and one with no others.

    Raises:
        OvertakenError: another commit removed a source; nothing was changed.
        RetryableError: a file could not be read or written.
    """
    folder = PurePosixPath(sources[0].relative).parent
    kinds = (
        {"": ""}
        if apart is None
        else {f".{WITHOUT}-{apart.mark}": "ANTI", f".{ONLY}-{apart.mark}": "SEMI"}
    )
    steps = None if apart is None else apart.steps
    place: LocalFiles | StoredFiles = (
        LocalFiles(Path(location.table(spec.name)))
        if location.is_local
        else StoredFiles(location, spec.name)
    )
    made: dict[str, tuple[ActiveFile, str]] = {}
    local: list[Path] = []
    with place, _explained(spec, local):
        local += [place.local(one.relative) for one in sources]
        for ending, join in kinds.items():
            name = str(folder / f"part-sorted-{uuid.uuid4()}{ending}.zstd.parquet")
            target = place.new(name)
            rows = _sort(spec, local, target, place.spill(name), steps=steps, join=join)
            if rows == 0 and join:
                continue
            statistics = _statistics(spec, target, rows)
            size = target.stat().st_size
            file = ActiveFile(quote(name, safe="/=-._~"), size, rows, sources[0].partition)
            made[name] = file, statistics
        for name in made:
            place.publish(name)
        try:
            with lasting(location, handle):
                _replace(handle, spec, sources, list(made.values()))
        except OvertakenError:
            if not names_any(handle, made):  # else ours came first after all: its answer was lost
                for name in made:
                    place.remove(name)
                raise
    return [file for file, _ in made.values()]


@contextmanager
def _explained(spec: TableSpec, sources: Sequence[Path]) -> Iterator[None]:
    """Turn the errors of files and of DuckDB into ours."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if isinstance(error, FileNotFoundError) or not all(one.exists() for one in sources):
            raise OvertakenError(
                f"table {spec.name}: a file went away during compaction; compact again"
            ) from None
        raise RetryableError(
            f"table {spec.name}: compaction failed ({in_one_line(error)}); try again"
        ) from error


def _replace(
    handle: DeltaTable,
    spec: TableSpec,
    sources: Sequence[ActiveFile],
    made: Sequence[tuple[ActiveFile, str]],
) -> None:
    """Commit ``made`` for ``sources``: delta-rs encodes the paths, and finds who was faster.

    Whatever else ends this, the commit may stand: its files stay, the vacuum takes them if not.

    Raises:
        OvertakenError: it does not stand.
        RetryableError: it does not, as far as the log tells.
    """
    now = time.time_ns() // 1_000_000
    added = [
        AddAction(
            path=one.relative, size=one.size, partition_values=dict(one.partition),
            modification_time=now, data_change=False, stats=statistics,
        )
        for one, statistics in made
    ]  # fmt: skip
    removed = [
        RemoveAction(
            path=one.relative, data_change=False, deletion_timestamp=now, size=one.size,
            partition_values=dict(one.partition),
        )
        for one in sources
    ]  # fmt: skip
    try:
        handle.create_write_transaction(
            [*added, *removed], "append", handle.schema(), partition_by=list(spec.partition_by),
            commit_properties=CommitProperties(custom_metadata={"headrace": "sorted"}),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=False, cleanup_expired_logs=False
            ),
        )  # fmt: skip
    except CommitFailedError as error:
        raise OvertakenError(
            f"table {spec.name}: another process changed the same files; compact again"
        ) from error
    except DeltaError as error:
        if not names_any(handle, [one.relative for one, _ in made]):
            raise RetryableError(
                f"table {spec.name}: {in_one_line(error)}; compact again"
            ) from error


def _sort(
    spec: TableSpec,
    sources: Sequence[Path],
    target: Path,
    spill: Path,
    *,
    steps: Any = None,
    join: str = "",
) -> int:
    """Sort rows into a file, all of them or those with (SEMI) or without (ANTI) these steps."""
    connection = connect({"memory_limit": _MEMORY, "threads": 1, "temp_directory": str(spill)})
    names = [name for name in spec.arrow.names if name not in spec.partition_by]
    columns = ", ".join(f'"{name}"' for name in names)
    order = ", ".join(f'"{name}"' for name in spec.sort_by)
    listed = ", ".join(literal(str(path)) for path in sources)
    joined = f" {join} JOIN these USING (step_id)" if join else ""
    try:
        if join:
            connection.register("these", steps)
        select = (
            f"SELECT {columns} FROM (SELECT * FROM read_parquet([{listed}], "  # noqa: S608
            "hive_partitioning = false, union_by_name = true) UNION ALL BY NAME "
            f"{empty_rows(spec, names)}){joined} ORDER BY {order}"
        )
        return write_sorted(connection, select, spec, target)
    finally:
        connection.close()


def _statistics(spec: TableSpec, target: Path, rows: int) -> str:
    names = spec.statistics_columns
    asked = ", ".join(f'min("{n}"), max("{n}"), count(*) - count("{n}")' for n in names)
    connection = connect({"threads": 1})
    try:
        found = connection.sql(
            f"SELECT {asked} FROM read_parquet({literal(str(target))})"  # noqa: S608
        ).fetchall()[0]
    finally:
        connection.close()
    triples = {name: found[3 * i : 3 * i + 3] for i, name in enumerate(names)}
    return log_statistics(rows, triples)
