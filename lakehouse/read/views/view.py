"""A view of the lake: a name for a question."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """One view: its name, what it answers and its SQL."""

    name: str
    comment: str
    sql: str
