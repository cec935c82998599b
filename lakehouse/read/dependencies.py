"""What a statement and a view stand on, so that a session binds no more than is asked for."""

import re
from collections.abc import Collection

from lakehouse.read.corrections import CORRECTED, CORRECTIONS, LATEST_CORRECTIONS
from lakehouse.read.helper_tables import DECISIONS, MESSAGES, UNPLACED_SIGNALS
from lakehouse.read.views.catalog import DEFINITIONS

HELPER_TABLES = (LATEST_CORRECTIONS, MESSAGES, DECISIONS, UNPLACED_SIGNALS)
"""What a session finds once per version of a table."""

_NAME = re.compile(r"(?:part\.)?[a-z_][a-z0-9_]*")
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
    for view in reversed(DEFINITIONS):  # each stands on what comes before it
        if view.name in found:
            found.update(_NAME.findall(view.sql), helper_sources(view.name))
    return frozenset(found | {CORRECTIONS} if found & CORRECTED else found)


def helper_sources(view: str) -> set[str]:
    """Return the tables that a view's helper tables ask for."""
    return {table for one in HELPER_TABLES if one.needed_by == view for table in one.reads}
