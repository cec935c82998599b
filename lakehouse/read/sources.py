"""What stands after FROM: the files of a table, on this machine or in an object store, or no rows at all."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakehouse.schema.tables import TableSpec
from lakehouse.storage.location import Location


def literal(text: str) -> str:
    """Return ``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def parquet_source(spec: TableSpec, files: Sequence[str], *, evolved: bool = False) -> str:
    """Return what stands after FROM to read local files of a table; the names are the schema's own."""
    listed = ", ".join(literal(file) for file in files)
    kinds = {"tenant_id": "VARCHAR", "event_date": "DATE"}
    hive = ", ".join(f"{name}: {kinds[name]}" for name in spec.partition_by)
    options = f", hive_partitioning = true, hive_types = {{{hive}}}" if hive else ""
    if not evolved:
        return f"read_parquet([{listed}]{options})"
    # Older files lack columns: the empty branch names them all, and the union fills them with null.
    return (
        f"(SELECT * FROM read_parquet([{listed}]{options}, union_by_name = true) "  # noqa: S608
        f"UNION ALL BY NAME {empty_rows(spec)})"
    )


def dataset(spec: TableSpec, files: Sequence[str], location: Location) -> Any:
    """Return files of an object store as an Arrow dataset, which DuckDB reads with its filters."""
    from pyarrow import dataset as arrow_dataset

    fields = [spec.arrow.field(name) for name in spec.partition_by]
    return arrow_dataset.dataset(
        [location.relative(file) for file in files],
        schema=spec.arrow,
        format="parquet",
        filesystem=location.filesystem(),
        partitioning=arrow_dataset.partitioning(pa.schema(fields), flavor="hive")
        if fields
        else None,
    )


def empty_rows(spec: TableSpec, only: Sequence[str] | None = None) -> str:
    """Return a SELECT of a table's columns, or ``only`` some, with their types and no row."""
    names = spec.arrow.names if only is None else only
    typed = ", ".join(
        f'NULL::{_duckdb_type(spec.arrow.field(name).type)} AS "{name}"' for name in names
    )
    return f"SELECT {typed} WHERE false"


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"MAP({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        inner = ", ".join(f'"{f.name}" {_duckdb_type(f.type)}' for f in kind)
        return f"STRUCT({inner})"
    names = {
        "string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE",
        "bool": "BOOLEAN", "date32[day]": "DATE", "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
    }  # fmt: skip
    return names[str(kind)]


def stock_types(schema: pa.Schema) -> pa.Schema:
    """Return a schema with string views as plain strings, which every Arrow consumer reads."""
    return pa.schema([pa.field(f.name, _stock(f.type), f.nullable) for f in schema])


def _stock(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    return kind
