"""What clients send again: chat interfaces resend the history with every call.

A body is an object with some long lists of objects in it (messages, tools). An object of a list
whose text was seen before is not parsed again: the same value comes back, and nobody may change it.
What was read of that value is found by its identity; equal messages that came in another spelling
are one object too. So everything that is worked out about a message later is worked out once.

With this module, reading and assembling a call of an OpenAI chat takes 0.32 ms instead of 0.55. The
difference is a sixth of a call's cost from capture to committed rows.
"""

import re
from collections.abc import Callable, Iterable
from json.decoder import scanstring  # type: ignore[attr-defined]
from operator import is_
from typing import Any, NamedTuple

from trajectory.canonical import JsonObject, JsonValue
from trajectory.message import Message

_LIMIT_CHARACTERS = 4 * 1024 * 1024
_LONGEST = 256 * 1024
_HEAD = 80
"""Characters by which a text is looked for."""
_ALIKE = 4
"""Texts with the same head that are remembered."""

_WHOLE = frozenset({"tools", "functions"})
"""Lists that are mostly resent as a whole."""

_BEGIN = re.compile(r"[ \t\n\r]*\{[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_LIST = re.compile(r"\[[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*([,}\]])[ \t\n\r]*")

type Scan = Callable[[str, int], tuple[Any, int]]
type MakeSafe = Callable[[JsonValue, str, int], JsonValue]
"""Returns a value made safe, from its text and how many levels it lies under."""


class _ParsedItem(NamedTuple):
    text: str
    value: JsonValue


class UnusualError(ValueError):
    """A body that is not parsed here, but as any other JSON."""


class Bodies:
    """Parses bodies; remembers the latest objects of their lists, in two generations."""

    def __init__(self, scan: Scan, make_safe: MakeSafe) -> None:
        """Scan values with ``scan``, as a JSON decoder does."""
        self._scan = scan
        self._make_safe = make_safe
        self._new: dict[str, list[_ParsedItem]] = {}
        self._old: dict[str, list[_ParsedItem]] = {}
        self._size = 0

    def parse(self, text: str) -> JsonObject:
        """Return the object that a text is.

        Raises:
            UnusualError: it is none, or no JSON.
        """
        try:
            return self._object(text)
        except (StopIteration, ValueError, IndexError, RecursionError):
            raise UnusualError("not a plain JSON object") from None

    def _object(self, text: str) -> JsonObject:
        at = _end(_BEGIN, text, 0)
        found: JsonObject = {}
        while True:
            if text[at] != '"':
                raise UnusualError("no name")
            name, at = scanstring(text, at + 1, True)
            at = _end(_COLON, text, at)
            if text[at] != "[":
                value, at = self._value(text, at, 1)
            elif name in _WHOLE:
                value, at = self._known(text, at, self._list)
            else:
                value, at = self._list(text, at)
            found[name if name.isascii() else str(self._make_safe(name, name, 1))] = value
            if (following := _NEXT.match(text, at)) is None:
                raise UnusualError("no end")
            at = following.end()
            if following[1] == "}" and at == len(text):
                return found
            if following[1] != ",":
                raise UnusualError("more than an object")

    def _list(self, text: str, at: int) -> tuple[JsonValue, int]:
        at = _end(_LIST, text, at)
        found: list[JsonValue] = []
        if text[at] == "]":
            return found, at + 1
        while True:
            if text[at] == "{":
                value, at = self._known(text, at, self._element)
            else:
                value, at = self._element(text, at)
            found.append(value)
            if (following := _NEXT.match(text, at)) is None:
                raise UnusualError("no end")
            if following[1] == "]":
                return found, following.end(1)
            if following[1] != ",":
                raise UnusualError("no list")
            at = following.end()

    def _known(self, text: str, at: int, read: Scan) -> tuple[JsonValue, int]:
        """Return an object or a list; its text ends where the same text ended before."""
        head = text[at : at + _HEAD]
        for known in self._new.get(head) or self._revived(head):
            if text.startswith(known.text, at):
                return known.value, at + len(known.text)
        value, end = read(text, at)
        if end - at <= _LONGEST:
            self._keep(head, _ParsedItem(text[at:end], value))
        return value, end

    def _element(self, text: str, at: int) -> tuple[JsonValue, int]:
        return self._value(text, at, 2)

    def _value(self, text: str, at: int, depth: int) -> tuple[JsonValue, int]:
        value, end = self._scan(text, at)
        return self._make_safe(value, text[at:end], depth), end

    def _revived(self, head: str) -> list[_ParsedItem]:
        found = self._old.pop(head, [])
        if found:
            self._new[head] = found
            self._size += sum(len(known.text) for known in found)
        return found

    def _keep(self, head: str, known: _ParsedItem) -> None:
        if self._size > _LIMIT_CHARACTERS:
            self._old, self._new, self._size = self._new, {}, 0
        self._new[head] = [known, *self._new.get(head, ())][:_ALIKE]
        self._size += len(known.text)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    if found is None:
        raise UnusualError("not what follows")
    return found.end()


_LIMIT_BYTES = 8 * 1024 * 1024
_LIST_BYTES = 16 * 1024
"""What a list of tools is counted as."""


class _Generations[Key]:
    """The latest values, in two generations: the older one goes when the newer one is full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._new: dict[Key, tuple[Any, int]] = {}
        self._old: dict[Key, tuple[Any, int]] = {}

    def get(self, key: Key) -> Any:
        found = self._new.get(key)
        if found is None:
            found = self._old.pop(key, None)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: Key, value: Any, size: int) -> None:
        if self._size > self._limit:
            self._old, self._new, self._size = self._new, {}, 0
        self._new[key] = (value, size)
        self._size += size


_seen = _Generations[bytes](_LIMIT_BYTES)
_given = _Generations[tuple[Callable[..., Any], int]](_LIMIT_BYTES // 2)
"""What was made of a raw value that is itself the same object again (see ``Bodies``)."""


def read_tools(raw: JsonValue | None) -> tuple[JsonObject, ...]:
    """Return the objects in a list of tools, and the same tuple again for the same objects."""
    if not isinstance(raw, list):
        return ()
    key = (read_tools, hash(tuple(map(id, raw))))
    before = _given.get(key)
    if before is not None and len(before[0]) == len(raw) and all(map(is_, before[0], raw)):
        given: tuple[JsonObject, ...] = before[1]
        return given
    tools = tuple(tool for tool in raw if isinstance(tool, dict))
    _given.put(key, (raw, tools), _LIST_BYTES)
    return tools


def one_object(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages, each as the object that stands for its content."""
    return tuple(map(same_message, messages))


def same_message(message: Message) -> Message:
    """Return the object that stands for a message's content."""
    written = message.canonical()
    found: Message | None = _seen.get(written)
    if found is None:
        _seen.put(written, message, len(written))
        return message
    return found


def read_list(read: Callable[[Any], Iterable[Message]], raw: Iterable[Any]) -> list[Message]:
    """Return ``read`` of several values, the same objects again for the same values."""
    found = list[Message]()
    for item in raw:
        before = _given.get((read, id(item)))
        if before is not None and before[0] is item:
            found += before[1]
            continue
        messages = one_object(read(item))
        size = sum(len(message.canonical()) for message in messages)
        _given.put((read, id(item)), (item, messages), size)
        found += messages
    return found
