"""A table's log as writers see it: which batches it holds, and one more commit at its end.

delta-rs writes every commit. It checks a commit against those that came after the state it was built
on, so a concurrent writer with the same application makes it fail. delta-rs does not wait for the
disk: :func:`lasting` and :meth:`TableLog.sync` do. A power cut before that may leave the name of a
commit without its bytes; :func:`remove_torn_commit` takes it away, since nobody was told of it.
A checkpoint that lacks some of its bytes is taken away too, by :func:`remove_torn_checkpoint`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lakehouse.errors import in_one_line
from lakehouse.schema.tables import TableSpec
from lakehouse.schema.version import check_version
from lakehouse.storage.location import Location
from lakehouse.write.data_files import FreshFile
from trajectory.errors import RetryableError
from trajectory.files import sync_files, sync_folder

_READS = 3
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints are made here, since they have to last through a power cut."""


class UnsureError(RetryableError):
    """A commit failed in a way that does not tell whether it is there: its files must stay."""


class TableLog:
    """One table of a lake; for one thread at a time.

    Promise: rows are committed after the batches that :meth:`done_version` told of, or not at all.
    """

    def __init__(
        self, location: Location, spec: TableSpec, open_table: Callable[[], DeltaTable]
    ) -> None:
        self.location = location
        self.spec = spec
        self.handle = open_table()
        """The table as it was read last; after some commits it is another one (:meth:`latest`)."""
        self._open_table = open_table
        self._interval = int(spec.configuration["delta.checkpointInterval"])
        self._opened_at = self.version
        self._checked_at = -1
        """The last commit at which the table was no newer than this program."""
        self._synced = -1
        """The last commit that is known to last through a power cut."""

    def done_version(self, app_id: str) -> int:
        """Return the last version of ``app_id`` that the table holds, -1 when there is none."""
        version = self.latest().transaction_version(app_id)
        return -1 if version is None else int(version)

    def latest(self) -> DeltaTable:
        """Return the handle at the table's latest version.

        A handle keeps all commits that it has followed, and looks at them again for each new one. After 300 of
        them a commit took 55 ms of processor time instead of 3. So it is opened anew where a checkpoint is due,
        from which reading begins.

        Raises:
            RetryableError: the log cannot be read.
            IntegrityError: a newer Headrace upgraded the table meanwhile; rows from here would lack its columns.
        """
        refresh(self.handle)
        if self._opened_at // self._interval < self.version // self._interval:
            self.handle = self._open_table()
            self._opened_at = self.version
        if self._checked_at != self.version:
            check_version(self.location, self.spec, self.handle)
            self._checked_at = self.version
        return self.handle

    def is_at(self, version: int) -> bool:
        """Return whether ``version`` is known to be the log's last commit, without reading it."""
        return version == self.version and _is_latest(self.handle)

    @property
    def version(self) -> int:
        """The last commit that was read or written here."""
        return int(self.handle.version())

    def put(self, files: Sequence[FreshFile], batch: tuple[str, int] | None) -> bool:
        """Commit files, as the batch (application, number) where one is named.

        Returns:
            False when another commit stood in the way.

        Raises:
            RetryableError: the log cannot be read; the files are not committed.
            UnsureError: they may be committed, or not.
        """
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
        if batch is None:
            self.latest()
        before = self.version
        try:
            self.handle.create_write_transaction(
                list(actions),
                "append",
                self._schema,
                partition_by=list(self.spec.partition_by),
                commit_properties=CommitProperties(app_transactions=transactions),
                post_commithook_properties=_NO_HOOKS,
            )
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise UnsureError(
                f"table {self.spec.name}: the commit failed ({in_one_line(error)}); nothing was lost: check that "
                "the disk has room, or that the store can be reached, then run the same again"
            ) from error
        with suppress(
            DeltaError, OSError, RetryableError
        ):  # the commit stands; the next call reads
            refresh(self.handle)
            if before // self._interval < self.version // self._interval:
                make_checkpoint(self.location, self.handle)
            self.latest()
        return True

    def sync(self) -> None:
        """Make all commits last through a power cut; object stores do so by themselves.

        Raises:
            UnsureError: the disk refuses; the commits stand.
        """
        if not self.location.is_local:
            return
        log, last = _log_of(self.handle), self.version
        while _commit(log, last + 1).exists():  # what was committed and could not be read again
            last += 1
        commits = (_commit(log, version) for version in range(self._synced + 1, last + 1))
        try:
            sync_files(path for path in commits if path.exists())
        except OSError as error:
            raise UnsureError(
                f"table {self.spec.name}: the disk refused the last commits ({in_one_line(error)}); nothing was "
                "lost: check the disk, then run the same again"
            ) from error
        self._synced = last

    @cached_property
    def _schema(self) -> Schema:
        return Schema.from_arrow(self.spec.arrow)


def remove_torn_commit(table: Path) -> None:
    """Take away a last commit that a power cut left without its bytes.

    It was never synced, so nobody was told that its rows are there; its batch has an intent still.
    """
    log = table / "_delta_log"
    commits = _commits(log, after=-1)
    if not commits or _is_whole(commits[max(commits)]):
        return
    commits[max(commits)].unlink(missing_ok=True)
    sync_folder(log)


def remove_torn_checkpoint(table: Path) -> None:
    """Remove a last checkpoint that a power cut left in part; its commits are there.

    The hint at the last checkpoint goes too, since it may name one that is not there.
    """
    log = table / "_delta_log"
    (log / "_last_checkpoint").unlink(missing_ok=True)  # first: it may name what goes
    found = (path for path in log.glob("*.checkpoint*.parquet") if path.is_file())
    checkpoint = max(found, default=None)
    if checkpoint is not None and not _is_parquet(checkpoint):
        checkpoint.unlink(missing_ok=True)
    sync_folder(log)


def _is_parquet(path: Path) -> bool:
    """Return whether what a file holds can be read; one that cannot be opened may be as it should."""
    try:
        pq.read_table(path)
    except pa.ArrowInvalid:
        return False
    except OSError as error:  # the system's has a number, Arrow's about what it read has none
        return error.errno is not None
    return True


def _is_whole(commit: Path) -> bool:
    try:
        entries = [json.loads(line) for line in commit.read_bytes().splitlines()]
        return bool(entries) and all(isinstance(entry, dict) for entry in entries)
    except ValueError:
        return False
    except FileNotFoundError:  # maintenance has just removed it
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
            commits = list(_commits(log, after=before).values())
            data = (log.parent / name for commit in commits for name in _added(commit))
            sync_files(path for path in data if path.exists())  # first: the commits name them
            sync_files(path for path in commits if path.exists())


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


def _commits(log: Path, *, after: int) -> dict[int, Path]:
    """Return the commits of a log in a folder that come after a version, by version."""
    found = {int(path.stem): path for path in log.glob("*.json") if path.stem.isdigit()}
    return {version: path for version, path in found.items() if version > after}


def _log_of(handle: DeltaTable) -> Path:
    """Return the log's folder of a table in a folder."""
    return Path(unquote(urlsplit(handle.table_uri).path)) / "_delta_log"


def refresh(handle: DeltaTable) -> None:
    """Bring a handle to the table's latest version."""

    def update() -> None:
        if not _is_latest(handle):
            handle.update_incremental()

    read_log(handle.table_uri, update)


def read_log[T](address: str, read: Callable[[], T]) -> T:
    """Read a table's log; again where a removal that cleans it took a file from under us.

    Raises:
        RetryableError: it cannot be read.
    """
    for _ in range(_READS - 1):
        with suppress(DeltaError, OSError):
            return read()
    try:
        return read()
    except (DeltaError, OSError) as error:
        raise RetryableError(
            f"{address}: the table's log cannot be read ({in_one_line(error)}); check that the lake "
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
    return _commit(log, version).exists() and not _commit(log, version + 1).exists()


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"
