"""Reads the fields of request and response heads that the gateway acts on."""

import base64
from collections.abc import Sequence
from typing import Literal

from proxy.clients.credentials import RawFields

MOST_HEAD_BYTES = 64 * 1024
"""Bytes that a request's head may have, or a response's."""
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"http2-settings",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection alone, and those of framing, which is written anew."""
type _Wish = Literal["metadata", "none"] | None
_OURS = b"x-headrace-capture"
_WISHES: dict[bytes, dict[bytes, _Wish]] = {
    _OURS: {b"metadata": "metadata", b"none": "none", b"full": None},
    b"x-headrace-opt-out": {b"all": "metadata"},
    b"cf-aig-collect-log": {b"false": "none"},
    b"cf-aig-collect-log-payload": {b"false": "metadata"},
    b"helicone-omit-request": {b"true": "metadata"},
    b"helicone-omit-response": {b"true": "metadata"},
}
"""Headers by which a client asks for less than a full capture: ours, and those of other gateways."""
WISHES = frozenset(_WISHES)
"""The names of these headers."""
_LENGTHS = frozenset(map(len, _WISHES))
_CONTENT_LENGTH, _TRANSFER_ENCODING = len(b"content-length"), len(b"transfer-encoding")


VALUE_MARK = b"\0value\0"
"""Stands for a value that changes from call to call; no header can hold these bytes."""


class HeadTemplate:
    """A head in which nothing but some values change."""

    __slots__ = ("_parts",)

    def __init__(self, head: bytes) -> None:
        """Keep a head with VALUE_MARK in the place of each value that changes."""
        pieces = head.split(VALUE_MARK)
        self._parts = [b""] * (2 * len(pieces) - 1)
        self._parts[::2] = pieces

    def fill(self, values: Sequence[bytes]) -> bytes:
        """Return the head with these values.

        Raises:
            ValueError: there are more or fewer than marks.
        """
        parts = self._parts.copy()
        parts[1::2] = values
        return b"".join(parts)


def place_of(fields: RawFields, name: bytes) -> int:
    """Return where a header stands first, whose name is in lower case; -1 where there is none."""
    for place, (other, _) in enumerate(fields):
        if len(other) == len(name) and other.lower() == name:
            return place
    return -1


def with_values(fields: RawFields, places: Sequence[int], values: Sequence[bytes]) -> RawFields:
    """Return headers with other values at some places."""
    for at, place in enumerate(places):
        fields = (*fields[:place], (fields[place][0], values[at]), *fields[place + 1 :])
    return fields


def names(fields: RawFields) -> frozenset[bytes]:
    """Return the names of headers in lower case."""
    return frozenset([name.lower() for name, _ in fields])


def value_of(fields: RawFields, name: bytes) -> bytes | None:
    """Return the first value of a header, whose name is in lower case; None where there is none."""
    for other, value in fields:
        if len(other) == len(name) and other.lower() == name:
            return value
    return None


def with_header(fields: RawFields, name: bytes, value: bytes) -> RawFields:
    """Return headers with this one once: where it stood first, else at the end."""
    kept: list[tuple[bytes, bytes]] = []
    placed = False
    for other, old in fields:
        if other.lower() != name:
            kept.append((other, old))
        elif not placed:
            placed = True
            kept.append((other, value))
    return tuple(kept) if placed else (*kept, (name, value))


def capture_wish(fields: RawFields) -> _Wish:
    """Return what a client wants less than a full capture; of several wishes the strictest.

    A value of our header that nobody knows keeps nothing: a slip must not keep what was to go.
    """
    found: _Wish = None
    for name, value in fields:
        if len(name) in _LENGTHS:
            lower = name.lower()
            words = _WISHES.get(lower, {})
            wish = words.get(value.strip().lower(), "none" if lower == _OURS else None)
            if wish is not None and found != "none":
                found = wish
    return found


def content_length(fields: RawFields) -> int:
    """Return the Content-Length, -1 where there is none that ends the body."""
    length = -1
    for name, value in fields:
        size = len(name)
        if size == _CONTENT_LENGTH and name.lower() == b"content-length":
            length = int(value) if value.isdigit() else length
        elif size == _TRANSFER_ENCODING and name.lower() == b"transfer-encoding":
            return -1
    return length


def proxy_key(value: bytes) -> str | None:
    """Return the key in a Proxy-Authorization header: as password, as user, or as a bearer token."""
    scheme, _, rest = value.decode("latin-1").strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except ValueError:  # no base64, no UTF-8, or bytes beyond ASCII
        return None
    return password if password.startswith("hr_") else user


def host_of(authority: str | None) -> str | None:
    """Return the host of a Host header, without its port."""
    if not authority:
        return None
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()
