"""JSON values of many megabytes, compressed and opened piece by piece: never whole beside their packed form.

Packed values are zlib streams (RFC 1950) one after another; what they open to belongs together, so
that a packed value is put into a larger one without being opened.
"""

import json
import zlib
from collections.abc import Iterator
from itertools import batched

from trajectory.canonical import JsonObject, JsonValue

_LEVEL = 1
"""The values are mostly hashes: no level makes them much smaller."""
_ROWS = 256
_CHUNK_BYTES = 256 * 1024


def packed_json(value: JsonObject) -> bytes:
    """Return a JSON object as one stream; its lists may be long."""
    stream = zlib.compressobj(_LEVEL)
    made = [stream.compress(piece.encode()) for piece in _pieces(value)]
    return b"".join([*made, stream.flush()])


def unpacked(data: bytes) -> Iterator[bytes]:
    """Yield what streams open to, in pieces.

    Raises:
        zlib.error: they are damaged or cut off.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        stream = zlib.decompressobj()
        while not stream.eof:
            if at >= len(view):
                raise zlib.error("cut off")
            chunk = view[at : at + _CHUNK_BYTES]
            yield stream.decompress(chunk)
            at += len(chunk) - len(stream.unused_data)


def _pieces(value: JsonObject) -> Iterator[str]:
    lead = "{"
    for name, item in value.items():
        yield f"{lead}{json.dumps(name)}:"
        yield from _rows(item) if isinstance(item, list) else (_json(item),)
        lead = ","
    yield "}" if value else "{}"


def _rows(rows: list[JsonValue]) -> Iterator[str]:
    lead = "["
    for some in batched(rows, _ROWS):
        yield lead + _json(list(some))[1:-1]
        lead = ","
    yield "]" if rows else "[]"


def _json(value: JsonValue) -> str:
    return json.dumps(value, separators=(",", ":"))


__all__ = ["packed_json", "unpacked"]
