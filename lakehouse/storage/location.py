"""Where a lake is: a folder or an object store's address, with the options to reach it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lakehouse.storage.stores import BLOCK, filesystem
from trajectory.errors import ConfigurationError
from trajectory.files import make_folders

_UNSAFE = re.compile(r"[*?\[\]^|\\]|%[0-9A-Fa-f]{2}")
"""What delta-rs or DuckDB take for something else in the name of a folder."""
_UNSAFE_IN_STORE = re.compile(f"#|{_UNSAFE.pattern}")

_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")


@dataclass(frozen=True, slots=True)
class Location:
    """The root of a lake; tables are folders in it."""

    root: str
    """Absolute folder or ``scheme://bucket/prefix``, without a slash at the end."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Storage options of delta-rs (endpoint, region, credentials); empty for folders."""

    @classmethod
    def parse(cls, path: str, options: Mapping[str, str] | None = None) -> "Location":
        """Return the location of ``path``.

        Raises:
            ConfigurationError: the scheme is not known, or no reader could find such a folder.
        """
        parts = urlsplit(path if "://" in path or path.startswith("file:") else "")
        folder = unquote(parts.path) if parts.scheme == "file" else path
        store = parts.scheme not in ("", "file")
        if found := (_UNSAFE_IN_STORE if store else _UNSAFE).search(folder):
            raise ConfigurationError(
                f"lake path {path!r}: {found[0]!r} in the name of a folder means something else "
                "to Delta or SQL readers; name the folder without it"
            )
        if not store:
            return cls(str(Path(folder).expanduser().absolute()), dict(options or {}))
        if parts.scheme not in _SCHEMES:
            raise ConfigurationError(
                f"lake path {path!r}: unknown scheme {parts.scheme!r}; "
                f"valid: a folder, {', '.join(scheme + '://' for scheme in _SCHEMES)}"
            )
        return cls(path.rstrip("/"), dict(options or {}))

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder of this machine."""
        return "://" not in self.root

    @property
    def folder(self) -> Path:
        """The folder of a local lake.

        Raises:
            ConfigurationError: the lake is in an object store.
        """
        if not self.is_local:
            raise ConfigurationError(f"{self.root} is not a folder; run this on a local lake")
        return Path(self.root)

    def files(self) -> Any:
        """Return the lake's files as an Arrow file system, wherever they lie."""
        if not self.is_local:
            return self.filesystem()
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        return SubTreeFileSystem(self.root, LocalFileSystem())

    def filesystem(self) -> Any:
        """Return the object store as an Arrow file system whose root is the lake's."""
        return filesystem(self.root, self.options)

    def put(self, relative: str, data: bytes) -> None:
        """Write one object, whole or not at all.

        In a folder a killed process may leave half a file, and so may a power cut until somebody
        has synced it (:func:`trajectory.files.sync_files`).
        """
        if self.is_local:
            self._write(self.folder / relative, data)
            return
        with self._output(relative) as stream:
            stream.write(data)

    def _write(self, path: Path, data: bytes) -> None:
        try:
            try:
                path.write_bytes(data)
            except FileNotFoundError:
                make_folders(path.parent)
                path.write_bytes(data)
        except OSError:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise

    def remove(self, relative: str) -> None:
        """Take a file away, if it is there."""
        with suppress(FileNotFoundError):
            if self.is_local:
                (self.folder / relative).unlink()
            else:
                self.filesystem().delete_file(relative)

    def put_file(self, relative: str, file: Path) -> None:
        """Copy a file of this machine into the store, block by block; it appears whole or not."""
        with self._output(relative) as stream, file.open("rb") as source:
            while block := source.read(BLOCK):
                stream.write(block)

    @contextmanager
    def _output(self, relative: str) -> Iterator[Any]:
        if self.root.startswith("s3"):
            with self.filesystem().open_output_stream(relative) as stream:
                yield stream
            return
        from deltalake.fs import DeltaStorageHandler

        # Past Arrow's wrapper: it hands on buffers, and the handler's stream takes bytes only.
        handler = DeltaStorageHandler(self.root, dict(self.options) or None)._handler
        stream = handler.open_output_stream(relative, None)
        yield stream
        stream.close()

    def relative(self, address: str) -> str:
        """Return the address of a file of the lake relative to its root."""
        return address.removeprefix(self.root).lstrip("/")

    def table(self, name: str) -> str:
        """Return the address of a table."""
        return f"{self.root}/{name}"
