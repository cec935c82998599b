"""Every format holds what was asked for, and reads back."""

import io
import json
from datetime import UTC, datetime

import polars
import pyarrow as pa
import pytest

from headrace.app.row_formats import chosen_format, write
from trajectory.errors import ConfigurationError

ROWS = pa.table(
    {
        "name": ['ä, "b"', None, "c"],
        "at": pa.array([datetime(2026, 11, 20, 12, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "calls": [[{"x": 1}], [], None],
        "share": [0.5, None, 1.0],
    }
)


def written(name: str, table: pa.Table = ROWS) -> io.BytesIO:
    target = io.BytesIO()
    assert write(table.schema, table.to_batches(max_chunksize=2), name, target) == table.num_rows
    return io.BytesIO(target.getvalue())


def test_binary_formats_keep_types() -> None:
    expected = polars.from_arrow(ROWS)
    assert isinstance(expected, polars.DataFrame)
    assert polars.read_parquet(written("parquet")).equals(expected)
    assert polars.read_ipc(written("arrow")).equals(expected)
    assert polars.read_parquet(written("parquet", ROWS.slice(0, 0))).columns == ROWS.column_names


def test_texts_are_what_programs_read() -> None:
    rows = json.loads(written("json").read())
    assert rows[0] == {
        "name": 'ä, "b"',
        "at": "2026-11-20T12:00:00+00:00",
        "calls": [{"x": 1}],
        "share": 0.5,
    }
    assert [json.loads(line) for line in written("jsonl")] == rows
    assert json.loads(written("json", ROWS.slice(0, 0)).read()) == []
    frame = polars.read_csv(written("csv"))
    assert frame["calls"].to_list() == ['[{"x": 1}]', "[]", None]
    assert frame["name"].to_list() == ['ä, "b"', None, "c"]


def test_the_suffix_says_the_format_and_the_flag_wins() -> None:
    assert chosen_format(None, None) == "table"
    assert chosen_format(None, ".NDJSON") == "jsonl"
    assert chosen_format("csv", ".txt") == "csv"
    for name, suffix in ((None, ".xlsx"), ("xml", None), ("table", ".txt")):
        with pytest.raises(ConfigurationError):
            chosen_format(name, suffix)
