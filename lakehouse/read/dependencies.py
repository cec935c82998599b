"""What a statement and a view stand on: so that a session binds and finds no more than is asked for."""

import re
from collections.abc import Collection

from lakehouse.read import corrections as corrected
from lakehouse.read import helper_tables as repeated
from lakehouse.read import unplaced_signals as unplaced
from lakehouse.read.corrections import CORRECTED, CORRECTIONS
from lakehouse.read.views.catalog import VIEWS

HELD = (corrected.HELD, repeated.MESSAGES, repeated.DECISIONS, unplaced.HELD)
"""What a session finds once per version of a table."""

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_LISTING = frozenset({"show", "summarize", "information_schema", "pragma", "export"})


def named(sql: str) -> frozenset[str] | None:
    """Return the tables and views that a statement may mean; None when it lists them: all."""
    names = set(_NAME.findall(sql.lower()))
    if names & _LISTING or any(name.startswith("duckdb_") for name in names):
        return None
    return with_dependencies(names)


def with_dependencies(names: Collection[str]) -> frozenset[str]:
    """Return tables and views with all that the views among them stand on."""
    found = set(names)
    for view in reversed(VIEWS):  # each stands on what comes before it
        if view.name in found:
            found.update(_NAME.findall(view.sql), held_by(view.name))
    return frozenset(found | {CORRECTIONS} if found & CORRECTED else found)


def held_by(view: str) -> set[str]:
    """Return the tables that something held for a view asks for."""
    return {table for held in HELD if held.needed_by == view for table in held.reads}
