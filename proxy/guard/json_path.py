"""Paths into a call's arguments: ``$.to``, ``$.items[*].price``, ``$..url``.

The subset of JSONPath that needs no expression: names, indices, ``*`` and ``..``. A name is looked for
as it is written and as lenient receivers compare it; JSON in a text is looked into. What is found
that way is *loose*: a receiver may or may not see it there.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from proxy.guard.strict_json import AmbiguousJsonError, folded, parse_strictly
from trajectory.canonical import JsonValue

_SEGMENT = re.compile(
    r"(?P<deep>\.\.)?(?:(?(deep)|\.)(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
    r"|(?(deep)|\.)?(?P<any>\*)|\[(?:(?P<index>[0-9]{1,6})|(?P<all>\*)|'(?P<quoted>[^']+)')\])"
)
_MOST_FOUND = 10_000
"""Objects and lists that are looked into for one path, and values at its end."""
_NESTED_TEXTS = 4
"""JSON in a text in JSON in a text …: so often it is looked into."""


class UnsearchedValuesError(Exception):
    """Nobody looks through all of it: what is looked for may stand in the rest."""


class PathSegment(NamedTuple):
    """One step of a path."""

    name: str | int | None
    """A key or an index; None for all."""
    deep: bool = False
    """At any depth below."""


class FoundValue(NamedTuple):
    """A value at a path."""

    value: JsonValue
    loose: bool
    """Only a lenient receiver sees it there."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, read once."""

    text: str
    segments: tuple[PathSegment, ...]

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """Read a path.

        Raises:
            ValueError: it is none; the text says what one looks like.
        """
        segments: list[PathSegment] = []
        at = 1
        while text.startswith("$") and at < len(text):
            found = _SEGMENT.match(text, at)
            if found is None or found.end() == at or found[0].startswith("..["):
                break
            name: str | int | None = found["name"] or found["quoted"]
            if found["index"] is not None:
                name = int(found["index"])
            segments.append(PathSegment(name, deep=found["deep"] is not None))
            at = found.end()
        if not text.startswith("$") or at < len(text):
            raise ValueError(f"{text!r} is no path: write $.amount, $.items[*].url or $..url")
        return cls(text, tuple(segments))

    def find(self, arguments: JsonValue) -> list[FoundValue]:
        """Return what stands at the path, strictly and loosely.

        Raises:
            UnsearchedValuesError: there is too much to look through.
        """
        level = [FoundValue(arguments, False)]
        for segment in self.segments:
            below = [one for found in level for one in _opened(found)]
            if segment.deep:
                below = [one for found in below for one in _everything(found)]
            level = [one for found in below for one in _step(found, segment)]
            if len(level) > _MOST_FOUND:
                raise UnsearchedValuesError
        return level


def _opened(found: FoundValue) -> list[FoundValue]:
    """Return a value, and what a text says that is JSON itself."""
    value = found.value
    if not isinstance(value, str):
        return [found]
    inner = inner_json(value)
    return [found] if inner is None else [found, FoundValue(inner, True)]


def inner_json(text: str) -> JsonValue:
    """Return the object or list that a text holds; None where it holds none."""
    value: JsonValue = text
    for _ in range(_NESTED_TEXTS):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            return None
        try:
            value = parse_strictly(value.strip())
        except AmbiguousJsonError:
            return None
        if isinstance(value, dict | list):
            return value
    return None


def _everything(found: FoundValue) -> list[FoundValue]:
    """Return all objects and lists that a value holds, itself among them.

    Raises:
        UnsearchedValuesError: there are too many.
    """
    out: list[FoundValue] = []
    rest = [found]
    while rest:
        for opened in _opened(rest.pop()):
            value = opened.value
            if not isinstance(value, dict | list):
                continue
            out.append(opened)
            if len(out) > _MOST_FOUND:
                raise UnsearchedValuesError
            held = value.values() if isinstance(value, dict) else value
            rest += [
                FoundValue(inner, opened.loose)
                for inner in held
                if isinstance(inner, str | dict | list)
            ]
    return out


def _step(found: FoundValue, segment: PathSegment) -> list[FoundValue]:
    value, name = found.value, segment.name
    if isinstance(value, dict):
        if name is None:
            return [FoundValue(inner, found.loose) for inner in value.values()]
        if not isinstance(name, str):
            return []
        alike = folded(name)
        return [
            FoundValue(inner, found.loose or key != name)
            for key, inner in value.items()
            if key == name or folded(key) == alike
        ]
    if isinstance(value, list):
        if name is None:
            return [FoundValue(inner, found.loose) for inner in value]
        if isinstance(name, int):
            return [FoundValue(value[name], found.loose)] if name < len(value) else []
    return []
