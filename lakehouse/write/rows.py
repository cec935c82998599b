"""Rows to Arrow: frozen dataclasses or mappings become a table with exactly a spec's schema."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import pyarrow as pa

from lakehouse.schema.tables import HIVE_NULL, TableSpec
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

_ZONE = attrgetter("tzinfo")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


_NO_PARTITION = {"", HIVE_NULL}


def to_arrow(spec: TableSpec, rows: Sequence[Any]) -> pa.Table:
    """Return ``rows`` as an Arrow table of ``spec``; the partition ``event_date`` is added.

    Args:
        spec: the table that the rows are for.
        rows: dataclasses or mappings; a column may be absent when it is nullable.

    Raises:
        ConfigurationError: a row lacks a column, has an unknown one or a value of a wrong type.
    """
    arrays = {}
    for column in spec.columns:
        try:
            array = _array(_values(spec, rows, column.name), column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            # The text of Arrow's error may quote the value: name the column only.
            raise ConfigurationError(
                f"table {spec.name}, column {column.name}: a value is not of type {column.type} "
                f"({type(error).__name__}); correct the row and write it again"
            ) from None
        if not column.nullable and array.null_count:
            raise ConfigurationError(
                f"table {spec.name}, column {column.name}: a row has no value; the column is required"
            )
        if column.name in spec.partition_by and not _NO_PARTITION.isdisjoint(
            array.unique().to_pylist()
        ):
            raise ConfigurationError(
                f"table {spec.name}, column {column.name}: '' and {HIVE_NULL!r} mean no value in the name "
                "of a partition; name it otherwise"
            )
        arrays[column.name] = array
    if spec.date_column is not None:
        arrays["event_date"] = arrays[spec.date_column].cast(pa.date32())
    return pa.Table.from_arrays([arrays[name] for name in spec.arrow.names], schema=spec.arrow)


def _values(spec: TableSpec, rows: Sequence[Any], name: str) -> list[Any]:
    if rows and isinstance(rows[0], Mapping):
        if name == spec.columns[0].name:
            _refuse_unknown(spec, rows)
        return [row.get(name) for row in rows]
    if rows and not hasattr(rows[0], name):
        return [None] * len(rows)
    return list(map(attrgetter(name), rows))


def _refuse_unknown(spec: TableSpec, rows: Sequence[Mapping[str, Any]]) -> None:
    known = {column.name for column in spec.columns} | {"event_date"}
    for row in rows:
        unknown = row.keys() - known
        if unknown:
            raise ConfigurationError(
                f"table {spec.name} has no column {min(unknown)!r}; "
                f"its columns: {', '.join(sorted(known))}"
            )


def _array(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        values = [None if value is None else sorted(value.items()) for value in values]
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return _lists_of_structs(values, kind)
    elif pa.types.is_timestamp(kind):
        if None in set(map(_ZONE, filter(None, values))):
            raise ValueError("a time without a zone")
    elif pa.types.is_string(kind):
        try:
            return pa.array(values, type=kind)
        except (pa.ArrowTypeError, UnicodeEncodeError):
            values = [_text(value) for value in values]
    return pa.array(values, type=kind)


def _lists_of_structs(values: list[Any], kind: pa.DataType) -> Any:
    """Return lists of dataclasses or mappings, built field by field."""
    items = [item for value in values if value is not None for item in value]
    ends: list[int | None] = [
        0,
        *accumulate(0 if value is None else len(value) for value in values),
    ]
    if None in values:  # a list begins nowhere where there is none
        ends = [None if v is None else e for v, e in zip(values, ends, strict=False)] + ends[-1:]
    fields = list(kind.value_type)
    columns = [
        _array([_text(_field(item, field.name)) for item in items], field.type) for field in fields
    ]
    structs = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type=kind)


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name)


def _text(value: Any) -> Any:
    """Return text that UTF-8 can hold: a lone surrogate becomes its JSON escape, the same in JSON."""
    if isinstance(value, dict | list):
        value = canonical_json(value).decode("utf-8", "surrogatepass")
    if isinstance(value, str) and not value.isascii():
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    return value
