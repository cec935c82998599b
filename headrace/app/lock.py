"""The lock of a home's governing process: one at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trajectory.errors import ConfigurationError
from trajectory.files import locked


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of the governing process of this home, by its folder ``state``.

    Raises:
        ConfigurationError: another process holds it.
    """
    with locked(folder, wait=False) as lock:
        if lock is None:
            raise ConfigurationError(
                f"another process governs {folder.parent} already (is `headrace up` running?)"
            )
        yield
