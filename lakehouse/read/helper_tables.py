"""Helper tables, computed once per table version and cached per session.

A message is looked for before it is stored, but two processes may look at the same moment, and then
both store it. A step may be decided about again. Such names are few. They are found once for each
version of the table, by a hash, and held in memory: views read all other rows as they are, with
every filter pushed down to the files, instead of sorting a whole table by name.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """One such finding, in a table of DuckDB's own memory."""

    source: str
    """The table of the lake that it is found in."""
    needed_by: str
    """The table or view that cannot be read without it."""
    prepare: tuple[str, ...]
    """Makes room for it, empty; the source is bound already, what reads it not yet."""
    find: str
    """Finds it."""
    if_any: tuple[str, ...] = ()
    """Done when ``find`` returns rows."""
    reads: frozenset[str] = frozenset()
    """Tables that this asks for and that the view's own text does not name."""


def _repeated(table: str, view: str, names: str) -> tuple[Held, str]:
    """Return what is held of the names that stand in a table more than once, and a test for them."""
    there = f"repeated.{table}"
    name = f"hash(tenant_id, {names})"
    held = Held(
        source=table,
        needed_by=view,
        prepare=(
            "CREATE SCHEMA IF NOT EXISTS repeated",
            f"CREATE OR REPLACE TABLE {there} (name UBIGINT)",
        ),
        find=f"INSERT INTO {there} SELECT {name} FROM {table} GROUP BY ALL "  # noqa: S608
        "HAVING count(*) > 1",
    )
    return held, f"{name} IN (FROM {there})"


MESSAGES, _STORED_AGAIN = _repeated("messages", "messages_once", "message_id")
DECISIONS, _DECIDED_AGAIN = _repeated("governance", "governance_latest", "step_id")

_COLUMNS = ("role", "parts", "characters", "first_seen_at", "name", "event_date")
_ONE_OF_EACH = ", ".join(f"arg_min({name}, first_seen_at) AS {name}" for name in _COLUMNS)

MESSAGES_ONCE = f"""
SELECT tenant_id, message_id, {", ".join(_COLUMNS)} FROM messages WHERE NOT {_STORED_AGAIN}
UNION ALL
SELECT tenant_id, message_id, {_ONE_OF_EACH}
FROM messages WHERE {_STORED_AGAIN} GROUP BY tenant_id, message_id
"""  # noqa: S608

GOVERNANCE_LATEST = f"""
SELECT * FROM governance WHERE NOT {_DECIDED_AGAIN}
UNION ALL
SELECT * FROM governance WHERE {_DECIDED_AGAIN}
QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1
"""  # noqa: S608
