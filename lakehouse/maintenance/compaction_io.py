"""Where compaction reads and writes: the table's own folder, or a copy of an object store's files."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

from lakehouse.read.spill import COPIES
from lakehouse.storage.location import Location
from lakehouse.storage.stores import BLOCK
from trajectory.files import sync_files


class LocalFiles:
    """The files of a table in a folder, worked on where they are."""

    def __init__(self, root: Path) -> None:
        """Work in the table's folder."""
        self._root = root
        self._unpublished: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._unpublished:
            self.remove(name)
            shutil.rmtree(self.spill(name), ignore_errors=True)

    def local(self, relative: str) -> Path:
        """Return the path of a file of the table on this machine."""
        return self._root / relative

    def new(self, name: str) -> Path:
        """Return where to write a new file; it goes again unless it is published."""
        self._unpublished.add(name)
        return self._root / name

    def spill(self, name: str) -> Path:
        """Return a folder for what sorting spills, on the same disk."""
        return (self._root / name).parent / ".sorting"

    def publish(self, name: str) -> None:
        """Make the new file part of the table's folder for good, after a power cut too."""
        sync_files([self._root / name])
        self._unpublished.discard(name)

    def remove(self, name: str) -> None:
        """Take a file away that no commit names."""
        (self._root / name).unlink(missing_ok=True)


class StoredFiles:
    """The files of a table in an object store, copied to a temporary folder and back."""

    def __init__(self, location: Location, table: str) -> None:
        """Work on a table of the lake at ``location``."""
        self._location = location
        self._table = table
        self._files = location.filesystem()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{COPIES}{os.getpid()}-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def local(self, relative: str) -> Path:
        """Fetch a file of the table."""
        copy = self._folder / relative.replace("/", "_")
        stored = f"{self._table}/{relative}"
        with self._files.open_input_file(stored) as source, copy.open("wb") as target:
            while block := source.read(BLOCK):
                target.write(block)
        return copy

    def new(self, name: str) -> Path:
        """Return where to write a new file."""
        return self._folder / Path(name).name

    def spill(self, name: str) -> Path:
        """Return a folder for what sorting spills."""
        return self._folder / f"{Path(name).stem}.sorting"

    def publish(self, name: str) -> None:
        """Put the new file into the store."""
        self._location.put_file(f"{self._table}/{name}", self.new(name))

    def remove(self, name: str) -> None:
        """Take an object away that no commit names."""
        self._files.delete_file(f"{self._table}/{name}")
