"""Rewrites files of a partition into sorted ones, as one Delta commit that changes no data.

delta-rs merges files without sorting, or sorts by a space-filling curve that keeps no order of
steps. So DuckDB sorts (within a memory limit, spilling beside the table), and the commit, removes
and adds with ``dataChange: false``, is written here with put-if-absent. Writers that append
meanwhile are not disturbed; when another commit removed one of our sources, ours is given up.
"""

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from lakehouse.schema import TableSpec
from lakehouse.sql import connect, empty_rows, literal
from trajectory.errors import RetryableError

ROW_GROUP = 16_384
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


class Overtaken(RetryableError):  # noqa: N818 - it is not a fault, it is said and tried again
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


def rewrite(
    handle: DeltaTable, spec: TableSpec, root: Path, sources: Sequence[ActiveFile]
) -> ActiveFile:
    """Replace ``sources``, files of one partition, by one sorted file; return it.

    Raises:
        Overtaken: another commit removed a source; nothing was changed.
        RetryableError: a file could not be written.
    """
    folder = Path(sources[0].relative).parent
    name = str(folder / f"part-sorted-{uuid.uuid4()}.zstd.parquet")
    target = root / name
    try:
        rows = _sort(spec, [root / one.relative for one in sources], target)
        made = ActiveFile(
            quote(name, safe="/=-._~"), target.stat().st_size, rows, sources[0].partition
        )
        actions = [_commit_info(len(sources)), *map(_remove, sources), _add(spec, target, made)]
        _commit(root, int(handle.version()), actions, {one.path for one in sources})
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return made


def _sort(spec: TableSpec, sources: Sequence[Path], target: Path) -> int:
    connection = connect(
        {"memory_limit": _MEMORY, "threads": 1, "temp_directory": str(target.parent / ".sorting")}
    )
    columns = ", ".join(f'"{name}"' for name in spec.arrow.names if name not in spec.partition_by)
    order = ", ".join(f'"{name}"' for name in spec.sort_by)
    listed = ", ".join(literal(str(path)) for path in sources)
    try:
        connection.execute(
            f"COPY (SELECT {columns} FROM (SELECT * FROM read_parquet([{listed}], "  # noqa: S608
            "hive_partitioning = false, union_by_name = true) UNION ALL BY NAME "
            f"{empty_rows(spec, without=spec.partition_by)}) ORDER BY {order}) TO {literal(str(target))} (FORMAT parquet, "
            f"COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE {ROW_GROUP}, "
            f"DICTIONARY_SIZE_LIMIT {ROW_GROUP}, BLOOM_FILTER_FALSE_POSITIVE_RATIO 0.01)"
        )
        found = connection.sql(
            f"SELECT count(*) FROM read_parquet({literal(str(target))})"  # noqa: S608
        ).fetchall()[0]
    except (OSError, duckdb.Error) as error:
        raise RetryableError(
            f"table {spec.name}: compaction failed ({error}); try again"
        ) from error
    finally:
        connection.close()
        spill = target.parent / ".sorting"
        if spill.is_dir() and not any(spill.iterdir()):
            spill.rmdir()
    return int(found[0])


def _commit_info(sources: int) -> dict[str, Any]:
    return {
        "commitInfo": {
            "timestamp": _now_ms(),
            "operation": "OPTIMIZE",
            "operationParameters": {"sorted": "true"},
            "operationMetrics": {"numRemovedFiles": str(sources), "numAddedFiles": "1"},
            "engineInfo": "headrace",
        }
    }


def _remove(source: ActiveFile) -> dict[str, Any]:
    return {
        "remove": {
            "path": source.path,
            "deletionTimestamp": _now_ms(),
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": dict(source.partition),
            "size": source.size,
        }
    }


def _add(spec: TableSpec, target: Path, made: ActiveFile) -> dict[str, Any]:
    return {
        "add": {
            "path": made.path,
            "partitionValues": dict(made.partition),
            "size": made.size,
            "modificationTime": _now_ms(),
            "dataChange": False,
            "stats": json.dumps(_statistics(spec, target, made.rows)),
        }
    }


def _statistics(spec: TableSpec, target: Path, rows: int) -> dict[str, Any]:
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
    return {
        "numRecords": rows,
        "minValues": {n: _plain(t[0]) for n, t in triples.items() if t[0] is not None},
        "maxValues": {n: _plain(t[1]) for n, t in triples.items() if t[1] is not None},
        "nullCount": {n: t[2] for n, t in triples.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value


def _commit(root: Path, seen: int, actions: Sequence[Mapping[str, Any]], sources: set[str]) -> None:
    """Write the next commit that is free, unless one in between took a source away."""
    log = root / "_delta_log"
    temporary = log / f".{uuid.uuid4()}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
        file.flush()
        os.fsync(file.fileno())
    try:
        while True:
            seen += 1
            place = log / f"{seen:020d}.json"
            try:
                os.link(temporary, place)  # fails when the version exists: put-if-absent
            except FileExistsError:
                _refuse_when_overtaken(place, sources)
                continue
            return
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_when_overtaken(commit: Path, sources: set[str]) -> None:
    for line in commit.read_text(encoding="utf-8").splitlines():
        action = json.loads(line)
        if "metaData" in action or "protocol" in action:
            raise Overtaken("the table's schema changed during compaction; compact again")
        if action.get("remove", {}).get("path") in sources:
            raise Overtaken("another process rewrote the same files; compact again")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
