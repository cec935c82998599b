"""Segments and frames: how records lie on disk, sealed with AES-GCM and checksummed.

A segment is a file that only grows::

    header   magic 8 | salt 16 | key name 8 | crc32 4
    frame    mark 3 | kind 1 | length 4 | crc32 4 | sealed record (length bytes)

Each segment has a key of its own, derived from the spool key and the salt. The nonce of a frame
is its offset in the file, so a frame opens only where it was written. No nonce repeats, for no
offset is written twice: a writer whose write failed goes on in a new segment.
The checksum covers the frame's head and its offset; GCM's tag covers the record and its kind.
"""

import hmac
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trajectory.errors import IntegrityError

SEGMENT_MAGIC = b"HRSPOOL1"
SEGMENT_HEADER_BYTES = 36
FRAME_HEADER_BYTES = 12
MAX_RECORD_BYTES = 16 * 1024 * 1024

_SEGMENT = struct.Struct(">8s16s8sI")
_FRAME = struct.Struct(">3sBII")
_MARK = b"\xa7HR"
_KINDS = tuple(bytes([kind]) for kind in range(256))


def key_name(key: bytes) -> bytes:
    """Return the eight bytes by which a segment says which key sealed it."""
    return blake2b(b"name", digest_size=8, key=key, person=b"headrace-spool").digest()


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, b"headrace spool segment" + salt, "sha256"))


class SegmentSealer:
    """Seals records for one new segment."""

    __slots__ = ("_encrypt", "header")

    def __init__(self, key: bytes) -> None:
        salt = os.urandom(16)
        head = SEGMENT_MAGIC + salt + key_name(key)
        self.header = head + crc32(head).to_bytes(4, "big")
        self._encrypt = _cipher(key, salt).encrypt

    def seal(self, offset: int, kind: int, record: bytes) -> bytes:
        """Return the frame of ``record`` for exactly this offset."""
        return b"".join(self.seal_all(offset, ((kind, record),))[0])

    def seal_all(self, offset: int, kept: Iterable[tuple[int, bytes]]) -> tuple[list[bytes], int]:
        """Return the frames of records that lie one behind the other, in parts, and their end.

        Raises:
            ValueError: a record is larger than a frame may be.
        """
        encrypt = self._encrypt
        parts: list[bytes] = []
        for kind, record in kept:
            if len(record) > MAX_RECORD_BYTES:
                raise ValueError(f"a spool record may have {MAX_RECORD_BYTES} bytes at most")
            sealed = encrypt(offset.to_bytes(12, "big"), record, _KINDS[kind])
            length = len(sealed)
            check = crc32(b"%x %x %x" % (kind, length, offset))
            parts += (_FRAME.pack(_MARK, kind, length, check), sealed)
            offset += FRAME_HEADER_BYTES + length
        return parts, offset


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame found in a segment; ``record`` is None where its seal is broken."""

    kind: int
    offset: int
    end: int
    record: bytes | None


class SegmentOpener:
    """Reads the frames of one segment.

    Raises:
        IntegrityError: the header is damaged, or no given key sealed this segment.
    """

    __slots__ = ("_decrypt",)

    def __init__(self, header: bytes, keys: Sequence[bytes], *, where: str) -> None:
        if len(header) < SEGMENT_HEADER_BYTES:
            raise IntegrityError(
                f"{where}: the segment header is cut off; the segment holds nothing"
            )
        magic, salt, name, check = _SEGMENT.unpack(header[:SEGMENT_HEADER_BYTES])
        if magic != SEGMENT_MAGIC or crc32(header[: SEGMENT_HEADER_BYTES - 4]) != check:
            raise IntegrityError(
                f"{where}: the segment header is damaged; the segment cannot be read"
            )
        for key in keys:
            if key_name(key) == name:
                self._decrypt = _cipher(key, salt).decrypt
                return
        raise UnknownKeyError(
            f"{where}: sealed under a key that was not given; "
            "restore the master key that the gateway used when it wrote this segment"
        )

    def open(self, kind: int, offset: int, sealed: bytes) -> bytes | None:
        """Return the record, or None where the seal is broken."""
        try:
            return self._decrypt(offset.to_bytes(12, "big"), sealed, _KINDS[kind])
        except InvalidTag:
            return None

    def frames(self, data: bytes, base: int) -> Iterator[Frame]:
        """Yield the frames of ``data``, which begins at offset ``base`` of the segment.

        A damaged stretch shows as a gap between one frame's end and the next one's offset.
        A frame that is cut off at the end of ``data`` is not yielded.
        """
        at = 0
        while (found := find_frame(data, at, base)) is not None:
            kind, length, start = found
            at = start + FRAME_HEADER_BYTES + length
            if at > len(data):
                return
            sealed = data[start + FRAME_HEADER_BYTES : at]
            record = self.open(kind, base + start, sealed)
            yield Frame(kind, base + start, base + at, record)


def is_cut_off(data: bytes, base: int) -> bool:
    """Whether ``data``, all that follows from offset ``base`` on, is the beginning of one frame.

    A kill in the middle of a write leaves that: the kernel takes large writes page by page.
    """
    if len(data) < FRAME_HEADER_BYTES:
        return _MARK.startswith(data[: len(_MARK)])
    found = find_frame(data, 0, base)
    return found is not None and found[2] == 0 and FRAME_HEADER_BYTES + found[1] > len(data)


class UnknownKeyError(IntegrityError):
    """A segment is sealed under a key that was not given: nothing is skipped, nothing is lost."""


def find_frame(data: bytes, at: int, base: int) -> tuple[int, int, int] | None:
    """Return (kind, length, position in ``data``) of the first sound frame head from ``at`` on."""
    while True:
        start = data.find(_MARK, at)
        if start < 0 or start + FRAME_HEADER_BYTES > len(data):
            return None
        _, kind, length, check = _FRAME.unpack_from(data, start)
        if check == crc32(b"%x %x %x" % (kind, length, base + start)):
            return kind, length, start
        at = start + 1
