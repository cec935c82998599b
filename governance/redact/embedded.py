"""Texts that stand within a text as base64 or hexadecimal digits: found, opened and closed again.

Lines of one length that follow each other are one blob, as MIME and ``base64`` wrap it: a value that
goes over the end of a line is whole again.
"""

import binascii
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from governance.detect.named_tuples import new

_RUN = re.compile(r"(data:[\w.+\-/;=]{0,100};base64,)?([A-Za-z0-9+/_\-]{12,}={0,2})")
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


type Line = tuple[int, int]
"""Start and end of a span of the text that holds nothing but digits of a blob."""


class Blob(NamedTuple):
    """A run of digits, or lines of them."""

    lines: tuple[Line, ...]
    is_data: bool
    """Whether it says that it is base64 (a data URL)."""

    @property
    def start(self) -> int:
        """Where it begins in the text."""
        return self.lines[0][0]

    @property
    def end(self) -> int:
        """Where it ends in the text."""
        return self.lines[-1][1]

    def written(self, text: str) -> str:
        """Return its digits without the breaks between them."""
        if len(self.lines) == 1:
            ((start, end),) = self.lines
            return text[start:end]
        return "".join(text[start:end] for start, end in self.lines)

    def wrapped(self, written: str, text: str) -> str:
        """Return other digits in lines as long as its own."""
        if len(self.lines) == 1:
            return written
        (start, end), (following, _) = self.lines[:2]
        width, between = end - start, text[end:following]
        return between.join(written[at : at + width] for at in range(0, len(written), width))


class Content(NamedTuple):
    """What a blob says."""

    text: str | None
    """None: bytes that nobody can look into."""
    encoding: str = "utf-8"

    def __repr__(self) -> str:
        """Tell nothing of the text."""
        return f"Content({self.encoding})"

    def closed(self, text: str, like: str) -> str:
        """Return another text written as the blob was: alphabet, padding, case."""
        data = text.encode(
            self.encoding, "surrogatepass" if self.encoding == "utf-8" else "replace"
        )
        if _is_hex(like):
            prefix = like[:2] if like[1] in "xX" else ""
            lower = any(char in "abcdef" for char in like[2:])
            return prefix + (data.hex() if lower else data.hex().upper())
        again = binascii.b2a_base64(data, newline=False).decode("ascii")
        if "-" in like or "_" in like:
            again = again.replace("+", "-").replace("/", "_")
        return again if like.endswith("=") else again.rstrip("=")


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


def blobs(text: str) -> Iterator[Blob]:
    """Yield the blobs of a text, in order."""
    behind = 0
    for match in _RUN.finditer(text):
        first = match.span(2)
        if first[0] < behind:
            continue
        written = match[2]
        if (_is_hex(written) or not _is_mixed(written)) and not _HEX_TEXT.match(written):
            continue
        blob = new(Blob, ((first, *_following(text, *first)), match[1] is not None))
        behind = blob.end
        yield blob


def _following(text: str, start: int, at: int) -> list[Line]:
    """Return the lines that go on a blob: all as long as the first, but for the last, padded one."""
    width = at - start
    lines: list[Line] = []
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


def opened(written: str, *, is_data: bool) -> Content | None:
    """Return what a blob says; None when it is none, or bytes too few to hide anything in."""
    digits = _HEX_TEXT.match(written) if _is_hex(written) else None
    if digits is not None:
        content = _as_text(bytes.fromhex(digits[1]))
        return content if content is not None and content.encoding == "utf-8" else None
    plain = written.rstrip("=").replace("-", "+").replace("_", "/")
    if len(plain) % 4 == 1:
        plain = plain[:-1]
    try:
        data = binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
    except binascii.Error:
        return None
    content = _as_text(data)
    if content is None and (is_data or len(written) >= _OPAQUE_FROM or _is_packed(data)):
        return Content(None)
    return content


def _as_text(data: bytes) -> Content | None:
    """Return bytes as the text that they are, in UTF-8, UTF-16 or Latin-1."""
    if data.isascii() and len(data) >= _SHORTEST_TEXT and (text := data.decode()).isprintable():
        return new(Content, (text, "utf-8"))
    for encoding in _encodings(data):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if len(text) >= _SHORTEST_TEXT and (
            text.isprintable() or text.translate(_WITHOUT_BREAKS).isprintable()
        ):
            return new(Content, (text, encoding))
    return None


def _encodings(data: bytes) -> Iterator[str]:
    """Yield what the bytes may be; Latin-1 only where most of it is ASCII, as words with umlauts are."""
    yield "utf-8"
    if len(data) % 2 == 0 and data[1::2].count(0) * 5 > len(data) * 2:
        yield "utf-16-le"
    elif len(data.translate(None, _ASCII)) * 8 < len(data):
        yield "latin-1"


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
