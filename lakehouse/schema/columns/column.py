"""Columns: what one is, their types, and those that many tables share."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
INT = pa.int64()
REAL = pa.float64()
FLAG = pa.bool_()
TEXTS = pa.list_(pa.string())
NUMBERS = pa.list_(pa.int64())
COUNTS = pa.map_(pa.string(), pa.int64())


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column of a table."""

    name: str
    type: Any
    """An Arrow data type."""
    comment: str
    nullable: bool = False
    content: bool = False
    """True for text that people or models wrote and for pseudonyms: kept out of all statistics."""


def need(name: str, kind: Any, comment: str) -> ColumnSpec:
    return ColumnSpec(name, kind, comment)


def may(name: str, kind: Any, comment: str) -> ColumnSpec:
    return ColumnSpec(name, kind, comment, nullable=True)


def content(name: str, kind: Any, comment: str, *, nullable: bool = False) -> ColumnSpec:
    return ColumnSpec(name, kind, comment, nullable=nullable, content=True)


TENANT = need("tenant_id", TEXT, "Whose data this is; partition")
TRAJECTORY = need("trajectory_id", TEXT, "The trajectory")
STEP = need("step_id", TEXT, "The step")
