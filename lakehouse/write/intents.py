"""Intents: a whole batch on disk before its first commit, so that any crash can be finished.

An intent is one file of consecutive Arrow IPC streams, one per table, each with the table's name
in its schema metadata. It holds governed rows only. It appears by an atomic rename after fsync
and goes when the ledger has been committed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
from pyarrow.fs import FileSelector

from lakehouse.storage.location import Location
from trajectory.canonical import bytes_hash
from trajectory.errors import RetryableError
from trajectory.files import delete_leftovers, make_folders, replacing

_NAME = b"headrace.table"
_APP = b"headrace.app"
_FILE = re.compile(r"[0-9a-f]{40}-(\d{20})\.arrows")
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Intent(Protocol):
    """A batch that was begun and perhaps not finished."""

    @property
    def version(self) -> int:
        """Number of the batch."""
        ...

    def read(self) -> tuple[str, dict[str, Any]]:
        """Return the application id and the tables of the batch, in the order of writing.

        Raises:
            FileNotFoundError: another process has finished it meanwhile.
        """
        ...

    def remove(self) -> None:
        """Forget the intent; its batch is committed."""
        ...


class Intents(Protocol):
    """The intents of a lake."""

    def write(self, app_id: str, version: int, tables: Mapping[str, Any]) -> Intent:
        """Store the batch durably before anything of it is committed.

        Raises:
            RetryableError: the disk is full or refuses; nothing was stored.
        """
        ...

    def pending(self, app_id: str | None = None) -> Iterator[Intent]:
        """Yield the intents of ``app_id`` (of all when None), oldest version first."""
        ...

    def sweep(self) -> int:
        """Remove what dead processes left half-written; return how many."""
        ...


def intents_of(location: Location) -> Intents:
    """Return the intents of the lake at ``location``."""
    if location.is_local:
        return FolderIntents(location.folder / "_intents")
    return ObjectIntents(location)


@dataclass(frozen=True, slots=True)
class FolderIntent:
    """An intent as a file."""

    path: Path
    version: int

    def read(self) -> tuple[str, dict[str, Any]]:
        """See :class:`Intent`."""
        return _decode(self.path.read_bytes())

    def remove(self) -> None:
        """See :class:`Intent`."""
        self.path.unlink(missing_ok=True)


class FolderIntents:
    """Intents in the folder ``_intents`` of a local lake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, app_id: str, version: int, tables: Mapping[str, Any]) -> FolderIntent:
        """See :class:`Intents`; the file appears whole, after fsync, by a rename."""
        path = self.folder / _name(app_id, version)
        try:
            make_folders(self.folder, mode=0o700)
            with replacing(path) as file:
                _encode(file, app_id, tables)
        except OSError as error:
            raise RetryableError(
                f"{self.folder}: the batch could not be stored ({error.strerror}); nothing was lost: "
                "check disk space and permissions, then run the same again"
            ) from error
        return FolderIntent(path, version)

    def pending(self, app_id: str | None = None) -> Iterator[FolderIntent]:
        """See :class:`Intents`."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        for name, version in _of_application(names, app_id):
            yield FolderIntent(self.folder / name, version)

    def sweep(self) -> int:
        """See :class:`Intents`."""
        return delete_leftovers(self.folder)


@dataclass(frozen=True, slots=True)
class ObjectIntent:
    """An intent as an object of a store."""

    files: Any
    """A pyarrow file system."""
    name: str
    version: int

    def read(self) -> tuple[str, dict[str, Any]]:
        """See :class:`Intent`."""
        with self.files.open_input_file(f"_intents/{self.name}") as file:
            return _decode(file.read())

    def remove(self) -> None:
        """See :class:`Intent`."""
        with suppress(FileNotFoundError):
            self.files.delete_file(f"_intents/{self.name}")


class ObjectIntents:
    """Intents as objects under ``_intents/``; a put shows an object whole or not at all."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.files = location.filesystem()

    def write(self, app_id: str, version: int, tables: Mapping[str, Any]) -> ObjectIntent:
        """See :class:`Intents`."""
        buffer = BytesIO()
        _encode(buffer, app_id, tables)
        intent = ObjectIntent(self.files, _name(app_id, version), version)
        try:
            self.location.put(f"_intents/{intent.name}", buffer.getvalue())
        except OSError as error:
            raise RetryableError(
                f"{self.location.root}/_intents: the batch could not be stored ({error}); nothing "
                "was lost: check that the store can be reached and written, then run the same again"
            ) from error
        return intent

    def pending(self, app_id: str | None = None) -> Iterator[ObjectIntent]:
        """See :class:`Intents`."""
        found = self.files.get_file_info(FileSelector("_intents", allow_not_found=True))
        for name, version in _of_application([one.base_name for one in found], app_id):
            yield ObjectIntent(self.files, name, version)

    def sweep(self) -> int:
        """See :class:`Intents`; nothing can be half-written here."""
        return 0


def _encode(file: IO[bytes], app_id: str, tables: Mapping[str, Any]) -> None:
    for name, table in tables.items():
        named = table.replace_schema_metadata({_NAME: name.encode(), _APP: app_id.encode()})
        with pa.ipc.new_stream(file, named.schema, options=_OPTIONS) as writer:
            writer.write_table(named)


def _decode(data: bytes) -> tuple[str, dict[str, Any]]:
    tables: dict[str, Any] = {}
    app_id = ""
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        table = pa.ipc.open_stream(source).read_all()
        metadata = table.schema.metadata
        app_id = metadata[_APP].decode()
        tables[metadata[_NAME].decode()] = table
    return app_id, tables


def _of_application(names: Iterable[str], app_id: str | None) -> list[tuple[str, int]]:
    start = "" if app_id is None else _key(app_id)
    found = [
        (name, int(matched[1]))
        for name in names
        if (matched := _FILE.fullmatch(name)) and name.startswith(start)
    ]
    return sorted(found, key=lambda one: (one[1], one[0]))


def _name(app_id: str, version: int) -> str:
    return f"{_key(app_id)}-{version:020d}.arrows"


def _key(app_id: str) -> str:
    return bytes_hash(app_id.encode()).removeprefix("b2:")
