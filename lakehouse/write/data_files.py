"""Writes the data files of an append: one Parquet file per partition, and what Delta's log says of it.

Fresh files are small and live only until compaction sorts them into larger ones. So they are plain Parquet: no
dictionaries, and statistics of our own names and times only.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.schema.tables import HIVE_NULL, TableSpec
from lakehouse.storage.location import Location
from trajectory.files import sync_files


@dataclass(frozen=True, slots=True)
class FreshFile:
    """A data file that no commit names yet."""

    path: str
    """As on disk, relative to the table."""
    size: int
    partition: Mapping[str, str | None]
    modified_ms: int
    statistics: str
    """JSON for Delta's log."""


def write_files(location: Location, spec: TableSpec, data: pa.Table) -> list[FreshFile]:
    """Write the rows of ``data`` into the folder of a table, one file per partition.

    They must be synced (:func:`sync_written`) before a commit names them.

    Raises:
        OSError: the disk or the store refuses; nothing is left there.
    """
    written: list[FreshFile] = []
    try:
        for partition, rows in _partitions(spec, data):
            written.append(_write(location, spec, partition, rows))
    except OSError:
        remove_files(location, spec, written)
        raise
    return written


def sync_written(location: Location, spec: TableSpec, files: Sequence[FreshFile]) -> None:
    """Make files last through a power cut; an object store does so by itself.

    Raises:
        OSError: the disk refuses.
    """
    if location.is_local:
        table = Path(location.table(spec.name))
        sync_files(table / file.path for file in files)


def remove_files(location: Location, spec: TableSpec, files: Sequence[FreshFile]) -> None:
    """Take files away that no commit names."""
    for file in files:
        location.remove(f"{spec.name}/{file.path}")


def _partitions(
    spec: TableSpec, data: pa.Table
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition, without the columns that name it."""
    parts: list[tuple[dict[str, str | None], pa.Table]] = [({}, data)] if data.num_rows else []
    for name in spec.partition_by:
        parts = [
            ({**partition, name: None if value is None else str(value)}, rows.drop_columns([name]))
            for partition, whole in parts
            for value, rows in _split(whole, name)
        ]
    yield from parts


def _split(data: pa.Table, name: str) -> Iterator[tuple[Any, pa.Table]]:
    values = pc.unique(data[name])
    for value in values:
        rows = data if len(values) == 1 else data.filter(pc.equal(data[name], value))
        yield value.as_py(), rows


def _write(
    location: Location, spec: TableSpec, partition: Mapping[str, str | None], rows: pa.Table
) -> FreshFile:
    buffer = pa.BufferOutputStream()
    pq.write_table(
        rows,
        buffer,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=list(spec.statistics_columns),
        store_schema=False,
    )
    encoded = buffer.getvalue().to_pybytes()
    folder = "".join(
        f"{name}={quote(HIVE_NULL if value is None else value, safe='')}/"
        for name, value in partition.items()
    )
    path = f"{folder}part-{uuid.uuid4()}.zstd.parquet"
    location.put(f"{spec.name}/{path}", encoded)
    now = time.time_ns() // 1_000_000
    return FreshFile(path, len(encoded), partition, now, _statistics(spec, rows))


def _statistics(spec: TableSpec, rows: pa.Table) -> str:
    found = {}
    for name in spec.statistics_columns:
        ends = pc.min_max(rows[name])
        found[name] = (ends["min"].as_py(), ends["max"].as_py(), rows[name].null_count)
    return log_statistics(rows.num_rows, found)


def log_statistics(rows: int, found: Mapping[str, tuple[Any, Any, int]]) -> str:
    """Return the statistics of a file as Delta's log has them.

    Args:
        rows: how many the file has.
        found: minimum, maximum and number of nulls by column.
    """
    stated = {
        "numRecords": rows,
        "minValues": {n: _plain(t[0]) for n, t in found.items() if t[0] is not None},
        "maxValues": {n: _plain(t[1]) for n, t in found.items() if t[1] is not None},
        "nullCount": {n: t[2] for n, t in found.items()},
    }
    return json.dumps(stated, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value
