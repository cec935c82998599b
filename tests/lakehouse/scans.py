"""Scans of files for values, as the tests ask for them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from lakehouse.maintenance.scan import Occurrence, scan


def scan_values(paths: Iterable[Path | str], values: Sequence[str]) -> list[Occurrence]:
    """Return where any of ``values`` lies in the files and folders ``paths``."""
    return list(scan(paths, values).hits)
