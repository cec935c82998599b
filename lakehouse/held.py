"""What a session finds once per version of a table and holds in memory, for views that need it."""

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
