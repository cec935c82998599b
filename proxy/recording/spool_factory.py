"""A writer for the spool that the settings describe, and how much room that spool has."""

from proxy.config import SpoolConfig
from proxy.spool import SpoolWriter, layout
from proxy.spool.keys import KeyRing
from proxy.spool.states import Bounds
from trajectory.errors import ConfigurationError


def open_spool(config: SpoolConfig, key: bytes) -> SpoolWriter:
    """Return a new writer; ``key`` seals what it writes unless there is a file with newer ones.

    Raises:
        ConfigurationError: the folder cannot be made or written, or the file of keys holds something else.
    """
    newest = KeyRing(key, file=config.key_file).newest
    try:
        return SpoolWriter(
            config.directory,
            newest,
            segment_bytes=config.segment_bytes,
            segment_seconds=config.segment_seconds,
            bounds=_bounds(config),
            sync_seconds=config.sync_seconds,
            slow_seconds=config.slow_seconds,
        )
    except OSError as error:
        raise ConfigurationError(
            f"gateway.spool.directory: {config.directory} cannot be used: {error.strerror}"
        ) from None


def spool_room(config: SpoolConfig) -> int:
    """Return how many bytes may come until what can be spared is left out."""
    return max(0, _bounds(config).shed_bytes - layout.size(config.directory).bytes)


def _bounds(config: SpoolConfig) -> Bounds:
    return Bounds(
        max_bytes=config.max_bytes,
        max_files=config.max_files,
        alarm_at=config.alarm_at,
        shed_at=config.shed_at,
    )
