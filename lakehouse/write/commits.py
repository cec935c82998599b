"""Commits to one Delta table: exactly once per application version, conflicts tried again."""

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa
from deltalake.exceptions import DeltaError

from lakehouse.errors import in_one_line
from lakehouse.schema.tables import TABLES, TableSpec
from lakehouse.storage.location import Location
from lakehouse.write.data_files import FreshFile, remove_files, sync_written, write_files
from lakehouse.write.table_log import TableLog, UnsureError, names_any
from trajectory.errors import RetryableError

SYNCS = 4
"""Tables whose files are synced at the same time: a disk takes their waits as one."""
_ATTEMPTS = 12


def commit_once(
    log: TableLog,
    data: pa.Table,
    *,
    app_id: str,
    version: int,
    files: list[FreshFile] | None = None,
) -> list[str] | None:
    """Append ``data`` unless the table already holds ``version`` of ``app_id``.

    The commit lasts through a power cut when the log was synced too (:meth:`TableLog.sync`).

    The commit stands right behind the state that the version was read from. So a concurrent writer with the same
    ``app_id`` makes it fail instead of doubling the rows.

    Args:
        log: the table's.
        data: the rows.
        app_id: who appends.
        version: number of the batch.
        files: what :func:`write_ahead` wrote of ``data``; without, it is written here.

    Returns:
        The files that were committed, relative to the table; None when the rows were there already.

    Raises:
        RetryableError: the commit failed for good (disk full, no permission, endless conflicts).
    """
    with _explained(log.spec):
        if files is None:
            if log.done_version(app_id) >= version:
                return None
            files = _written(log, data)
        with _kept(log, files):
            for attempt in range(_ATTEMPTS):
                if log.done_version(app_id) >= version:
                    _take_back(log, files)
                    return None
                if log.put(files, (app_id, version)):
                    return [file.path for file in files]
                back_off(attempt)
            raise exhausted(log.spec.name)


@contextmanager
def write_ahead(
    location: Location, tables: Mapping[str, pa.Table]
) -> Iterator[dict[str, list[FreshFile]]]:
    """Write the data files of tables before their commits, and give them by table.

    Who commits takes them out of the mapping; what is left at the block's end no commit names, and
    it is taken away.

    Raises:
        RetryableError: the disk refuses.
    """
    written: dict[str, list[FreshFile]] = {}
    try:
        for name, data in tables.items():
            with _explained(TABLES[name]):
                written[name] = write_files(location, TABLES[name], data)
        with ThreadPoolExecutor(SYNCS) as disk:
            list(disk.map(partial(_sync_table, location), written, written.values()))
        yield written
    finally:
        with suppress(OSError):  # maintenance sweeps them
            for name, files in written.items():
                remove_files(location, TABLES[name], files)


def _sync_table(location: Location, name: str, files: list[FreshFile]) -> None:
    with _explained(TABLES[name]):
        sync_written(location, TABLES[name], files)


def append(log: TableLog, data: pa.Table) -> None:
    """Append ``data`` without an application version.

    Raises:
        RetryableError: the commit failed for good.
    """
    with _explained(log.spec):
        files = _written(log, data)
        with _kept(log, files):
            for attempt in range(_ATTEMPTS):
                if log.put(files, None):
                    log.sync()
                    return
                back_off(attempt)
            raise exhausted(log.spec.name)


def _written(log: TableLog, data: pa.Table) -> list[FreshFile]:
    files = write_files(log.location, log.spec, data)
    try:
        sync_written(log.location, log.spec, files)
    except OSError:
        remove_files(log.location, log.spec, files)
        raise
    return files


@contextmanager
def _kept(log: TableLog, files: list[FreshFile]) -> Iterator[None]:
    """Take the files away again when it is sure that no commit names them.

    An object store does not tell: a commit whose answer was lost may appear later.
    """
    try:
        yield
    except (OSError, RetryableError) as error:
        if isinstance(error, UnsureError) and not log.location.is_local:
            raise
        with suppress(RetryableError):  # the log cannot be read: the vacuum takes them
            _take_back(log, files)
        raise


def _take_back(log: TableLog, files: list[FreshFile]) -> None:
    """Take files away, unless a commit of ours came first after all and its answer was lost."""
    if files and not names_any(log.handle, [file.path for file in files]):
        remove_files(log.location, log.spec, files)


@contextmanager
def _explained(spec: TableSpec) -> Iterator[None]:
    try:
        yield
    except RetryableError:
        raise
    except (DeltaError, OSError) as error:
        raise RetryableError(
            f"table {spec.name}: the commit failed ({in_one_line(error)}); "
            "nothing was lost: check disk space and permissions, then run the same again"
        ) from error


def back_off(attempt: int) -> None:
    """Wait a little longer, with jitter, after each conflict."""
    time.sleep(min(2.0, 0.02 * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311 - jitter


def exhausted(table: str) -> RetryableError:
    """Return the error for a table whose commits keep conflicting."""
    return RetryableError(
        f"table {table}: {_ATTEMPTS} commits in a row met another writer's; nothing was lost: "
        "run the same again when fewer writers are active"
    )
