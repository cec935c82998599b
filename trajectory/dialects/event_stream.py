"""AWS event streams from raw bytes: binary messages with headers, a payload and two checksums.

A message is ``total length 4 | headers length 4 | CRC-32 of these 4 | headers | payload | CRC-32
of all before 4``, numbers big-endian. After damage nothing is guessed: the messages before it
count, and the stream says what is wrong with it.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from zlib import crc32

MESSAGE_LIMIT = 16 * 1024 * 1024
"""Bytes that one message may have; the protocol's own limit."""

_PRELUDE = struct.Struct(">III")
_TRAILER_BYTES = 4
_FIXED = {2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of header values by their type; booleans have none, 6 and 7 give their length."""

type HeaderValue = str | bytes | int | bool


@dataclass(frozen=True, slots=True)
class EventMessage:
    """One message of a stream."""

    headers: dict[str, HeaderValue]
    payload: bytes = field(repr=False)

    def header(self, name: str) -> str:
        """Return a text header, empty when there is none."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else ""


class EventStreamDecoder:
    """Turns bytes into messages; equal for every way of splitting the same bytes."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._pending = bytearray()
        self.problem: str | None = None
        """Why decoding stopped, in fixed words; None while all is well."""

    @property
    def cut(self) -> bool:
        """Whether the bytes so far end inside a message."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[EventMessage]:
        """Take more bytes and return the messages that they complete; nothing after damage."""
        if self.problem is not None:
            return []
        self._pending += data
        return list(self._take())

    def _take(self) -> Iterator[EventMessage]:
        at = 0
        while len(self._pending) - at >= _PRELUDE.size and self.problem is None:
            total, headers, check = _PRELUDE.unpack_from(self._pending, at)
            if crc32(self._pending[at : at + 8]) != check:
                self.problem = "event-stream:prelude-checksum"
            elif not _PRELUDE.size + _TRAILER_BYTES + headers <= total <= MESSAGE_LIMIT:
                self.problem = "event-stream:lengths"
            elif len(self._pending) - at < total:
                break
            else:
                message = self._message(bytes(self._pending[at : at + total]), headers)
                at += total
                if message is not None:
                    yield message
        del self._pending[:at]

    def _message(self, data: bytes, headers: int) -> EventMessage | None:
        body = data[:-_TRAILER_BYTES]
        if crc32(body) != int.from_bytes(data[-_TRAILER_BYTES:], "big"):
            self.problem = "event-stream:checksum"
            return None
        begin = _PRELUDE.size
        try:
            values = dict(_headers(body[begin : begin + headers]))
        except (IndexError, UnicodeDecodeError, ValueError):
            self.problem = "event-stream:headers"
            return None
        return EventMessage(values, body[begin + headers :])


def encode_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message of a stream; its headers are texts."""
    packed = b"".join(
        bytes([len(name)]) + name + b"\x07" + len(value).to_bytes(2, "big") + value
        for name, value in ((n.encode(), v.encode()) for n, v in headers.items())
    )
    total = _PRELUDE.size + len(packed) + len(payload) + _TRAILER_BYTES
    prelude = struct.pack(">II", total, len(packed))
    body = prelude + crc32(prelude).to_bytes(4, "big") + packed + payload
    return body + crc32(body).to_bytes(_TRAILER_BYTES, "big")


def _headers(block: bytes) -> Iterator[tuple[str, HeaderValue]]:
    at = 0
    while at < len(block):
        name_end = at + 1 + block[at]
        name = block[at + 1 : name_end].decode()
        kind = block[name_end]
        at = name_end + 1
        if kind in (0, 1):
            yield name, kind == 0
            continue
        length = _FIXED.get(kind, -1)
        if kind in (6, 7):
            length = int.from_bytes(block[at : at + 2], "big")
            at += 2
        value = block[at : at + length]
        if length < 0 or len(value) != length:
            raise ValueError("a header is cut off or of an unknown type")
        at += length
        yield name, _value(kind, value)


def _value(kind: int, value: bytes) -> HeaderValue:
    if kind == 7:
        return value.decode()
    if kind in (6, 9):
        return value
    return int.from_bytes(value, "big", signed=True)


__all__ = ["MESSAGE_LIMIT", "EventMessage", "EventStreamDecoder", "encode_message"]
