"""Headrace: what agents live through becomes governed learning data and better models.

``open_lake`` is the public Python interface; everything else is private and may change.
"""

from collections.abc import Mapping
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.read.read_only_lake import ReadOnlyLake

__all__ = ["open_lake"]


def open_lake(
    path: str | PathLike[str],
    *,
    at: datetime | Mapping[str, int] | None = None,
    options: Mapping[str, str] | None = None,
) -> "ReadOnlyLake":
    """Open a lake to read it: polars LazyFrames, Arrow tables and SQL; nothing is written.

    Args:
        path: a folder, or ``s3://``, ``gs://``, ``az://``.
        at: an earlier moment, or table versions as ``versions()`` returned them; None is the present.
        options: storage options of an object store, as settings ``lake.options`` has them.

    Raises:
        ConfigurationError: there is no lake, or it was not upgraded yet.
        IntegrityError: the lake was written by a newer Headrace.
    """
    from lakehouse.lake import Lake
    from lakehouse.read.read_only_lake import ReadOnlyLake

    return ReadOnlyLake(Lake.read(str(path), options=options), at)
