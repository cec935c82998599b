"""The Delta tables of a lake as such: whether they are there, how they are made, each opened once."""

import threading
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from lakehouse.schema.tables import TABLES
from lakehouse.storage.location import Location
from lakehouse.write.table_log import (
    TableLog,
    read_log,
    remove_torn_checkpoint,
    remove_torn_commit,
)
from trajectory.errors import ConfigurationError, RetryableError
from trajectory.files import sync_files, sync_folder

STORE_LOCK = threading.RLock()
"""One thread at a time works on object stores. delta-rs waits for the network while it holds Python's lock, and
two such threads can wait for each other for ever. Processes are free."""


class Tables:
    """Handles and logs of a lake's tables, by name."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.lock = threading.RLock() if location.is_local else STORE_LOCK
        """Held while a handle or a log is worked with; whoever writes holds it from end to end."""
        self._options = dict(location.options) or None
        self._logs: dict[str, TableLog] = {}

    def exists(self, name: str) -> bool:
        """Return whether the table was made."""
        address = self.location.table(name)
        return bool(DeltaTable.is_deltatable(address, storage_options=self._options))

    def mend(self, name: str) -> None:
        """Take away what a power cut left of a table's last commit and last checkpoint."""
        if not self.location.is_local:
            return
        remove_torn_commit(Path(self.location.table(name)))
        try:
            if self.exists(name):
                self.handle(name)
        except RetryableError:
            remove_torn_checkpoint(Path(self.location.table(name)))

    def make(self, name: str) -> None:
        """Make a table, unless somebody else just did.

        Raises:
            RetryableError: another commit got in between, and there is none all the same.
        """
        spec = TABLES[name]
        try:
            DeltaTable.create(
                self.location.table(name),
                spec.arrow,
                mode="ignore",
                partition_by=list(spec.partition_by),
                name=name,
                description=spec.comment,
                configuration=dict(spec.configuration),
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )
        except CommitFailedError as error:
            if not self.exists(name):  # else two began at the same moment, and the other was first
                raise RetryableError(
                    f"{self.location.table(name)} could not be made, since something else was "
                    "committed there at the same moment; run the same again"
                ) from error
        if self.location.is_local:
            log = Path(self.location.table(name)) / "_delta_log"
            sync_files([*log.glob("*.json"), log, log.parent])
            sync_folder(log.parent.parent.parent)

    def fresh(self, name: str) -> DeltaTable:
        """Return a handle of its own, at the latest version.

        Raises:
            RetryableError: the table's log cannot be read.
        """
        address = self.location.table(name)
        return read_log(address, lambda: DeltaTable(address, storage_options=self._options))

    def handle(self, name: str) -> DeltaTable:
        """Return the handle that is kept, as it was left.

        Raises:
            ConfigurationError: there is no such table.
        """
        return self.log(name).handle

    def latest(self, name: str) -> DeltaTable:
        """Return the handle that is kept, at the table's latest version.

        Raises:
            ConfigurationError: there is no such table.
        """
        with self.lock:
            return self.log(name).latest()

    def log(self, name: str) -> TableLog:
        """Return the log of a table.

        Raises:
            ConfigurationError: there is no such table.
        """
        if name not in TABLES:
            raise ConfigurationError(f"no table {name!r} in the lake; tables: {', '.join(TABLES)}")
        with self.lock:
            if name not in self._logs:
                self._logs[name] = TableLog(self.location, TABLES[name], lambda: self.fresh(name))
            return self._logs[name]
