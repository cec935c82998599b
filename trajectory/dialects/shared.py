"""One object for what is sent again: chat interfaces resend the history with every call.

What reads a raw message, a list of tools or a whole conversation gives the same object for the
same content, so that everything worked out about it later is found on it again. Raw values are
told apart by a hash of all that they hold, in the order in which it came.
"""

import marshal
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from operator import is_
from typing import Any

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import objects
from trajectory.message import Message

_LIMIT_BYTES = 8 * 1024 * 1024
_LIST_BYTES = 16 * 1024
"""What a list of tools is counted as."""
_MARSHAL_VERSION = 2
"""The last one whose output depends on the value alone, not on which of its parts are one object."""


class _Seen[Key]:
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


_seen = _Seen[bytes](_LIMIT_BYTES)
_given = _Seen[tuple[bytes, int]](_LIMIT_BYTES // 2)
"""What was made of a raw value that is itself the same object again (see ``bodies``)."""


def read_messages(read: Callable[[Any], Iterable[Message]], raw: JsonValue) -> tuple[Message, ...]:
    """Return ``read(raw)``, and the same objects again for equal content.

    ``read`` must be a function of its argument alone.
    """
    return _once(_name(read), raw, lambda: one_object(read(raw)))


def read_tools(raw: JsonValue | None) -> tuple[JsonObject, ...]:
    """Return the objects in a list of tools, and the same tuple again for an equal list."""
    if not isinstance(raw, list):
        return ()
    key = (b"tools", hash(tuple(map(id, raw))))
    before = _given.get(key)
    if before is not None and len(before[0]) == len(raw) and all(map(is_, before[0], raw)):
        tools: tuple[JsonObject, ...] = before[1]
        return tools
    tools = _once(b"tools", raw, lambda: tuple(objects(raw)))
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
    name, found = _name(read), list[Message]()
    for item in raw:
        before = _given.get((name, id(item)))
        if before is not None and before[0] is item:
            found += before[1]
            continue
        messages = one_object(read(item))
        size = sum(len(message.canonical()) for message in messages)
        _given.put((name, id(item)), (item, messages), size)
        found += messages
    return found


def _once[Read](name: bytes, raw: JsonValue, make: Callable[[], Read]) -> Read:
    written = marshal.dumps(raw, _MARSHAL_VERSION)
    key = blake2b(written, digest_size=20, salt=name).digest()
    found: Read | None = _seen.get(key)
    if found is None:
        found = make()
        _seen.put(key, found, len(written))
    return found


@cache
def _name(read: Callable[[Any], Any]) -> bytes:
    return blake2b(f"{read.__module__}.{read.__qualname__}".encode(), digest_size=16).digest()
