"""A stranger's SELECT with all its rows at once; the product hands them on as they come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakehouse.lake import Lake
from lakehouse.read.snapshot import AsOf
from lakehouse.sandbox.client import open_untrusted
from lakehouse.sandbox.request import Limits, Query


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The rows of a statement, perhaps not all of them."""

    table: pa.Table
    truncated: bool
    """True when the limit of rows cut the result."""


def query_untrusted(
    lake: Lake,
    sql: str,
    *,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    tenant: str | None = None,
    as_of: AsOf | None = None,
    limits: Limits | None = None,
) -> SandboxResult:
    """Run one SELECT of a stranger over the lake and return its rows.

    Args:
        lake: the lake.
        sql: one SELECT statement.
        parameters: values for ``?`` or ``$name``.
        tenant: only this tenant's rows exist for the statement; None shows all tenants.
        as_of: an earlier moment, or table versions.
        limits: what the statement may use.

    Raises:
        QueryError: the SQL is wrong or not a single SELECT, or asks for what it may not.
        QueryTimeoutError: the deadline passed.
        RetryableError: memory ran out, or files went away while reading.
    """
    query = Query(sql, parameters, tenant, as_of)
    with open_untrusted(lake, query, limits=limits) as answer:
        table = pa.Table.from_batches(list(answer), answer.schema)
        return SandboxResult(table, answer.truncated)
