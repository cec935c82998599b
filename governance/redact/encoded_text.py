"""Texts that stand within a text as base64 or hexadecimal digits.

Consecutive lines of one length are one blob, as MIME and ``base64`` wrap it. A value that crosses the end of a
line is whole again.
"""

import binascii
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from governance.detect.named_tuples import new

_RUN = re.compile(r"[A-Za-z0-9+/_\-]{12,}={0,2}")
_SAYS_SO = ";base64,"
"""Stands before the digits of a data URL."""
_BREAK = re.compile(r"(?:\r?\n|(?:\\r)?\\n)[ \t]{0,8}")
_LINE = re.compile(r"[A-Za-z0-9+/_\-]{2,}={0,2}(?![\w+/=])")
_SHORTEST_LINE = 48
_HEX = re.compile(r"(?:0[xX])?[0-9a-fA-F\-]+\Z")
_HEX_BEGINS = "0123456789abcdefABCDEF-"
_HEX_TEXT = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2}){12,})\Z")
_MAY_BE_A_NAME = re.compile(
    r"(?<![A-Za-z0-9_])[A-Z](?:[a-z]*(?:[A-Z][a-z]+)?|[A-Z]*)(?![A-Za-z0-9_])"
)
"""A word among digits, their marks around it, that is written as a name is."""
_WITHOUT_BREAKS = dict.fromkeys(map(ord, "\n\r\t"))
_SHORTEST_TEXT = 6
_OPAQUE_FROM = 512
"""From this length on bytes that are no text may hold an image, a voice, a document."""
_ASCII = bytes(range(128))
_COMPRESSED = (
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"BZh",
    b"\xfd7zXZ\0",
    b"PK\x03\x04",
    b"7z\xbc\xaf",
)
"""How gzip, zstd, bzip2, xz, zip and 7z begin."""
_RECORDED = (
    b"\x89PNG\r\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"RIFF",
    b"OggS",
    b"fLaC",
    b"ID3",
    b"FMR\0",
    b"FIR\0",
)
"""How pictures, voices and records of fingers (ISO 19794) begin: PNG, JPEG, GIF, WebP and WAV, Ogg, FLAC, MP3."""
_PACKED = (*_COMPRESSED, *_RECORDED)

type _Line = tuple[int, int]
"""Start and end of a span of the text that holds nothing but digits of a blob."""


class EncodedRun(NamedTuple):
    """A run of digits within a text, or lines of them."""

    start: int
    end: int
    text: str | None
    """What the digits say; None when they are no text."""
    is_opaque: bool
    """Whether they are bytes that nobody can look into."""
    parts: tuple["EncodedRun", ...] = ()
    """Its lines. Each may be a blob of its own; the last may be a word that looks like one."""

    def __repr__(self) -> str:
        """Tell nothing of the text."""
        return f"Encoded({self.start}, {self.end})"


def encoded_in(text: str) -> list[EncodedRun]:
    """Return the base64 and hexadecimal digits in a text, in order."""
    found: list[EncodedRun] = []
    behind = 0
    for match in _RUN.finditer(text):
        start, end = match.span()
        if start < behind:
            continue
        written = match[0]
        if (_is_hex(written) or not _is_mixed(written)) and not _HEX_TEXT.match(written):
            continue
        lines = [(start, end), *_following(text, start, end)]
        found.append(_opened(text, lines, is_data=text.startswith(_SAYS_SO, start - 8)))
        behind = found[-1].end
    return found


def is_nothing_but_digits(text: str, found: Sequence[EncodedRun]) -> bool:
    """Whether a text is the digits of something, which cannot be a name as well.

    Args:
        text: the text.
        found: what :func:`encoded_in` found in it.
    """
    if len(found) != 1 or (found[0].text is None and not found[0].is_opaque):
        return False
    return found[0].end - found[0].start == len(text) and not found[0].parts and not may_name(text)


def may_name(written: str) -> bool:
    """Whether there may be a name in digits themselves: one ``Lionel/Walter`` in 2,000 says something."""
    if written.isalnum():  # one word
        return _MAY_BE_A_NAME.match(written) is not None
    return _MAY_BE_A_NAME.search(written) is not None


def _is_hex(written: str) -> bool:
    return written[0] in _HEX_BEGINS and _HEX.match(written) is not None


def _is_mixed(written: str) -> bool:
    """Whether there are small letters, and great ones or decimal digits."""
    if written.upper() == written:
        return False
    return written.lower() != written or any(map(str.isdecimal, written))


def _following(text: str, start: int, at: int) -> list[_Line]:
    """Return the lines that go on a blob: all as long as the first, but for the last, padded one."""
    width = at - start
    lines: list[_Line] = []
    if width < _SHORTEST_LINE or width % 4:
        return lines
    while text[at - 1] != "=" and (gap := _BREAK.match(text, at)) is not None:
        line = _LINE.match(text, gap.end())
        if line is None or line.end() - line.start() > width or len(line.group()) % 4:
            break
        lines.append(line.span())
        at = line.end()
        if line.end() - line.start() < width:
            break
    return lines


def _opened(text: str, lines: Sequence[_Line], *, is_data: bool) -> EncodedRun:
    written = "".join([text[start:end] for start, end in lines])
    said, is_opaque = decoded(written, is_data=is_data)
    parts: tuple[EncodedRun, ...] = ()
    if len(lines) > 1 and not is_opaque:
        pieces = [lines[:-1], lines[-1:]] if said is None else [[line] for line in lines]
        parts = tuple(_opened(text, piece, is_data=is_data) for piece in pieces)
    return new(EncodedRun, (lines[0][0], lines[-1][1], said, is_opaque, parts))


def decoded(written: str, *, is_data: bool) -> tuple[str | None, bool]:
    """Return what digits say, None when they are no text, and whether they are opaque bytes.

    Args:
        written: the digits.
        is_data: whether they are said to be base64, by a data URL.
    """
    digits = _HEX_TEXT.match(written) if _is_hex(written) else None
    if digits is not None:
        return _as_text(bytes.fromhex(digits[1]), encodings=("utf-8",)), False
    plain = written.rstrip("=").replace("-", "+").replace("_", "/")
    if len(plain) % 4 == 1:
        plain = plain[:-1]
    try:
        data = binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
    except binascii.Error:
        return None, False
    said = _as_text(data, encodings=_encodings(data))
    if said is not None:
        return said, False
    return None, is_data or len(written) >= _OPAQUE_FROM or _is_packed(data)


def _as_text(data: bytes, *, encodings: Sequence[str]) -> str | None:
    """Return bytes as the text that they are, in the first of these encodings that fits."""
    if data.isascii() and len(data) >= _SHORTEST_TEXT and (text := data.decode()).isprintable():
        return text
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if len(text) >= _SHORTEST_TEXT and (
            text.isprintable() or text.translate(_WITHOUT_BREAKS).isprintable()
        ):
            return text
    return None


def _encodings(data: bytes) -> tuple[str, ...]:
    """Return what bytes may be; Latin-1 only where most of it is ASCII, as words with umlauts are."""
    if len(data) % 2 == 0 and data[1::2].count(0) * 5 > len(data) * 2:
        return "utf-8", "utf-16-le"
    if len(data.translate(None, _ASCII)) * 8 < len(data):
        return "utf-8", "latin-1"
    return ("utf-8",)


def _is_packed(data: bytes) -> bool:
    """Whether bytes are compressed or a recording: what was packed or drawn may be a text."""
    if data.startswith(_PACKED):
        return True
    if data[:1] != b"\x78" or int.from_bytes(data[:2]) % 31:
        return False
    try:
        return bool(zlib.decompressobj().decompress(data, _SHORTEST_TEXT))
    except zlib.error:
        return False
