"""Helper tables, computed once per table version and cached per session.

``views/helpers.sql`` holds their SQL and why views need them. A session makes them empty, and fills them
when a query needs a view that reads them.
"""

from dataclasses import dataclass

from lakehouse.read.sources import empty_rows
from lakehouse.read.views.catalog import HELPERS
from lakehouse.schema.tables import TABLES


@dataclass(frozen=True, slots=True)
class HelperTable:
    """What is found once per version of a table, in DuckDB's own memory."""

    source: str
    """The table of the lake that it is found in."""
    needed_by: str
    """The table or view that cannot be read without it."""
    prepare: tuple[str, ...]
    """Makes it, empty; the source is bound already, what reads it not yet."""
    find: str
    """Fills it, or tells by a row that there is something to fill."""
    if_any: tuple[str, ...] = ()
    """Done when ``find`` returns rows."""
    reads: frozenset[str] = frozenset()
    """Tables that this asks for and that the view's own text does not name."""


def _repeated(table: str, view: str) -> HelperTable:
    """Return the names that stand in a table more than once."""
    name = f"repeated.{table}"
    empty = f"CREATE OR REPLACE TABLE {name} (name UBIGINT)"
    return HelperTable(table, view, ("CREATE SCHEMA IF NOT EXISTS repeated", empty), HELPERS[name])


MESSAGES = _repeated("messages", "messages_once")
DECISIONS = _repeated("governance", "governance_latest")

_SIGNALS = TABLES["signals"]
_PLACED = [
    name for name in _SIGNALS.arrow.names if name not in ("event_date", "app_id", "environment")
]
_WIDE = (
    "tenant_id", "trajectory_id", "name", "value", "label", "source_kind", "is_gold", "target_kind",
    "observed_at", "recorded_at", "signal_id",
)  # fmt: skip

UNPLACED_SIGNALS = HelperTable(
    source="signals",
    needed_by="signals_placed",
    reads=frozenset({"signals", "steps"}),
    prepare=(
        "CREATE SCHEMA IF NOT EXISTS unplaced",
        f"CREATE OR REPLACE VIEW unplaced.placed AS {empty_rows(_SIGNALS, _PLACED)}",
        f"CREATE OR REPLACE VIEW unplaced.wide AS {empty_rows(_SIGNALS, _WIDE)}",
    ),
    find="SELECT count(*) AS n FROM signals WHERE trajectory_id IS NULL HAVING n > 0",
    if_any=tuple(sql for name, sql in HELPERS.items() if name.startswith("unplaced.")),
)
"""Signals that do not name their trajectory."""
