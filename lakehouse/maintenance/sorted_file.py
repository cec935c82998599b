"""Writes sorted rows as one Parquet file, each column in the encoding that its values ask for.

Half of what a step costs beside its content is names: keyed hashes that never repeat within their
column. A dictionary of such values only adds to them, so they are written one after another without
what they begin with in common (``b2:``, ``chatcmpl-``); texts with their lengths apart; times and
counts as differences; all the rest with a dictionary. Bloom filters
stand on the names that look-ups ask for, unless the file is sorted by them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.schema.tables import TableSpec

ROW_GROUP = 16_384

_NAMES = frozenset({
    "message_id", "step_id", "parent_step_id", "exchange_id", "output_message_id", "state_hash",
    "response_id", "context_message_ids", "call_id", "signal_id", "target_id", "from_step_id",
    "to_step_id", "quarantine_id", "item_id",
})  # fmt: skip
"""Columns (of lists and structs: the innermost) of names that hardly ever repeat."""

_TEXTS = frozenset({"parts", "arguments", "content", "rationale"})
"""Columns of text that hardly ever repeats."""

_FALSE_POSITIVES = 0.01


def write_sorted(connection: Any, select: str, spec: TableSpec, target: Path) -> int:
    """Write the rows of a SELECT of a table's columns, in its order; return how many.

    Rows are streamed, one row group at a time. Every column may hold nulls: older files lack some.
    """
    rows = int(connection.sql(f"SELECT count(*) FROM ({select})").fetchall()[0][0])  # noqa: S608 (our own)
    fields = [f for f in spec.arrow if f.name not in spec.partition_by]
    schema = pa.schema([pa.field(f.name, f.type) for f in fields])
    leaves = dict(leaf for field in schema for leaf in _leaves(field.name, field.type))
    encodings = {path: code for path, kind in leaves.items() if (code := _encoding(path, kind))}
    reader = connection.sql(select).to_arrow_reader(ROW_GROUP)
    with pq.ParquetWriter(
        target,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[path for path in leaves if path not in encodings],
        column_encoding=encodings,
        write_statistics=list(spec.statistics_columns),
        bloom_filter_options=_bloom_filters(spec, min(rows, ROW_GROUP)),
        store_schema=False,
    ) as writer:
        for batch in _groups(reader, schema):
            writer.write_table(batch, row_group_size=ROW_GROUP)
    return rows


def _groups(reader: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield tables of a whole row group each, the last one smaller."""
    held: list[pa.Table] = []
    for batch in reader:
        held.append(pa.Table.from_batches([batch]).cast(schema))
        if sum(part.num_rows for part in held) >= ROW_GROUP:
            whole = pa.concat_tables(held)
            yield whole.slice(0, ROW_GROUP)
            held = [whole.slice(ROW_GROUP)]
    rest = pa.concat_tables(held) if held else schema.empty_table()
    if rest.num_rows:
        yield rest


def _leaves(path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the paths of a column's Parquet leaves with their types."""
    if pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _encoding(path: str, kind: Any) -> str | None:
    """Return a leaf's encoding; None leaves it to a dictionary."""
    name = path.removesuffix(".list.element").rpartition(".")[2]
    if pa.types.is_string(kind):
        if name in _NAMES:
            return "DELTA_BYTE_ARRAY"
        return "DELTA_LENGTH_BYTE_ARRAY" if name in _TEXTS else None
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return "DELTA_BINARY_PACKED"
    return None


def _bloom_filters(spec: TableSpec, rows: int) -> dict[str, dict[str, float]] | None:
    """Return the filters, sized for a row group: names of steps differ, those of trajectories repeat."""
    wanted = [
        name
        for name in spec.bloom_columns
        if name != spec.sort_by[0] and (name != "harness_id" or spec.name == "harnesses")
    ]
    filters = {
        name: {
            "ndv": max(1, rows if name in _NAMES else rows // 8),
            "fpp": _FALSE_POSITIVES,
        }
        for name in wanted
    }
    return filters or None
