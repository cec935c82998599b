"""The views of the lake, read from the ``.sql`` files beside this module.

Each is plain SQL over the tables and over what stands before it, and DuckDB's own shell can run the
files in this order. Views hold no state: a late reward, a withdrawn consent or an erasure is visible to
the next query. What several views share is a macro, or a view in the schema ``part``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = (
    "signals", "tools", "trajectories", "permissions", "records", "rewards", "statistics", "scorecards",
    "evolution",
)  # fmt: skip
"""After ``helpers``, which reads tables as a whole; each file stands on those before it."""

_FOLDER = Path(__file__).parent
_DEFINITION = re.compile(
    r"^CREATE OR REPLACE (?:VIEW|MACRO|TABLE) (?P<name>[a-z_.]+)\b.*?(?=;$)"
    r"(?:;\nCOMMENT ON VIEW (?P=name) IS '(?P<comment>.*?)'(?=;$))?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view, or a macro or part of views, which has no comment and is listed nowhere."""

    name: str
    comment: str
    sql: str
    """The statement that defines it."""


def path_of(file: str) -> Path:
    """Return where a file of views lies."""
    return _FOLDER / f"{file}.sql"


def _read(file: str) -> Iterator[ViewDefinition]:
    for found in _DEFINITION.finditer(path_of(file).read_text(encoding="utf-8")):
        comment = (found["comment"] or "").replace("''", "'")
        yield ViewDefinition(found["name"], comment, found[0].partition(";\nCOMMENT ON VIEW ")[0])


DEFINITIONS = tuple(view for file in FILES for view in _read(file))
"""Each stands on tables, on helpers and on definitions before it."""

VIEWS = tuple(view for view in DEFINITIONS if view.comment)
"""What readers of the lake find."""

HELPERS = {view.name: view.sql for view in _read("helpers")}
"""Statements of tables and views that hold what was found in a whole table, by name."""


def part_of(name: str, begin: str, end: str) -> str:
    """Return the lines of a view between two comments, for who needs them with other tables."""
    text = next(view.sql for view in DEFINITIONS if view.name == name)
    return text.partition(f"-- {begin}\n")[2].partition(f"-- {end}\n")[0]
