"""Tables in text: CSV and Markdown. The head of a column is the key of its cells."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from governance.detect.finding import Detector, Finding, Unit
from governance.detect.keys import tells_anything
from governance.detect.names.rules import may_name_a_person, names_a_person
from governance.detect.normalized_text import view_of
from governance.detect.phones import TELLS_PHONE

_MARKS = "|\t;,"
_HEAD = re.compile(r"[^\W\d][\w .'\-/()]{0,40}\Z")
_RULE = re.compile(r"[\s|:\-]+\Z")
_MOST_CELLS = 5000
_LEAST_MARKS = 1

type _Cell = tuple[int, str]
"""Where a cell begins, and what is in it."""


def _cells(line: str, at: int, mark: str) -> list[_Cell]:
    """Return the cells of a line without the space and quotation marks around them."""
    out: list[_Cell] = []
    for cell in line.split(mark):
        value = cell.strip(" \t\r\"'*`")
        out.append((at + cell.find(value) if value else at, value))
        at += len(cell) + 1
    return out


def _heads(line: str, following: str) -> tuple[str, list[str]] | None:
    """Return what stands between the cells of a head, and the keys that it gives."""
    for mark in _MARKS:
        if mark in line and line.count(mark) == following.count(mark) >= _LEAST_MARKS:
            keys = [value for _, value in _cells(line, 0, mark)]
            plain = [key.lower() for key in keys]
            if "first" in plain and "last" in plain:
                keys = [f"{key}_name" if key.lower() in ("first", "last") else key for key in keys]
            if all(not key or _HEAD.match(key) for key in keys) and any(keys):
                return mark, keys
    return None


def _tells(key: str) -> bool:
    keys = (key,)
    return (
        names_a_person(keys)
        or may_name_a_person(keys)
        or tells_anything(keys)
        or not TELLS_PHONE.isdisjoint(key.lower().replace("_", " ").split())
    )


def columns(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield key, place and value of each cell of the tables in a text whose head says something."""
    lines = text.split("\n")
    at, place, left = 0, 0, _MOST_CELLS
    while place < len(lines) - 1:
        head = _heads(lines[place], lines[place + 1]) if lines[place] else None
        at += len(lines[place]) + 1
        place += 1
        if head is None:
            continue
        mark, keys = head
        told = [number for number, key in enumerate(keys) if key and _tells(key)]
        while place < len(lines) and lines[place].count(mark) == len(keys) - 1 and left > 0:
            line = lines[place]
            if told and not _RULE.match(line):
                cells = _cells(line, at, mark)
                for number in told:
                    if cells[number][1]:
                        left -= 1
                        yield keys[number], *cells[number]
            at += len(line) + 1
            place += 1


class TableCells:
    """Asks other detectors for each cell under a head that says what is in it."""

    name = "tables"
    version = "tables-1"

    def __init__(self, detectors: Sequence[Detector]) -> None:
        """Ask these."""
        self._detectors = tuple(detectors)
        self.entities = frozenset(chain.from_iterable(one.entities for one in detectors))

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return what is in the cells of tables."""
        return [self._found(unit) for unit in units]

    def _found(self, unit: Unit) -> list[Finding]:
        text = unit.view.original
        if unit.is_digits or "\n" not in text:
            return []
        cells = list(columns(text))
        if not cells:
            return []
        asked = [Unit(view_of(value), (key,)) for key, _, value in cells]
        out: list[Finding] = []
        for detector in self._detectors:
            for (_, at, _), found in zip(cells, detector.find(asked, ()), strict=True):
                out += [one._replace(start=one.start + at, end=one.end + at) for one in found]
        return out
