"""What carries the values of streamed answers: events, lines, and AWS's messages.

A carrier cuts bytes into units, of which each passes as it came or not at all, and writes values
as units of its own.
"""

import json
import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from itertools import pairwise
from typing import NamedTuple

from proxy.guard.answer_calls import Event, UnreadableAnswerError
from proxy.guard.strict_json import AmbiguousJsonError, parse_strictly
from trajectory.canonical import JsonObject
from trajectory.dialects.event_stream import (
    MESSAGE_LIMIT,
    EventMessage,
    EventStreamDecoder,
    encode_message,
)
from trajectory.dialects.sse import decode_events

LONGEST = 64 * 1024 * 1024
"""Bytes of a unit, or of all that is held back of an answer."""
_LENGTH_BYTES = 4


class CarriedUnit(NamedTuple):
    """A piece of a stream that is passed on as a whole."""

    raw: bytes
    values: tuple[Event, ...]
    """What clients read in it."""
    problem: str = ""
    """Why nobody can tell what clients read in it, in fixed words."""


class AnswerCarrier(ABC):
    """Cuts one stream into units."""

    def __init__(self) -> None:
        self._data = bytearray()

    @abstractmethod
    def feed(self, data: bytes) -> list[CarriedUnit]:
        """Return the units that more bytes complete."""

    def left(self) -> list[CarriedUnit]:
        """Return what is left when the stream has ended."""
        raw, self._data = bytes(self._data), bytearray()
        return [self._read(raw)] if raw else []

    def write(self, value: Event, *, named: bool) -> bytes:
        """Return a unit that says a value."""
        return self._written(dumped(value), str(value.get("type")) if named else "")

    def comment(self, text: str) -> bytes:
        """Return what clients pass over; empty where there is no such thing."""
        _ = text
        return b""

    @abstractmethod
    def error(self, body: JsonObject, *, name: str) -> bytes:
        """Return the unit that ends a stream with an error."""

    @abstractmethod
    def _values(self, raw: bytes) -> tuple[Event, ...]:
        """Return what clients read in a unit.

        Raises:
            UnreadableAnswerError: nobody can tell.
        """

    @abstractmethod
    def _written(self, data: bytes, name: str) -> bytes: ...

    def _read(self, raw: bytes) -> CarriedUnit:
        try:
            return CarriedUnit(raw, self._values(raw))
        except (UnreadableAnswerError, RecursionError) as error:
            return CarriedUnit(raw, (), str(error))

    def _too_long(self) -> list[CarriedUnit]:
        raw, self._data = bytes(self._data), bytearray()
        return [CarriedUnit(raw, (), "too long")]

    def _cut(self, data: bytes, end: re.Pattern[bytes], longest_end: int) -> list[CarriedUnit]:
        seen = max(len(self._data) - longest_end + 1, 0)
        self._data += data
        ends = [one.end() for one in end.finditer(self._data, seen)]
        if not ends:
            return self._too_long() if len(self._data) > LONGEST else []
        raw = bytes(self._data[: ends[-1]])
        del self._data[: len(raw)]
        return [self._read(raw[a:b]) for a, b in pairwise([0, *ends])]


def dumped(value: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def read_event(data: bytes) -> tuple[Event, ...]:
    """Return the object that a text holds, where it is worth reading.

    Raises:
        UnreadableAnswerError: not every client would read the same.
    """
    try:
        value = parse_strictly(data)
    except AmbiguousJsonError as error:
        raise UnreadableAnswerError(str(error)) from None
    if not isinstance(value, dict):
        raise UnreadableAnswerError("no object")
    return (value,)


class SseCarrier(AnswerCarrier):
    """Server-sent events."""

    # A line end and an empty line, whichever ends the lines have.
    _END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")

    def feed(self, data: bytes) -> list[CarriedUnit]:
        """Cut behind empty lines."""
        return self._cut(data, self._END, 4)

    def _values(self, raw: bytes) -> tuple[Event, ...]:
        texts = [one.data for one in decode_events(raw)]
        said = [text for text in texts if text.strip() not in ("", "[DONE]")]
        return tuple(value for text in said for value in read_event(text.encode()))

    def comment(self, text: str) -> bytes:
        """Return a comment."""
        return b": " + text.encode() + b"\n\n"

    def error(self, body: JsonObject, *, name: str) -> bytes:
        """Return an event."""
        return self._written(dumped(body), name)

    def _written(self, data: bytes, name: str) -> bytes:
        head = b"event: " + name.encode() + b"\n" if name else b""
        return head + b"data: " + data + b"\n\n"


class LineCarrier(AnswerCarrier):
    """Lines of JSON."""

    _END = re.compile(rb"\n")

    def feed(self, data: bytes) -> list[CarriedUnit]:
        """Cut behind line ends."""
        return self._cut(data, self._END, 1)

    def _values(self, raw: bytes) -> tuple[Event, ...]:
        return read_event(raw.strip()) if raw.strip() else ()

    def error(self, body: JsonObject, *, name: str) -> bytes:
        """Return a line."""
        return self._written(dumped(body), name)

    def _written(self, data: bytes, name: str) -> bytes:
        _ = name
        return data + b"\n"


class AwsCarrier(AnswerCarrier):
    """AWS's event streams: an event's type is in a header; ``chunk`` holds the model's own events."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks = False

    def feed(self, data: bytes) -> list[CarriedUnit]:
        """Cut by the lengths that messages say."""
        self._data += data
        found: list[CarriedUnit] = []
        while len(self._data) >= _LENGTH_BYTES:
            total = int.from_bytes(self._data[:_LENGTH_BYTES], "big")
            if total > MESSAGE_LIMIT or total < _LENGTH_BYTES:
                return [*found, *self._too_long()]
            if len(self._data) < total:
                break
            found.append(self._read(bytes(self._data[:total])))
            del self._data[:total]
        return found

    def _values(self, raw: bytes) -> tuple[Event, ...]:
        decoder = EventStreamDecoder()
        messages = decoder.feed(raw)
        if decoder.problem is not None or len(messages) != 1:
            raise UnreadableAnswerError("a damaged message")
        return self._said(messages[0])

    def _said(self, message: EventMessage) -> tuple[Event, ...]:
        kind = message.header(":event-type")
        if message.header(":message-type") != "event" or not message.payload.strip():
            return ()
        (value,) = read_event(message.payload)
        if kind != "chunk":
            return ({kind: value},)
        self._chunks = True
        said = value.get("bytes")
        try:
            return read_event(b64decode(said if isinstance(said, str) else "", validate=True))
        except (Base64Error, ValueError):
            raise UnreadableAnswerError("no base64") from None

    def write(self, value: Event, *, named: bool) -> bytes:
        """Return a message."""
        if self._chunks:
            return self._message("chunk", dumped({"bytes": b64encode(dumped(value)).decode()}))
        return super().write(value, named=named)

    def _written(self, data: bytes, name: str) -> bytes:
        _ = name
        ((kind, payload),) = json.loads(data).items()
        return self._message(kind, dumped(payload))

    @staticmethod
    def _message(kind: str, payload: bytes) -> bytes:
        head = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
        return encode_message(head, payload)

    def error(self, body: JsonObject, *, name: str) -> bytes:
        """Return an exception."""
        _ = name
        head = {
            ":exception-type": "modelStreamErrorException",
            ":content-type": "application/json",
            ":message-type": "exception",
        }
        return encode_message(head, dumped(body))


CARRIERS: dict[bytes, type[AnswerCarrier]] = {
    b"text/event-stream": SseCarrier,
    b"application/x-ndjson": LineCarrier,
    b"application/jsonl": LineCarrier,
    b"application/x-jsonlines": LineCarrier,
    b"application/vnd.amazon.eventstream": AwsCarrier,
}
