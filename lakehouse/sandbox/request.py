"""A query of a stranger, and what it may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse.read.snapshot import AsOf


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may use."""

    seconds: float = 30.0
    """From the start of the query to the last row that was taken."""
    memory_mib: int = 1024
    rows: int = 100_000
    result_mib: int = 256
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Query:
    """One statement and what it may see."""

    sql: str
    parameters: Sequence[Any] | Mapping[str, Any] | None = None
    """Values for ``?`` or ``$name``."""
    tenant: str | None = None
    """Only this tenant's rows exist for the statement; None shows all tenants."""
    as_of: AsOf | None = None
    """An earlier moment, or table versions."""
    hidden: frozenset[str] = frozenset()
    """Tables that do not exist for the statement, and the views over them."""
    describe: bool = False
    """Only the schema of the result is asked for; parameters are taken as null."""
