"""WebSocket messages as the gateway keeps them in an exchange's bodies: framed, in order, with times.

Those of the client stand in the request's body, those of the server in the response's::

    kind 1 (1 text, 2 binary) | number 4 | seconds since 1970 8 (double) | length 4 | content

Numbers are big-endian and count both directions together, so that the order is known.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_FRAME = struct.Struct(">BIdI")
_TEXT, _BINARY = 1, 2


@dataclass(frozen=True, slots=True)
class WebSocketMessage:
    """One message of a conversation."""

    number: int
    """Its place among the messages of both directions."""
    at: float
    """When it passed, in seconds since 1970."""
    from_client: bool
    is_text: bool
    content: bytes = field(repr=False)


def pack_message(number: int, at: float, content: bytes, *, is_text: bool) -> bytes:
    """Return the frame of one message."""
    kind = _TEXT if is_text else _BINARY
    return _FRAME.pack(kind, number & 0xFFFFFFFF, at, len(content)) + content


def read_messages(from_client: bytes, from_server: bytes) -> list[WebSocketMessage]:
    """Return the messages of both bodies in their order; one that is cut off is left out.

    Raises:
        ValueError: a frame is none.
    """
    found = [*_frames(from_client, from_client=True), *_frames(from_server, from_client=False)]
    return sorted(found, key=lambda message: message.number)


def _frames(body: bytes, *, from_client: bool) -> Iterator[WebSocketMessage]:
    at = 0
    while at + _FRAME.size <= len(body):
        kind, number, seconds, length = _FRAME.unpack_from(body, at)
        if kind not in (_TEXT, _BINARY) or not 0 <= seconds < 1e11:
            raise ValueError("not a frame of a WebSocket message")
        at += _FRAME.size
        content = body[at : at + length]
        at += length
        if len(content) == length:
            yield WebSocketMessage(number, seconds, from_client, kind == _TEXT, content)


__all__ = ["WebSocketMessage", "pack_message", "read_messages"]
