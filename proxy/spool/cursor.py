"""The cursor: how far each writer's records have been taken, in a form that a checkpoint can keep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trajectory.canonical import JsonObject
from trajectory.errors import IntegrityError


class Position(NamedTuple):
    """A byte offset in one writer's segment; places order as they were written."""

    segment: int
    offset: int


_BEGINNING = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Mark:
    """Position up to which the reader took one writer's records."""

    at: Position = _BEGINNING
    """Every exchange whose end lies before this place, and all feedback before it, has been taken."""
    hold: Position = _BEGINNING
    """Where the oldest exchange begins that was still open at ``at``; nothing from here on may go."""
    ended: bool = False
    """The writer is gone and everything of it has been taken, unfinished exchanges too."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Marks of all writers; equal cursors lead to the same records."""

    marks: Mapping[str, Mark] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return a form for a checkpoint file."""
        return {
            writer: [*mark.at, *mark.hold, mark.ended]
            for writer, mark in sorted(self.marks.items())
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "Cursor":
        """Read the form that :meth:`to_json` gives.

        Raises:
            IntegrityError: the value is not a cursor.
        """
        marks = {}
        for writer, parts in value.items():
            match parts:
                case [int(a), int(b), int(c), int(d), bool(ended)]:
                    marks[writer] = Mark(Position(a, b), Position(c, d), ended)
                case _:
                    raise IntegrityError(
                        f"spool cursor: the mark of writer {writer} is malformed; restore the checkpoint"
                    )
        return cls(marks)
