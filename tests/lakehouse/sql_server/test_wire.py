"""Messages of clients: what was written is read, and bytes that are none are refused."""

import contextlib

import pytest
from google.protobuf.any_pb2 import Any as GoogleAny
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.sql_server.wire import (
    PREFIX,
    Field,
    WireError,
    WireMessage,
    decode,
    encode,
    packed,
    unpacked,
)

FIELDS = st.lists(
    st.builds(
        Field,
        st.integers(1, 1 << 28),
        st.one_of(st.integers(0, (1 << 64) - 1), st.binary(max_size=300)),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(FIELDS)
def test_what_was_written_is_read(fields: list[Field]) -> None:
    assert list(decode(encode(fields))) == fields


@settings(deadline=None)
@given(st.text(), FIELDS)
def test_others_read_our_envelope_and_we_theirs(name: str, fields: list[Field]) -> None:
    theirs = GoogleAny.FromString(packed(name, fields))
    assert (theirs.type_url, theirs.value) == (PREFIX + name, encode(fields))
    assert unpacked(theirs.SerializeToString()) == WireMessage(name, tuple(fields))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(data)
    with contextlib.suppress(WireError):
        unpacked(data)


def test_fields_have_types() -> None:
    message = WireMessage(
        "M", (Field(1, b"a"), Field(1, b"b"), Field(2, 1), Field(3, b"\x01\x96\x01"), Field(3, 7))
    )
    assert (message.text(1), message.texts(1), message.flag(2), message.text(9)) == (
        "b",
        ("a", "b"),
        True,
        None,
    )
    assert message.numbers(3) == (1, 150, 7)
    with pytest.raises(WireError, match="another type"):
        message.text(2)
    with pytest.raises(WireError, match="no text"):
        WireMessage("M", (Field(1, b"\xff"),)).text(1)
