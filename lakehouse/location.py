"""Where a lake is: a folder or an object store's address, with the options to reach it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trajectory.errors import ConfigurationError

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
            ConfigurationError: the scheme is not known.
        """
        parts = urlsplit(path)
        if parts.scheme in ("", "file"):
            folder = unquote(parts.path) if parts.scheme else path
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

    def table(self, name: str) -> str:
        """Return the address of a table."""
        return f"{self.root}/{name}"
