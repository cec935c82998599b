"""Commits to one Delta table: exactly once per application version, conflicts tried again."""

import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from lakehouse.schema import TableSpec
from trajectory.errors import RetryableError

_ATTEMPTS = 12


def writer_properties(spec: TableSpec, *, bloom_rows: int | None = None) -> WriterProperties:
    """Return how data files are written: zstd, no statistics of content, bloom filters on ids.

    Args:
        spec: the table.
        bloom_rows: expected rows per file; None leaves the filters out (small, fresh files).
    """
    columns = {
        name: ColumnProperties(statistics_enabled="NONE") for name in _flat_content_columns(spec)
    }
    if bloom_rows is not None:
        bloom = BloomFilterProperties(True, 0.01, bloom_rows)
        for name in spec.bloom_columns:
            columns[name] = ColumnProperties(bloom_filter_properties=bloom)
    return WriterProperties(compression="ZSTD", compression_level=1, column_properties=columns)


def commit_once(
    handle: DeltaTable, spec: TableSpec, data: pa.Table, *, app_id: str, version: int
) -> bool:
    """Append ``data`` unless the table already holds ``version`` of ``app_id``.

    The version is read and the rows are written through the same handle, so that a concurrent
    writer with the same ``app_id`` makes the commit fail instead of doubling the rows.

    Returns:
        True when this call wrote the rows, False when they were there already.

    Raises:
        RetryableError: the commit failed for good (disk full, no permission, endless conflicts).
    """
    properties = CommitProperties(app_transactions=[Transaction(app_id, version)])
    for attempt in range(_ATTEMPTS):
        if done_version(handle, app_id) >= version:
            return False
        if try_append(handle, spec, data, properties):
            return True
        back_off(attempt)
    raise exhausted(spec.name)


def append(handle: DeltaTable, spec: TableSpec, data: pa.Table) -> None:
    """Append ``data`` without an application version.

    Raises:
        RetryableError: the commit failed for good.
    """
    for attempt in range(_ATTEMPTS):
        refresh(handle)
        if try_append(handle, spec, data, CommitProperties()):
            return
        back_off(attempt)
    raise exhausted(spec.name)


def try_append(
    handle: DeltaTable, spec: TableSpec, data: pa.Table, properties: CommitProperties
) -> bool:
    """Write and commit once; False when another commit stood in the way."""
    try:
        write_deltalake(
            handle,
            data,
            mode="append",
            commit_properties=properties,
            writer_properties=writer_properties(spec),
        )
    except CommitFailedError:
        return False
    except (DeltaError, OSError) as error:
        raise RetryableError(
            f"table {spec.name}: the commit failed ({error}); "
            "nothing was lost: check disk space and permissions, then run the same again"
        ) from error
    return True


def done_version(handle: DeltaTable, app_id: str) -> int:
    """Return the last version of ``app_id`` that the table holds, -1 when there is none."""
    refresh(handle)
    version = handle.transaction_version(app_id)
    return -1 if version is None else int(version)


def refresh(handle: DeltaTable) -> None:
    """Bring a handle to the table's latest version."""
    try:
        if not _is_latest(handle):
            handle.update_incremental()
    except (DeltaError, OSError) as error:
        raise RetryableError(
            f"{handle.table_uri}: the table's log cannot be read ({error}); check that the lake "
            "is mounted and readable, then run the same again"
        ) from error


def _is_latest(handle: DeltaTable) -> bool:
    """Return whether a local table's log ends where the handle does: two looks at a folder, not a read."""
    address = urlsplit(handle.table_uri)
    if address.scheme not in ("", "file"):
        return False
    log, version = Path(unquote(address.path)) / "_delta_log", int(handle.version())
    return (log / f"{version:020d}.json").exists() and not (
        log / f"{version + 1:020d}.json"
    ).exists()


def back_off(attempt: int) -> None:
    """Wait a little longer, with jitter, after each conflict."""
    time.sleep(min(2.0, 0.02 * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


def exhausted(table: str) -> RetryableError:
    """Return the error for a table whose commits keep conflicting."""
    return RetryableError(
        f"table {table}: {_ATTEMPTS} commits in a row met another writer's; nothing was lost: "
        "run the same again when fewer writers are active"
    )


def _flat_content_columns(spec: TableSpec) -> list[str]:
    flat: list[Any] = [
        column.name for column in spec.columns if column.content and pa.types.is_string(column.type)
    ]
    return flat
