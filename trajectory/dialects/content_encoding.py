"""Content encodings of HTTP bodies: gzip, deflate, brotli and zstandard, cut short or hostile.

A body that breaks off gives what could be decoded until there; a body that grows beyond the
limit is given up, so that a few kilobytes cannot fill the memory.
"""

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

DECODED_LIMIT = 256 * 1024 * 1024
"""Bytes that a decoded body may have."""

_ENCODINGS_LIMIT = 4
_MEMBERS_LIMIT = 4096
"""Compressed members that follow each other in one body: each costs a look at all that is left."""


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """A body without its content encoding."""

    data: bytes = field(repr=False)
    truncated: bool = False
    """The encoded body breaks off before its end."""
    problem: str | None = None
    """Why it could not be decoded, in fixed words; ``data`` is then empty."""


def decode_body(
    body: bytes, content_encoding: str | None, *, limit: int = DECODED_LIMIT
) -> DecodedBody:
    """Undo ``content_encoding`` (a header's value, several encodings separated by commas).

    Never raises; what cannot be decoded comes back with its ``problem``.
    """
    names = [name.strip().lower() for name in (content_encoding or "").split(",")]
    names = [name for name in names if name and name != "identity"]
    if len(names) > _ENCODINGS_LIMIT:
        return DecodedBody(b"", problem="encoding:too-many")
    decoded = DecodedBody(body)
    for name in reversed(names):
        decoder = _DECODERS.get(name)
        if decoder is None:
            return DecodedBody(b"", problem="encoding:unknown")
        if not decoded.data:
            break
        step = decoder(decoded.data, limit)
        if step.problem is not None:
            return step
        decoded = DecodedBody(step.data, truncated=decoded.truncated or step.truncated)
    return decoded


def _inflate(body: bytes, limit: int, window_bits: int) -> DecodedBody:
    out = bytearray()
    rest = body
    for _ in range(_MEMBERS_LIMIT):
        inflater = zlib.decompressobj(window_bits)
        try:
            out += inflater.decompress(rest, limit + 1 - len(out))
        except zlib.error:
            # After a whole member, what follows is padding; without one, the body is broken.
            return DecodedBody(bytes(out)) if out else DecodedBody(b"", problem="encoding:broken")
        if len(out) > limit or inflater.unconsumed_tail:
            return DecodedBody(b"", problem="encoding:too-large")
        if not inflater.eof:
            return DecodedBody(bytes(out), truncated=True)
        rest = inflater.unused_data
        if not rest:
            return DecodedBody(bytes(out))
    return DecodedBody(b"", problem="encoding:too-many")


def _gzip(body: bytes, limit: int) -> DecodedBody:
    return _inflate(body, limit, 16 + zlib.MAX_WBITS)


def _deflate(body: bytes, limit: int) -> DecodedBody:
    decoded = _inflate(body, limit, zlib.MAX_WBITS)
    if decoded.problem == "encoding:broken":
        return _inflate(body, limit, -zlib.MAX_WBITS)
    return decoded


def _brotli(body: bytes, limit: int) -> DecodedBody:
    try:
        brotli = import_module("brotli")
    except ImportError:
        return DecodedBody(b"", problem="encoding:br-not-installed")
    decompressor = brotli.Decompressor()
    out = bytearray()
    piece = body
    try:
        while True:
            out += decompressor.process(piece, output_buffer_limit=1024 * 1024)
            piece = b""
            if len(out) > limit:
                return DecodedBody(b"", problem="encoding:too-large")
            if decompressor.is_finished() or decompressor.can_accept_more_data():
                break
    except brotli.error:
        return DecodedBody(b"", problem="encoding:broken")
    return DecodedBody(bytes(out), truncated=not decompressor.is_finished())


def _zstandard(body: bytes, limit: int) -> DecodedBody:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=2**27)
    try:
        with decompressor.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
            out = reader.read(limit + 1)
    except zstandard.ZstdError:
        return DecodedBody(b"", problem="encoding:broken")
    if len(out) > limit:
        return DecodedBody(b"", problem="encoding:too-large")
    return DecodedBody(out, truncated=not out)


_DECODERS: dict[str, Callable[[bytes, int], DecodedBody]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstandard,
}

__all__ = ["DECODED_LIMIT", "DecodedBody", "decode_body"]
