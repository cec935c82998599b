"""Writes the rows of a query in each format, as a stream of any length."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

from headrace.app.output import json_text
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "json", "jsonl", "csv", "parquet", "arrow")
BINARY = frozenset({"parquet", "arrow"})
_SUFFIXES = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip


def chosen_format(name: str | None, suffix: str | None) -> str:
    """Return the format: the one named, else that of the file's suffix, else a table.

    Raises:
        ConfigurationError: there is no such format, or a table is asked for in a file.
    """
    if name is None:
        name = "table" if suffix is None else _SUFFIXES.get(suffix.lower(), "")
    if name not in FORMATS:
        raise ConfigurationError(
            f"unknown format {name or suffix!r}. Valid: --format {', '.join(FORMATS)}."
        )
    if name == "table" and suffix is not None:
        raise ConfigurationError("a table is for the screen; give --format json, jsonl, csv, …")
    return name


def write(
    schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", name: str, target: BinaryIO
) -> int:
    """Write rows in a format other than ``table``; return how many there were."""
    rows = 0

    def counted() -> "Iterable[pa.RecordBatch]":
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    _WRITERS[name](schema, counted(), target)
    return rows


def _json(_schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", target: BinaryIO) -> None:
    lead = b"["
    for batch in batches:
        for row in batch.to_pylist():
            target.write(lead + b"\n  " + _line(row))
            lead = b","
    target.write(b"[]\n" if lead == b"[" else b"\n]\n")


def _jsonl(_schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", target: BinaryIO) -> None:
    for batch in batches:
        target.writelines(_line(row) + b"\n" for row in batch.to_pylist())


def _line(row: Any) -> bytes:
    return json_text(row).encode()


def _csv(schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", target: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    nested = [index for index, field in enumerate(schema) if pa.types.is_nested(field.type)]
    flat = schema
    for index in nested:
        flat = flat.set(index, pa.field(schema[index].name, pa.string()))
    with csv.CSVWriter(target, flat) as writer:
        for batch in batches:
            columns = [
                pa.array([None if v is None else _line(v).decode() for v in column.to_pylist()])
                if index in nested
                else column
                for index, column in enumerate(batch.columns)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))


def _parquet(schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", target: BinaryIO) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _arrow(schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", target: BinaryIO) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(target, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


_WRITERS: dict[str, Callable[["pa.Schema", "Iterable[pa.RecordBatch]", BinaryIO], None]] = {
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}
