"""AWS event streams: whatever the split, the same messages; damage ends the stream with a reason."""

import json
import struct
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from tests.support.provider.bedrock import event_message
from trajectory.dialects.event_stream import EventMessage, EventStreamDecoder

MESSAGES = [
    event_message({"text": "Grüße 🙂"}, event_type="delta", message_type="event"),
    event_message({}, event_type="", message_type="event"),
    event_message({"message": "no"}, exception_type="throttling", message_type="exception"),
]
STREAM = b"".join(MESSAGES)


def plain(messages: list[EventMessage]) -> list[tuple[dict[str, Any], bytes]]:
    return [(dict(message.headers), message.payload) for message in messages]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_chunk_boundaries_do_not_matter(places: list[int]) -> None:
    decoder, found, before = EventStreamDecoder(), [], 0
    for place in [*sorted(places), len(STREAM)]:
        found += decoder.feed(STREAM[before:place])
        before = place
    assert not decoder.cut
    assert plain(found) == plain(EventStreamDecoder().feed(STREAM))


def test_it_reads_what_botocore_reads() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(STREAM)
    theirs = [(message.headers, message.payload) for message in buffer]
    assert plain(EventStreamDecoder().feed(STREAM)) == theirs


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_noticed_and_what_came_before_counts(place: int, flip: int) -> None:
    damaged = bytearray(STREAM)
    damaged[place] ^= flip
    decoder = EventStreamDecoder()
    found = decoder.feed(bytes(damaged))
    assert decoder.problem is not None
    assert len(found) < len(MESSAGES)
    assert plain(found) == plain(EventStreamDecoder().feed(STREAM))[: len(found)]
    assert decoder.feed(STREAM) == []


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    EventStreamDecoder().feed(data)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (0, b"", True),
        (1, b"", False),
        (2, b"\xff", -1),
        (3, b"\x01\x00", 256),
        (4, struct.pack(">i", -7), -7),
        (5, struct.pack(">q", 2**40), 2**40),
        (6, b"\x00\x02ab", b"ab"),
        (7, b"\x00\x02ab", "ab"),
        (8, struct.pack(">q", 1), 1),
        (9, b"u" * 16, b"u" * 16),
    ],
)
def test_every_type_of_header(kind: int, data: bytes, value: object) -> None:
    (message,) = EventStreamDecoder().feed(_message(b"\x01n" + bytes([kind]) + data))
    assert message.headers == {"n": value}


def test_headers_that_cannot_be_are_damage() -> None:
    for block in (b"\x01n\x0a", b"\x05n", b"\x01n\x07\x00\x09ab", b"\x01\xff\x00"):
        decoder = EventStreamDecoder()
        assert decoder.feed(_message(block)) == []
        assert decoder.problem == "event-stream:headers"


def _message(headers: bytes) -> bytes:
    from zlib import crc32

    payload = json.dumps({}).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return body + struct.pack(">I", crc32(body))
