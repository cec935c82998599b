"""Garbage: looked for often and little by little, so that no stream waits for it.

With Python's own settings a collection goes through everything that was made since the process
started: the event loop stands still for some fifty milliseconds, and so does every stream. What was
there at the start is left out here, and what comes later is looked through in small portions.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (500, 5, 20)
"""New objects before the young are looked through, and how often before the older ones are."""


@contextmanager
def short_pauses(*, enabled: bool) -> Iterator[None]:
    """Collect in short pauses; what exists now is not looked through again before the end."""
    if not enabled:
        yield
        return
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
