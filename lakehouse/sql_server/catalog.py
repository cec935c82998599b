"""What there is to ask: the tables and views that exist for a reader, with their columns."""

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from lakehouse.errors import QueryError
from lakehouse.read.session import Session, Snapshot
from lakehouse.read.sources import stock_types
from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema.tables import TABLES

CATALOG = "headrace"
SCHEMA = "main"
TABLE, VIEW = "TABLE", "VIEW"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table or view."""

    name: str
    kind: str
    """``TABLE`` or ``VIEW``"""
    comment: str
    schema: pa.Schema
    """Columns as an answer has them; comments as field metadata where there are any."""


@lru_cache(maxsize=8)
def catalog_of(*, one_tenant: bool, hidden: frozenset[str]) -> tuple[CatalogTable, ...]:
    """Return what exists, by name.

    Args:
        one_tenant: True for a reader of one tenant, who sees no table without tenants.
        hidden: tables that do not exist, nor the views over them.
    """
    specs = [
        spec
        for spec in TABLES.values()
        if spec.name not in hidden and not (one_tenant and "tenant_id" not in spec.partition_by)
    ]
    session = Session(Snapshot({spec.name: () for spec in specs}))
    found = [CatalogTable(spec.name, TABLE, spec.comment, spec.arrow) for spec in specs]
    for view in VIEWS:
        try:
            rows = session.query(f"SELECT * FROM {view.name} LIMIT 0")  # noqa: S608 - our own names
        except QueryError:
            continue
        found.append(CatalogTable(view.name, VIEW, view.comment, stock_types(rows.schema)))
    session.close()
    return tuple(sorted(found, key=lambda table: table.name))
