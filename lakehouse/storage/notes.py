"""Small named notes of programs that work on the lake, kept beside its tables: whole or not at all.

The governor keeps a second copy of its checkpoint here (keyed hashes, names and counters). What is lost
on its machine is found again beside the rows.
"""

from pathlib import Path

from lakehouse.storage.location import Location
from trajectory.errors import RetryableError
from trajectory.files import make_folders, replace_file

_FOLDER = "_notes"


class Notes:
    """The notes of one lake, under ``_notes/``."""

    def __init__(self, location: Location) -> None:
        """Keep notes at ``location``."""
        self._location = location

    def put(self, name: str, data: bytes, *, lasting: bool = False) -> None:
        """Write a note; a reader sees the old one or the new one.

        In a folder, writing waits for the disk only if the note is ``lasting``; most notes are copies. A power cut
        may damage the latest note, so readers must be able to do without it.

        Raises:
            RetryableError: it could not be written.
        """
        try:
            if self._location.is_local:
                self._replace(name, data, lasting=lasting)
            else:
                self._location.put(f"{_FOLDER}/{name}", data)
        except OSError as error:
            raise RetryableError(
                f"{self._location.root}/{_FOLDER}: the note could not be written ({error}); "
                "check disk space and permissions, then run the same again"
            ) from error

    def _replace(self, name: str, data: bytes, *, lasting: bool) -> None:
        path = self._path(name)
        make_folders(path.parent, mode=0o700)
        replace_file(path, data, lasting=lasting)

    def get(self, name: str) -> bytes | None:
        """Return a note; None when there is none."""
        try:
            if self._location.is_local:
                return self._path(name).read_bytes()
            with self._location.filesystem().open_input_file(f"{_FOLDER}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        """Return the names of the notes that begin so, in order.

        Raises:
            RetryableError: they cannot be listed.
        """
        from pyarrow.fs import FileSelector, FileType

        try:
            found = self._location.files().get_file_info(
                FileSelector(_FOLDER, allow_not_found=True)
            )
        except OSError as error:
            raise RetryableError(
                f"{self._location.root}/{_FOLDER}: the notes cannot be listed ({error}); run the same again"
            ) from error
        return sorted(
            info.base_name
            for info in found
            if info.type == FileType.File and info.base_name.startswith(prefix)
        )

    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""
        self._location.remove(f"{_FOLDER}/{name}")

    def _path(self, name: str) -> Path:
        return self._location.folder / _FOLDER / name
