"""A lease between processes on one machine: many writers, or erasure alone.

Vacuum without a horizon takes every file that no commit names yet. So erasure must not run while a writer has data
files on the disk and no commit. The lock is the kernel's (``flock``), on the lake's folder itself. It ends with
its process, however that dies, and nobody can delete a file of it. An object store has no such lock; there the
operator stops the ingesters before an erasure.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse.storage.location import Location

_held = threading.local()


@contextmanager
def hold(location: Location, *, alone: bool = False) -> Iterator[None]:
    """Hold the lease of a lake; wait for those who hold it the other way.

    A thread that holds the lease already goes through.
    """
    depth: dict[str, int] = _held.__dict__.setdefault("depth", {})
    if not location.is_local or depth.get(location.root):
        yield
        return
    descriptor = os.open(location.folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        depth[location.root] = 1
        yield
    finally:
        depth.pop(location.root, None)
        os.close(descriptor)
