"""What the server says of itself (SqlInfo): read-only, its dialect, what it does not do."""

from typing import Any

import pyarrow as pa

from lakehouse.door.wire import Message

_NAME, _VERSION, _ARROW_VERSION, _READ_ONLY = 0, 1, 2, 3
_SQL, _SUBSTRAIT, _TRANSACTION, _CANCEL, _INGEST = 4, 5, 8, 9, 10
_QUERY_TIMEOUT, _TRANSACTION_TIMEOUT = 100, 101
_DDL_CATALOG, _DDL_SCHEMA, _DDL_TABLE = 500, 501, 502
_IDENTIFIER_CASE, _QUOTE, _QUOTED_CASE = 503, 504, 505
_ALL_SELECTABLE, _NULL_ORDERING, _KEYWORDS = 506, 507, 508
_ESCAPE = 513
_CASE_INSENSITIVE, _NULLS_AT_END = 1, 3

_KINDS: tuple[tuple[str, Any], ...] = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.string())),
    ("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
)
_TEXT, _FLAG, _BIG, _BITS, _TEXTS = range(5)


def facts(*, version: str, timeout_ms: int) -> dict[int, tuple[int, Any]]:
    """Return each fact's number with its kind and value."""
    return {
        _NAME: (_TEXT, "Headrace"),
        _VERSION: (_TEXT, version),
        _ARROW_VERSION: (_TEXT, pa.__version__),
        _READ_ONLY: (_FLAG, True),
        _SQL: (_FLAG, True),
        _SUBSTRAIT: (_FLAG, False),
        _TRANSACTION: (_BITS, 0),
        _CANCEL: (_FLAG, False),
        _INGEST: (_FLAG, False),
        _QUERY_TIMEOUT: (_BITS, timeout_ms),
        _TRANSACTION_TIMEOUT: (_BITS, 0),
        _DDL_CATALOG: (_FLAG, False),
        _DDL_SCHEMA: (_FLAG, False),
        _DDL_TABLE: (_FLAG, False),
        _IDENTIFIER_CASE: (_BIG, _CASE_INSENSITIVE),
        _QUOTE: (_TEXT, '"'),
        _QUOTED_CASE: (_BIG, _CASE_INSENSITIVE),
        _ALL_SELECTABLE: (_FLAG, True),
        _NULL_ORDERING: (_BIG, _NULLS_AT_END),
        _KEYWORDS: (_TEXTS, ["ANTI", "ASOF", "PIVOT", "QUALIFY", "SEMI", "SUMMARIZE", "UNPIVOT"]),
        _ESCAPE: (_TEXT, "\\"),
    }


def sql_info(message: Message, known: dict[int, tuple[int, Any]]) -> pa.Table:
    """Answer GetSqlInfo: the facts that were asked for, all when none was named."""
    wanted = message.numbers(1) or tuple(known)
    found = [(number, *known[number]) for number in wanted if number in known]
    values: list[list[Any]] = [[] for _ in _KINDS]
    offsets = []
    for _number, kind, value in found:
        offsets.append(len(values[kind]))
        values[kind].append(value)
    union = pa.UnionArray.from_dense(
        pa.array([kind for _, kind, _ in found], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(held, kind) for held, (_, kind) in zip(values, _KINDS, strict=True)],
        [name for name, _ in _KINDS],
    )
    schema = pa.schema(
        [
            pa.field("info_name", pa.uint32(), nullable=False),
            pa.field("value", union.type, nullable=False),
        ]
    )
    numbers = pa.array([number for number, _, _ in found], pa.uint32())
    return pa.Table.from_arrays([numbers, union], schema=schema)
