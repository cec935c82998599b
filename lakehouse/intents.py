"""Intents: a whole batch on disk before its first commit, so that any crash can be finished.

An intent is one file of consecutive Arrow IPC streams, one per table, each with the table's name
in its schema metadata. It holds governed rows only. It appears by an atomic rename after fsync
and goes when the ledger has been committed.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from trajectory.canonical import bytes_hash

_NAME = b"headrace.table"
_APP = b"headrace.app"
_FILE = re.compile(r"[0-9a-f]{40}-(\d{20})\.arrows")
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was begun and perhaps not finished."""

    path: Path
    version: int

    def read(self) -> tuple[str, dict[str, Any]]:
        """Return the application id and the tables of the batch, in the order of writing."""
        tables: dict[str, Any] = {}
        app_id = ""
        with pa.OSFile(str(self.path)) as source:
            size = source.size()
            while source.tell() < size:
                table = pa.ipc.open_stream(source).read_all()
                metadata = table.schema.metadata
                app_id = metadata[_APP].decode()
                tables[metadata[_NAME].decode()] = table
        return app_id, tables

    def remove(self) -> None:
        """Forget the intent; its batch is committed."""
        self.path.unlink(missing_ok=True)


class Intents:
    """The intents of a local lake, in its folder ``_intents``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, app_id: str, version: int, tables: Mapping[str, Any]) -> Intent:
        """Put the batch on disk, durably, before anything of it is committed."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{_key(app_id)}-{version:020d}.arrows"
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            for name, table in tables.items():
                schema = table.schema.with_metadata({_NAME: name.encode(), _APP: app_id.encode()})
                with pa.ipc.new_stream(file, schema, options=_OPTIONS) as writer:
                    writer.write_table(table.cast(schema))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(self.folder)
        return Intent(path, version)

    def pending(self, app_id: str | None = None) -> Iterator[Intent]:
        """Yield the intents of ``app_id`` (of all when None), oldest version first."""
        if not self.folder.is_dir():
            return
        start = "" if app_id is None else _key(app_id)
        for path in sorted(self.folder.iterdir(), key=lambda path: path.name[41:]):
            matched = _FILE.fullmatch(path.name)
            if matched and path.name.startswith(start):
                yield Intent(path, int(matched[1]))

    def sweep(self) -> int:
        """Remove half-written files of processes that are gone; return how many."""
        swept = 0
        for path in self.folder.glob("*.tmp") if self.folder.is_dir() else ():
            if not Path(f"/proc/{path.name.split('.')[-2]}").exists():
                path.unlink(missing_ok=True)
                swept += 1
        return swept


def _key(app_id: str) -> str:
    return bytes_hash(app_id.encode()).removeprefix("b2:")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
