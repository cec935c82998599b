"""Imports of Presidio and spaCy without torch, and without anything that phones out."""

import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_HEAVY = ("torch", "cupy", "transformers", "tensorflow", "mxnet", "stanza")


@contextmanager
def without_heavy_packages() -> Iterator[None]:
    """Make the heavy packages that are not loaded yet look absent, for as long as this lasts."""
    hidden = [name for name in _HEAVY if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def load(name: str) -> ModuleType:
    """Import a module of Presidio or spaCy: seconds and 800 MiB less than with torch in the way."""
    os.environ.setdefault("TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS", "")
    if name in sys.modules:
        return sys.modules[name]
    with without_heavy_packages():
        return importlib.import_module(name)


def one_thread_of_blas() -> None:
    """Have numpy multiply in one thread, where this numpy can be told.

    With more, the threads of one worker wait for each other on cores that other workers need. Two threads on two
    busy cores cost the embedded names model 3.5 times as much processor time.
    """
    import numpy

    for file in (Path(numpy.__file__).parent.parent / "numpy.libs").glob("libscipy_openblas*"):
        library = ctypes.CDLL(str(file))
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads"):
            told = getattr(library, name, None)
            if told is not None:
                told(1)
                return
