"""The locks of a home's governing process and of its ``headrace up``: one of each at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.app.home import Home
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


@contextmanager
def only_one_up(home: Home) -> Iterator[None]:
    """Hold the lock of ``headrace up`` of this home, by the folder of the logs that it writes.

    Of two that start at once one goes on; else each would keep half of the programs.

    Raises:
        ConfigurationError: another one holds it, or another process governs this home.
    """
    with locked(home.logs, wait=False) as lock:
        if lock is None:
            raise ConfigurationError(f"`headrace up` runs in {home.root} already")
        with only_one(home.state):
            pass
        yield
