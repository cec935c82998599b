"""The lock of a home's governing process: one at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trajectory.errors import ConfigurationError


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of the governing process of this home.

    Raises:
        ConfigurationError: another process holds it.
    """
    descriptor = os.open(folder / "govern.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"another process governs {folder.parent} already (is `headrace up` running?)"
            ) from None
        yield
    finally:
        os.close(descriptor)
