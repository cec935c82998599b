"""Which statements of strangers are let through: one SELECT that names tables, not the machine.

This is the outer of two walls. It takes only queries over the lake's tables. It refuses, with a text that helps,
other statements and functions that read files, settings, secrets or logs, or run SQL from a string. The inner wall
(a locked DuckDB in a confined process) does not rely on it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from lakehouse.errors import QueryError
from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema.tables import TABLES

KNOWN = frozenset(TABLES) | {view.name for view in VIEWS}
"""The tables and views of a lake."""

LONGEST = 1 << 20
"""Characters of a statement at most; parsing more costs more than any query is worth."""

TABLE_FUNCTIONS = frozenset({
    "range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree",
    "duckdb_tables", "duckdb_views", "duckdb_columns", "duckdb_schemas", "duckdb_databases",
    "duckdb_functions", "duckdb_types", "duckdb_keywords", "duckdb_constraints", "duckdb_indexes",
    "pg_timezone_names",
})  # fmt: skip
"""Functions that may stand after FROM."""

REFUSED_FUNCTIONS = frozenset({
    "current_setting", "getenv", "sleep_ms", "pg_sleep", "write_log", "current_query", "setseed",
    "parse_duckdb_log_message", "nextval", "currval", "setval", "getvariable", "stats",
    "current_query_id", "current_connection_id", "current_transaction_id", "txid_current",
    "json_serialize_plan",
})  # fmt: skip
"""Scalar functions that tell of the process, wait, leave something behind, or plan SQL from a string."""

_SYSTEM_PREFIXES = ("duckdb_", "pragma_", "pg_settings")


@dataclass(frozen=True, slots=True)
class Statement:
    """What a statement names; enough for an audit, without a word of its values."""

    tables: tuple[str, ...]
    """Names after FROM and JOIN, less those of its own (WITH) that name nothing in the lake."""
    parameters: tuple[str, ...]
    """Names of the parameters; ``1``, ``2`` … for question marks."""
    asks_what_there_is: bool
    """True for SHOW, DESCRIBE and the tables about tables."""


def check(connection: Any, sql: str) -> Statement:
    """Let a single SELECT (SHOW, DESCRIBE and VALUES count as such) through.

    Args:
        connection: any DuckDB; nothing of the statement runs on it.
        sql: the text.

    Raises:
        QueryError: the text is anything else, or asks for what strangers may not.
    """
    if len(sql) > LONGEST:
        raise QueryError(
            f"the statement has {len(sql):,} characters, {LONGEST:,} are allowed; "
            "give long lists as parameters"
        )
    try:
        statements = connection.extract_statements(sql)
        is_query = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    except ValueError:  # a kind of statement that the Python package has no name for
        is_query = False
    if not is_query:
        raise QueryError("one SELECT (or SHOW, DESCRIBE) statement is allowed here; give just that")
    named, defined, curious = set[str](), set[str](), False
    for node in _nodes(_tree(connection, sql)):
        _refuse_functions(node)
        if node.get("type") == "BASE_TABLE":
            named.add(_table(node))
        curious |= node.get("type") == "SHOW_REF" or _function(node).startswith("duckdb_")
        if "cte_map" in node:
            defined.update(str(entry["key"]).lower() for entry in node["cte_map"]["map"])
    parameters = sorted(statements[0].named_parameters, key=lambda name: (len(name), name))
    # `WITH steps AS (SELECT * FROM steps …)` reads the lake's steps under the same name.
    tables = named - (defined - KNOWN)
    return Statement(tuple(sorted(tables)), tuple(parameters), curious)


def _tree(connection: Any, sql: str) -> Any:
    try:
        text = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
        tree = json.loads(text)
    except (duckdb.Error, RecursionError) as error:
        raise QueryError(f"the statement is too deep to be read: {type(error).__name__}") from error
    if tree.get("error"):
        raise QueryError(f"this form of SELECT is not allowed here: {tree.get('error_message')}")
    return tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every node of a syntax tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
            yield node


def _refuse_functions(node: dict[str, Any]) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        name = _function(node)
        if name not in TABLE_FUNCTIONS:
            raise QueryError(
                f"the table function {name!r} is not allowed here; ask the tables and views that "
                "SHOW TABLES lists"
            )
    elif str(node.get("function_name", "")).lower() in REFUSED_FUNCTIONS:
        raise QueryError(f"the function {node['function_name']!r} is not allowed here")


def _function(node: dict[str, Any]) -> str:
    """Return the name of a table function, empty when the node is none."""
    if node.get("type") != "TABLE_FUNCTION":
        return ""
    return str(node.get("function", {}).get("function_name", "")).lower()


def _table(node: dict[str, Any]) -> str:
    name = str(node.get("table_name", "")).lower()
    if name.startswith(_SYSTEM_PREFIXES) and name not in TABLE_FUNCTIONS:
        raise QueryError(f"{name!r} is not allowed here; SHOW TABLES lists what there is")
    return name
