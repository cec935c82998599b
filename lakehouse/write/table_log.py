"""A table's log as writers see it: which batches it holds, and one more commit at its end.

A commit is one file ``_delta_log/N.json`` that must not exist yet: who comes second finds it there,
reads what the other one did, and tries again with the next number. In a folder of this machine we
write that file ourselves, for delta-rs reads the whole state of a table anew for each commit, which
costs more than a batch does. It does write the commits of object stores (conditional put) and of
tables that another program gave features that we do not know.
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lakehouse.schema.tables import TableSpec
from lakehouse.storage.location import Location
from lakehouse.write.data_files import FreshFile
from trajectory.errors import RetryableError
from trajectory.files import sync_files, sync_folder

_PLAIN_WRITER = 2
"""Writer version up to which an append needs to know nothing of the table but its columns."""


class UnsureError(RetryableError):
    """A commit failed in a way that does not tell whether it is there: its files must stay."""


class TableLog:
    """One table of a lake; for one thread at a time.

    Promise: rows are committed after the batches that :meth:`done_version` told of, or not at all.
    """

    def __init__(self, location: Location, spec: TableSpec, handle: DeltaTable) -> None:
        self.location = location
        self.spec = spec
        self.handle = handle
        self._folder = Path(location.table(spec.name)) / "_delta_log" if location.is_local else None
        self._version = -1
        """The last commit that was read or written here; the handle may be behind it."""
        self._is_plain = False
        self._done: dict[str, int] = {}
        """Batches by application, as of that version."""

    def done_version(self, app_id: str) -> int:
        """Return the last version of ``app_id`` that the table holds, -1 when there is none."""
        if app_id not in self._done or not self._is_latest():
            self._read()
            version = self.handle.transaction_version(app_id)
            self._done[app_id] = -1 if version is None else int(version)
        return self._done[app_id]

    def is_at(self, version: int) -> bool:
        """Return whether ``version`` is known to be the log's last commit, without reading it."""
        return version == self._version and self._is_latest()

    @property
    def version(self) -> int:
        """The last commit that was read or written here."""
        return self._version

    def put(self, files: Sequence[FreshFile], batch: tuple[str, int] | None) -> bool:
        """Commit files, as the batch (application, number) where one is named.

        Returns:
            False when another commit stood in the way.

        Raises:
            OSError: the log cannot be written; the files are not committed.
            UnsureError: they may be, or not.
        """
        if batch is None and not self._is_latest():
            self._read()
        if self._folder is None or not self._is_plain:
            return self._put_by_delta(files, batch)
        number = self._version + 1
        if not _link(self._folder, f"{number:020d}.json", self._entries(files, batch)):
            return False
        self._version = number
        if batch is not None:
            self._done[batch[0]] = batch[1]
        if (number + 1) % int(self.spec.configuration["delta.checkpointInterval"]) == 0:
            with suppress(DeltaError, OSError, RetryableError):  # maintenance makes the next one
                self._read()
                make_checkpoint(self.location, self.handle)
        return True

    def sync(self) -> None:
        """Make the commits that were put last through a power cut; object stores do so by themselves.

        Raises:
            UnsureError: the disk refuses; the commits stand.
        """
        if self._folder is None:
            return
        try:
            sync_folder(self._folder)
        except OSError as error:
            raise UnsureError(
                f"table {self.spec.name}: the disk refused the last commits ({error}); nothing was "
                "lost: check the disk, then run the same again"
            ) from error

    def _put_by_delta(self, files: Sequence[FreshFile], batch: tuple[str, int] | None) -> bool:
        transactions = None if batch is None else [Transaction(*batch)]
        actions = [
            AddAction(
                path=one.path,
                size=one.size,
                partition_values=dict(one.partition),
                modification_time=one.modified_ms,
                data_change=True,
                stats=one.statistics,
            )
            for one in files
        ]
        try:
            with lasting(self.location, self.handle):
                self.handle.create_write_transaction(
                    list(actions),
                    "append",
                    self._schema,
                    partition_by=list(self.spec.partition_by),
                    commit_properties=CommitProperties(app_transactions=transactions),
                )
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise UnsureError(
                f"table {self.spec.name}: the commit failed ({error}); "
                "nothing was lost: check that the store can be reached, then run the same again"
            ) from error
        finally:
            self._version = -1  # read it anew: the handle has not moved
        return True

    def _entries(self, files: Sequence[FreshFile], batch: tuple[str, int] | None) -> bytes:
        now = time.time_ns() // 1_000_000
        entries: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now,
                    "operation": "WRITE",
                    "operationParameters": {
                        "mode": "Append",
                        "partitionBy": json.dumps(list(self.spec.partition_by)),
                    },
                    "isBlindAppend": True,
                    "engineInfo": "headrace",
                }
            }
        ]
        if batch is not None:
            entries.append({"txn": {"appId": batch[0], "version": batch[1], "lastUpdated": now}})
        entries += [
            {
                "add": {
                    "path": quote(one.path, safe="/=-._~"),
                    "partitionValues": dict(one.partition),
                    "size": one.size,
                    "modificationTime": one.modified_ms,
                    "dataChange": True,
                    "stats": one.statistics,
                }
            }
            for one in files
        ]
        return "\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries).encode()

    def _is_latest(self) -> bool:
        """Return whether the log of a folder ends where we left it."""
        return (
            self._folder is not None and self._version >= 0 and _ends(self._folder, self._version)
        )

    def _read(self) -> None:
        refresh(self.handle)
        self._version = int(self.handle.version())
        self._is_plain = int(self.handle.protocol().min_writer_version) <= _PLAIN_WRITER
        self._done.clear()

    @cached_property
    def _schema(self) -> Schema:
        return Schema.from_arrow(self.spec.arrow)


def _link(folder: Path, name: str, data: bytes) -> bool:
    """Make a file whole, unless there is one of that name; return whether it was made."""
    draft = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave the name of an empty commit
        os.link(draft, folder / name)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):  # maintenance sweeps it
            draft.unlink(missing_ok=True)
    return True


@contextmanager
def lasting(location: Location, handle: DeltaTable) -> Iterator[None]:
    """Make what delta-rs commits to a table within the block last through a power cut.

    delta-rs does not wait for the disk: a cut within the block may still damage the table.

    Raises:
        OSError: the disk refuses; the commits stand.
    """
    before = int(handle.version())
    try:
        yield
    finally:  # after an interrupt too: the commit may stand
        if location.is_local:
            log = _log_of(handle)
            paths = [path for path in log.glob("*.json") if _number(path) > before]
            for path in tuple(paths):
                paths += [log.parent / name for name in _added(path)]
            sync_files(path for path in paths if path.exists())


def make_checkpoint(location: Location, handle: DeltaTable) -> None:
    """Write a checkpoint of the version that a handle is at; it lasts through a power cut.

    Raises:
        OSError: the disk refuses.
        DeltaError: it could not be written.
    """
    handle.create_checkpoint()
    if location.is_local:
        log = _log_of(handle)
        made = log.glob(f"{int(handle.version()):020d}.checkpoint*")
        sync_files([*made, log / "_last_checkpoint"])


def _added(commit: Path) -> Iterator[str]:
    """Yield the data files that a commit adds, as on disk, relative to the table."""
    for line in commit.read_bytes().splitlines():
        if b'"add"' in line and "add" in (entry := json.loads(line)):
            yield unquote(entry["add"]["path"])


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else -1


def _log_of(handle: DeltaTable) -> Path:
    """Return the log's folder of a table in a folder."""
    return Path(unquote(urlsplit(handle.table_uri).path)) / "_delta_log"


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


def names_any(handle: DeltaTable, paths: Iterable[str]) -> bool:
    """Return whether a table's latest version names one of these files.

    A commit that failed tells no more for sure: what comes after it may have failed, or its answer
    was lost.

    Raises:
        RetryableError: the log cannot be read.
    """
    refresh(handle)
    named = {unquote(path) for path in pa.table(handle.get_add_actions())["path"].to_pylist()}
    return not named.isdisjoint(paths)


def _is_latest(handle: DeltaTable) -> bool:
    """Return whether a table in a folder ends where the handle does."""
    address = urlsplit(handle.table_uri)
    if address.scheme not in ("", "file"):
        return False
    return _ends(_log_of(handle), int(handle.version()))


def _ends(log: Path, version: int) -> bool:
    """Return whether a log ends at a version: two looks at a folder, not a read."""
    return (log / f"{version:020d}.json").exists() and not (
        log / f"{version + 1:020d}.json"
    ).exists()
