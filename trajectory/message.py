"""Messages in one shape for every dialect: a role and typed parts, with a JSON form that round-trips."""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, cast

from trajectory.canonical import JsonObject, JsonValue, canonical_json
from trajectory.version import SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text."""

    text: str = field(repr=False)
    type: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Reasoning text that the provider exposed, or the opaque signature of what it did not."""

    text: str = field(repr=False)
    signature: str | None = field(default=None, repr=False)
    type: ClassVar[str] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call that the model asked for."""

    call_id: str
    name: str
    arguments: JsonValue = field(repr=False)
    """Parsed JSON; a string only when the model's arguments were not valid JSON."""
    arguments_valid: bool = True
    type: ClassVar[str] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a tool answered, as the model was told."""

    call_id: str
    content: JsonValue = field(repr=False)
    """Text, or the provider's list of content blocks."""
    is_error: bool = False
    type: ClassVar[str] = "tool_result"


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image, sound or file; bytes are named by hash and size, not kept."""

    media_type: str
    sha256: str | None
    size_bytes: int | None
    url: str | None = field(default=None, repr=False)
    type: ClassVar[str] = "media"


@dataclass(frozen=True, slots=True)
class OpaquePart:
    """A part that the dialect does not know; kept as it came, so that nothing is dropped silently."""

    value: JsonValue = field(repr=False)
    type: ClassVar[str] = "opaque"


type Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | MediaPart | OpaquePart

NOTES = frozenset({"annotations", "call_fields", "citations", "media_fields", "phase"})
"""Types of opaque parts that say something about the parts before them: sources, phases."""

_PART_TYPES: dict[str, Any] = {
    part.type: part
    for part in (TextPart, ReasoningPart, ToolCallPart, ToolResultPart, MediaPart, OpaquePart)
}

_FIELDS: dict[Any, tuple[str, ...]] = {
    part: tuple(field.name for field in fields(part)) for part in _PART_TYPES.values()
}


def is_note(part: Part) -> bool:
    """Tell whether a part only says something about others; without it the words are the same."""
    if not isinstance(part, OpaquePart):
        return False
    value = part.value
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in NOTES


def stored_message(role: str, parts: JsonValue, name: str | None) -> JsonObject:
    """Return a message's JSON form from the columns of a stored one; no name, no member."""
    form: JsonObject = {"role": role, "parts": parts}
    return form if name is None else {**form, "name": name}


def part_json(part: Part) -> JsonObject:
    """Return a part's JSON form: its type and the fields that are not None."""
    form: JsonObject = {"type": part.type}
    for name in _FIELDS[type(part)]:
        value = getattr(part, name)
        if value is not None:
            form[name] = value
    return form


@lru_cache(maxsize=1024)
def _around_parts(role: str, name: str | None) -> tuple[int, int]:
    """Return how many bytes of a message's canonical JSON stand before its parts, and behind."""
    around = canonical_json(stored_message(role, [], name))
    before = around.index(b'"parts":[]') + len(b'"parts":')
    return before, len(around) - before - 2


class DerivedValues:
    """Room on a value that never changes for what is worked out from it, once."""

    __slots__ = ("_derived",)
    _derived: dict[object, Any]

    @property
    def derived(self) -> dict[object, Any]:
        """What was worked out already, by names that its makers choose; not part of the value."""
        try:
            return self._derived
        except AttributeError:
            object.__setattr__(self, "_derived", {})
            return self._derived


@dataclass(frozen=True, slots=True)
class Message(DerivedValues):
    """One message of a conversation.

    Equality is by content: two messages with equal ``to_json`` are the same message. Call ids
    of tool calls are part of the content (a result refers to them).
    """

    role: str
    """system | developer | user | assistant | tool"""
    parts: tuple[Part, ...]
    name: str | None = None
    """What the participant calls itself, where several share a role."""
    schema_version: ClassVar[int] = SCHEMA_VERSION

    def to_json(self) -> JsonObject:
        """Return the JSON form: ``{"role", "parts": [{"type", …}], "name"?}``; None fields left out."""
        return stored_message(self.role, [part_json(part) for part in self.parts], self.name)

    def canonical(self) -> bytes:
        """Return the canonical JSON of :meth:`to_json`, made once."""
        derived = self.derived
        if "canonical" not in derived:
            derived["canonical"] = canonical_json(self.to_json())
        return cast(bytes, derived["canonical"])

    def canonical_parts(self) -> bytes:
        """Return the canonical JSON of the parts alone, cut out of :meth:`canonical`."""
        before, behind = _around_parts(self.role, self.name)
        return self.canonical()[before : -behind or None]

    @classmethod
    def from_json(cls, value: JsonObject) -> "Message":
        """Build a message from :meth:`to_json`'s form.

        Raises:
            ValueError: a part has a type or a field that this version does not know.
        """
        parts: list[Part] = []
        for raw in cast(list[JsonObject], value["parts"]):
            fields = {k: v for k, v in raw.items() if k != "type"}
            kind: Any = _PART_TYPES.get(str(raw.get("type")))
            if kind is None:
                raise ValueError(
                    f"unknown message part type {raw.get('type')!r}; known: {', '.join(_PART_TYPES)}"
                )
            try:
                if kind in (ToolCallPart, ToolResultPart):
                    fields.setdefault("arguments" if kind is ToolCallPart else "content", None)
                elif kind is OpaquePart:
                    fields.setdefault("value", None)
                elif kind is MediaPart:
                    fields = {"sha256": None, "size_bytes": None, **fields}
                parts.append(cast(Part, kind(**fields)))
            except TypeError as error:
                raise ValueError(f"message part {raw.get('type')!r}: {error}") from None
        name = value.get("name")
        return cls(
            role=str(value["role"]), parts=tuple(parts), name=None if name is None else str(name)
        )

    def text(self) -> str:
        """Return the text parts, joined by new lines."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """Return the tool calls of this message, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))
