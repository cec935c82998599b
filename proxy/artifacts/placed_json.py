"""JSON of which it is known where its values stand, so that one can be changed and all else keeps its bytes."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

SPACES = " \t\n\r"
"""What may stand between values."""
_SPACE = re.compile(f"[{SPACES}]*")
dumped = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Returns a value as JSON; a ValueError says that it holds a number that JSON has not."""


class PlacedValue(NamedTuple):
    """A JSON value, and where it stands; places below zero count from the end."""

    start: int
    end: int
    value: Any


class Edit(NamedTuple):
    """What stands in the place of some bytes of a body."""

    start: int
    end: int
    fresh: bytes


def spliced(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Return a body with edits, which are given in their order."""
    at = 0
    pieces: list[bytes] = []
    for start, end, fresh in edits:
        pieces += (data[at:start], fresh)
        at = end
    return b"".join((*pieces, data[at:]))


def in_bytes(text: str, spans: Sequence[PlacedValue]) -> list[PlacedValue]:
    """Return where values stand in the bytes of a text."""
    if text.isascii():
        return [*spans]
    at = size = 0
    found: dict[int, int] = {}
    for place in sorted({place for start, end, _ in spans for place in (start, end)}):
        size += len(text[at:place].encode("utf-8", "surrogatepass"))
        found[place], at = size, place
    return [PlacedValue(found[start], found[end], value) for start, end, value in spans]


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


def further_items(between: bytes) -> list[Any]:
    """Return the items that stand behind others in a list.

    Raises:
        ValueError: these bytes are no more items.
    """
    items: list[Any]
    # ``null`` cannot be gone on with, as a number could.
    _, *items = DECODER.decode(f"[null{between.decode('utf-8', 'surrogatepass')}]")
    return items
