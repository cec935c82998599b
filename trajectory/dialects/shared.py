"""One object for what is sent again: chat interfaces resend the history with every call.

What reads a raw message, a list of tools or a whole conversation gives the same object for the
same content, so that everything worked out about it later is found on it again. Raw values are
told apart by a hash of all that they hold, in the order in which it came.
"""

import marshal
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from typing import Any

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import objects
from trajectory.message import Message

_LIMIT_BYTES = 32 * 1024 * 1024
_MARSHAL_VERSION = 2
"""The last one whose output depends on the value alone, not on which of its parts are one object."""


class _Seen:
    """The latest values, in two generations: the older one goes when the newer one is full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._new: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}

    def get(self, key: bytes, size: int) -> Any:
        found = self._new.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self.put(key, found, size)
        return found

    def put(self, key: bytes, value: Any, size: int) -> None:
        if self._size > self._limit:
            self._old, self._new, self._size = self._new, {}, 0
        self._new[key] = value
        self._size += size


_seen = _Seen(_LIMIT_BYTES)


def read_messages(read: Callable[[Any], Iterable[Message]], raw: JsonValue) -> tuple[Message, ...]:
    """Return ``read(raw)``, and the same objects again for equal content.

    ``read`` must be a function of its argument alone.
    """
    return _once(_name(read), raw, lambda: one_object(read(raw)))


def read_tools(raw: JsonValue | None) -> tuple[JsonObject, ...]:
    """Return the objects in a list of tools, and the same tuple again for an equal list."""
    return _once(b"tools", raw, lambda: tuple(objects(raw)))


def one_object(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages, each as the object that stands for its content."""
    return tuple(map(same_message, messages))


def same_message(message: Message) -> Message:
    """Return the object that stands for a message's content."""
    written = message.canonical()
    key = blake2b(written, digest_size=20, salt=b"message").digest()
    found: Message | None = _seen.get(key, len(written))
    if found is None:
        _seen.put(key, message, len(written))
        return message
    return found


def _once[Read](name: bytes, raw: JsonValue, make: Callable[[], Read]) -> Read:
    written = marshal.dumps(raw, _MARSHAL_VERSION)
    key = blake2b(written, digest_size=20, salt=name).digest()
    found: Read | None = _seen.get(key, len(written))
    if found is None:
        found = make()
        _seen.put(key, found, len(written))
    return found


@cache
def _name(read: Callable[[Any], Any]) -> bytes:
    return blake2b(f"{read.__module__}.{read.__qualname__}".encode(), digest_size=16).digest()
