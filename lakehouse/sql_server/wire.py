"""The messages of Flight SQL, as far as a read-only door needs them.

Protocol buffers carry numbered fields; the numbers are those of ``format/FlightSql.proto`` of
Apache Arrow (https://arrow.apache.org/docs/format/FlightSql.html). A few dozen lines read and write
them, so no compiler for them is needed, neither here nor where Headrace is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from trajectory.errors import ConfigurationError

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_NUMBER = 10


class WireError(ConfigurationError):
    """The bytes of a client are no message."""


class Field(NamedTuple):
    """One field of a message."""

    number: int
    value: int | bytes


@dataclass(frozen=True, slots=True)
class WireMessage:
    """A message that was received: its name without prefix, and its fields."""

    name: str
    fields: tuple[Field, ...]

    def text(self, number: int) -> str | None:
        """Return a string field; None when it was not sent."""
        value = self.data(number)
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"field {number} of {self.name} is no text") from error

    def data(self, number: int) -> bytes | None:
        """Return a bytes field; None when it was not sent. The last one sent holds."""
        found = [f.value for f in self.fields if f.number == number]
        if not found:
            return None
        if not isinstance(found[-1], bytes):
            raise WireError(f"field {number} of {self.name} has another type")
        return found[-1]

    def texts(self, number: int) -> tuple[str, ...]:
        """Return a repeated string field."""
        values = [f.value for f in self.fields if f.number == number and isinstance(f.value, bytes)]
        return tuple(value.decode("utf-8", "replace") for value in values)

    def flag(self, number: int) -> bool:
        """Return a boolean field."""
        return any(f.number == number and f.value for f in self.fields)

    def numbers(self, number: int) -> tuple[int, ...]:
        """Return a repeated number field, packed or not."""
        found: list[int] = []
        for field in self.fields:
            if field.number == number and isinstance(field.value, int):
                found.append(field.value)
            elif field.number == number and isinstance(field.value, bytes):
                found.extend(_packed(field.value))
        return tuple(found)


def packed(name: str, fields: Iterable[Field]) -> bytes:
    """Return a message inside ``google.protobuf.Any``, as Flight SQL sends all of them."""
    return encode([Field(1, (PREFIX + name).encode()), Field(2, encode(fields))])


def unpacked(data: bytes) -> WireMessage:
    """Return the message inside a ``google.protobuf.Any``.

    Raises:
        WireError: the bytes are none of Flight SQL's messages.
    """
    outer = WireMessage("Any", decode(data))
    name = outer.text(1) or ""
    if not name.startswith(PREFIX):
        raise WireError("this is no message of Flight SQL")
    return WireMessage(name.removeprefix(PREFIX), decode(outer.data(2) or b""))


def encode(fields: Iterable[Field]) -> bytes:
    """Return the bytes of a message."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, bytes):
            out += _number(number << 3 | _BYTES) + _number(len(value)) + value
        else:
            out += _number(number << 3 | _NUMBER) + _number(value & (1 << 64) - 1)
    return bytes(out)


def decode(data: bytes) -> tuple[Field, ...]:
    """Return the fields of a message in their order.

    Raises:
        WireError: the bytes break off or hold what no message holds.
    """
    fields, position = [], 0
    while position < len(data):
        tag, position = _read_number(data, position)
        kind = tag & 7
        if kind == _NUMBER:
            value, position = _read_number(data, position)
            fields.append(Field(tag >> 3, value))
            continue
        if kind == _BYTES:
            length, position = _read_number(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"field {tag >> 3} has the unknown kind {kind}")
        if position + length > len(data):
            raise WireError("the message breaks off")
        fields.append(Field(tag >> 3, data[position : position + length]))
        position += length
    return tuple(fields)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_number(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_NUMBER):
        if position + index >= len(data):
            raise WireError("the message breaks off")
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, position + index + 1
    raise WireError("a number is too long")


def _packed(data: bytes) -> Iterable[int]:
    position = 0
    while position < len(data):
        value, position = _read_number(data, position)
        yield value
