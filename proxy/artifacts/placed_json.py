"""JSON of which it is known where its values stand, so that one can be changed and all else keeps its bytes."""

import json
import re
from typing import Any, NamedTuple

SPACES = " \t\n\r"
"""What may stand between values."""
_SPACE = re.compile(f"[{SPACES}]*")
dumped = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Returns a value as JSON; a ValueError says that it holds a number that JSON has not."""


class PlacedValue(NamedTuple):
    """A JSON value, and where it stands in a text."""

    start: int
    end: int
    value: Any


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse)


def past(text: str, at: int) -> int:
    """Return where the spaces end that begin here."""
    found = _SPACE.match(text, at)
    assert found is not None  # noqa: S101 - it matches nothing too
    return found.end()


def members_of(text: str, at: int) -> tuple[dict[str, PlacedValue], int]:
    """Return the values of an object that begins here, by name, and where it ends.

    Raises:
        ValueError: it is none, or a name stands in it twice: then readers differ about it.
    """
    found: dict[str, PlacedValue] = {}
    if text[at] != "{":
        raise ValueError("no object")
    at = past(text, at + 1)
    more = text[at] != "}"
    while more:
        if text[at] != '"':
            raise ValueError("no JSON")
        name, at = DECODER.raw_decode(text, at)
        at = past(text, at)
        if text[at] != ":" or name in found:
            raise ValueError("no JSON, or a name stands twice")
        start = past(text, at + 1)
        value, end = DECODER.raw_decode(text, start)
        found[name] = PlacedValue(start, end, value)
        at = past(text, end)
        if more := text[at] == ",":
            at = past(text, at + 1)
    if text[at] != "}":
        raise ValueError("no JSON")
    return found, at + 1


def items_of(text: str, within: PlacedValue) -> list[PlacedValue]:
    """Return where the items of a list stand that has been parsed."""
    found: list[PlacedValue] = []
    at = within.start
    for _ in within.value:
        start = past(text, at + 1)
        value, end = DECODER.raw_decode(text, start)
        found.append(PlacedValue(start, end, value))
        at = past(text, end)
    return found
