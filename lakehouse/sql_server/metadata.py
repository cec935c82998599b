"""The answers to what BI tools ask before they ask for rows: catalogs, schemas, tables, server.

The protocol fixes the shapes of these answers (the messages: ``flight_sql.proto``).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message

from lakehouse.sql_server import flight_sql_pb2 as messages
from lakehouse.sql_server.catalog import CATALOG, SCHEMA, TABLE, VIEW, CatalogTable

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
_STRING, _FLAG, _BIG, _BITS, _TEXTS = range(5)


def facts(*, version: str, timeout_ms: int) -> dict[int, tuple[int, Any]]:
    """Return each fact's number with its kind and value."""
    return {
        _NAME: (_STRING, "Headrace"),
        _VERSION: (_STRING, version),
        _ARROW_VERSION: (_STRING, pa.__version__),
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
        _QUOTE: (_STRING, '"'),
        _QUOTED_CASE: (_BIG, _CASE_INSENSITIVE),
        _ALL_SELECTABLE: (_FLAG, True),
        _NULL_ORDERING: (_BIG, _NULLS_AT_END),
        _KEYWORDS: (_TEXTS, ["ANTI", "ASOF", "PIVOT", "QUALIFY", "SEMI", "SUMMARIZE", "UNPIVOT"]),
        _ESCAPE: (_STRING, "\\"),
    }


def sql_info(message: messages.CommandGetSqlInfo, known: dict[int, tuple[int, Any]]) -> pa.Table:
    """Answer GetSqlInfo: the facts that were asked for, all when none was named."""
    wanted = tuple(message.info) or tuple(known)
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


_TEXT, _NUMBER = pa.string(), pa.int32()


def _needed(name: str, kind: Any = _TEXT) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_CATALOGS = pa.schema([_needed("catalog_name")])
_SCHEMAS = pa.schema([("catalog_name", _TEXT), _needed("db_schema_name")])
_TYPES = pa.schema([_needed("table_type")])
_TABLES = pa.schema(
    [
        ("catalog_name", _TEXT),
        ("db_schema_name", _TEXT),
        _needed("table_name"),
        _needed("table_type"),
    ]
)
_TABLES_WITH_SCHEMA = _TABLES.append(_needed("table_schema", pa.binary()))
_PRIMARY_KEYS = pa.schema(
    [
        ("catalog_name", _TEXT), ("db_schema_name", _TEXT), _needed("table_name"),
        _needed("column_name"), ("key_name", _TEXT), _needed("key_sequence", _NUMBER),
    ]
)  # fmt: skip
_FOREIGN_KEYS = pa.schema(
    [
        ("pk_catalog_name", _TEXT), ("pk_db_schema_name", _TEXT), _needed("pk_table_name"),
        _needed("pk_column_name"), ("fk_catalog_name", _TEXT), ("fk_db_schema_name", _TEXT),
        _needed("fk_table_name"), _needed("fk_column_name"), _needed("key_sequence", _NUMBER),
        ("fk_key_name", _TEXT), ("pk_key_name", _TEXT), _needed("update_rule", pa.uint8()),
        _needed("delete_rule", pa.uint8()),
    ]
)  # fmt: skip
_XDBC_TYPES = pa.schema(
    [
        _needed("type_name"), _needed("data_type", _NUMBER), ("column_size", _NUMBER),
        ("literal_prefix", _TEXT), ("literal_suffix", _TEXT),
        ("create_params", pa.list_(_needed("item"))), _needed("nullable", _NUMBER),
        _needed("case_sensitive", pa.bool_()), _needed("searchable", _NUMBER),
        ("unsigned_attribute", pa.bool_()), _needed("fixed_prec_scale", pa.bool_()),
        ("auto_increment", pa.bool_()), ("local_type_name", _TEXT), ("minimum_scale", _NUMBER),
        ("maximum_scale", _NUMBER), _needed("sql_data_type", _NUMBER),
        ("datetime_subcode", _NUMBER), ("num_prec_radix", _NUMBER),
        ("interval_precision", _NUMBER),
    ]
)  # fmt: skip

type Answerer = Callable[[Any, Sequence[CatalogTable]], pa.Table]


def catalogs(_message: Message, _tables: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetCatalogs."""
    return pa.table([[CATALOG]], schema=_CATALOGS)


def schemas(message: messages.CommandGetDbSchemas, _tables: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetDbSchemas."""
    fits = _fits(message)
    rows = [{"catalog_name": CATALOG, "db_schema_name": SCHEMA}] if fits else []
    return pa.Table.from_pylist(rows, schema=_SCHEMAS)


def table_types(_message: Message, _tables: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetTableTypes."""
    return pa.table([[TABLE, VIEW]], schema=_TYPES)


def tables(message: messages.CommandGetTables, known: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetTables, with the columns where they are asked for."""
    kinds, with_schema = message.table_types, message.include_schema
    name_pattern = _given(message, "table_name_filter_pattern")
    fits = _fits(message)
    rows = [
        {
            "catalog_name": CATALOG,
            "db_schema_name": SCHEMA,
            "table_name": one.name,
            "table_type": one.kind,
            **({"table_schema": _columns(one).serialize().to_pybytes()} if with_schema else {}),
        }
        for one in known
        if fits and like(name_pattern, one.name) and (not kinds or one.kind in kinds)
    ]
    return pa.Table.from_pylist(rows, schema=_TABLES_WITH_SCHEMA if with_schema else _TABLES)


def no_keys(_message: Message, _tables: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetPrimaryKeys: Delta tables have none."""
    return _PRIMARY_KEYS.empty_table()


def no_foreign_keys(_message: Message, _tables: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetImportedKeys, GetExportedKeys and GetCrossReference: there are none."""
    return _FOREIGN_KEYS.empty_table()


def no_types(_message: Message, _tables: Sequence[CatalogTable]) -> pa.Table:
    """Answer GetXdbcTypeInfo: types are Arrow's, no table of them is kept."""
    return _XDBC_TYPES.empty_table()


ANSWERS: dict[type[Message], Answerer] = {
    messages.CommandGetCatalogs: catalogs,
    messages.CommandGetDbSchemas: schemas,
    messages.CommandGetTables: tables,
    messages.CommandGetTableTypes: table_types,
    messages.CommandGetPrimaryKeys: no_keys,
    messages.CommandGetExportedKeys: no_foreign_keys,
    messages.CommandGetImportedKeys: no_foreign_keys,
    messages.CommandGetCrossReference: no_foreign_keys,
    messages.CommandGetXdbcTypeInfo: no_types,
}


def like(pattern: str | None, name: str) -> bool:
    """Tell whether ``name`` fits a pattern of SQL's LIKE; no pattern fits all."""
    if pattern is None:
        return True
    parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), name) is not None


def _fits(message: messages.CommandGetDbSchemas | messages.CommandGetTables) -> bool:
    """Tell whether the one schema that there is lies in the catalog and schemas asked for."""
    fits_schema = like(_given(message, "db_schema_filter_pattern"), SCHEMA)
    return _given(message, "catalog") in (None, CATALOG) and fits_schema


def _given(message: Message, field: str) -> str | None:
    """Return an optional field; None when it was not sent."""
    return getattr(message, field) if message.HasField(field) else None


def _columns(table: CatalogTable) -> pa.Schema:
    fields = []
    for field in table.schema:
        said = {
            "ARROW:FLIGHT:SQL:CATALOG_NAME": CATALOG,
            "ARROW:FLIGHT:SQL:DB_SCHEMA_NAME": SCHEMA,
            "ARROW:FLIGHT:SQL:TABLE_NAME": table.name,
            "ARROW:FLIGHT:SQL:TYPE_NAME": str(field.type),
            "ARROW:FLIGHT:SQL:IS_READ_ONLY": "1",
        }
        comment = (field.metadata or {}).get(b"comment")
        if comment:
            said["ARROW:FLIGHT:SQL:REMARKS"] = comment.decode()
        fields.append(field.with_metadata(said))
    return pa.schema(fields)
