"""Placed batches as bytes, from the process that reads them to the one that judges them.

Pickle, between two processes of ours over a pipe of theirs, with two additions. Values are written
as their fields, which costs a third of what dataclasses do by themselves. A message goes over once:
chat interfaces resend the history with every call, so each one is given a number, and by it the
other side finds the object that it was given before, with all that was worked out about it since.
"""

import io
import pickle
from collections import deque
from collections.abc import Callable
from copyreg import dispatch_table
from dataclasses import fields
from operator import attrgetter
from typing import Any

from headrace.intake import Placed
from proxy.spool import SpoolBatch
from trajectory.call import Call, SessionHint, TokenCapture, ToolDispatch, Usage
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    Feedback,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from trajectory.placement import (
    Assembly,
    PlacedCall,
    PlacedCorrection,
    PlacedFeedback,
    PlacedLink,
)

_VALUES: tuple[Any, ...] = (
    Assembly, Call, ClientIdentity, Exchange, Feedback, HttpRequest, HttpResponse, MediaPart,
    OpaquePart, Placed, PlacedCall, PlacedCorrection, PlacedFeedback, PlacedLink, ReasoningPart,
    SessionHint, SpoolBatch, SpoolPosition, TextPart, TokenCapture, ToolCallPart, ToolDispatch,
    ToolResultPart, Usage,
)  # fmt: skip
_LIMIT_BYTES = 8 * 1024 * 1024
"""Of messages that both sides remember."""

type Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _by_fields(kind: Any) -> Callable[[Any], Reduced]:
    names = [field.name for field in fields(kind)]
    read = attrgetter(*names)
    if len(names) == 1:
        return lambda value: (kind, (read(value),))
    return lambda value: (kind, read(value))


_REDUCERS = {kind: _by_fields(kind) for kind in _VALUES}


class Sender:
    """Writes batches; every one must reach the same :class:`Receiver`, in order."""

    def __init__(self) -> None:
        self._sent = 0
        self._kept: deque[tuple[int, int]] = deque()
        """Number and size of the messages that the other side has."""
        self._size = 0
        self._oldest = 0

    def dump(self, placed: Placed) -> bytes:
        """Return a batch as bytes."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {**dispatch_table, **_REDUCERS, Message: self._message}
        self._forget()
        pickler.dump((self._oldest, placed))
        return stream.getvalue()

    def _message(self, message: Message) -> Reduced:
        number: int = message.derived.get(self, -1)
        if number >= self._oldest:
            return _known, (number,)
        number = message.derived[self] = self._sent
        self._sent += 1
        canonical = message.canonical()
        self._kept.append((number, len(canonical)))
        self._size += len(canonical)
        return _new, (number, message.role, message.parts, message.name, canonical)

    def _forget(self) -> None:
        while self._size > _LIMIT_BYTES:
            number, size = self._kept.popleft()
            self._size -= size
            self._oldest = number + 1


class Receiver:
    """Reads what one :class:`Sender` wrote."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self._oldest = 0

    def load(self, data: bytes) -> Placed:
        """Return the next batch."""
        oldest, placed = _Unpickler(data, self).load()
        for number in range(self._oldest, oldest):
            self._messages.pop(number, None)
        self._oldest = oldest
        if not isinstance(placed, Placed):
            raise TypeError("the process that reads the spool sent no batch")
        return placed

    def known(self, number: int) -> Message:
        """Return a message that was sent before."""
        return self._messages[number]

    def new(
        self, number: int, role: str, parts: tuple[Any, ...], name: str | None, canonical: bytes
    ) -> Message:
        """Keep a message under its number."""
        message = self._messages[number] = Message(role, parts, name)
        message.derived["canonical"] = canonical
        return message


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, receiver: Receiver) -> None:
        super().__init__(io.BytesIO(data))
        self._receiver = receiver

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in ("_known", "_new"):
            return self._receiver.known if name == "_known" else self._receiver.new
        return super().find_class(module, name)


def _known(_number: int) -> Message:
    raise TypeError("read with a Receiver")


def _new(_number: int, *_fields: Any) -> Message:
    raise TypeError("read with a Receiver")


__all__ = ["Receiver", "Sender"]
