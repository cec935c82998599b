"""Python's garbage collector, held off where it only costs: work that makes many objects and no cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold the collector off: all that is remembered would be walked over time and again.

    Blocks may stand in each other; the outermost one lets it go on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


__all__ = ["uncollected"]
