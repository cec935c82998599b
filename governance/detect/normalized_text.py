"""A normalised view of a text with a map back: what evades patterns is undone, offsets stay true.

Zero-width characters vanish; odd spaces and dashes become plain ones. Digits of any script become ASCII,
and digits that are spelled one by one come together. ``\\u0040``, ``%40`` (also ``%2540``) and ``&#64;``
become the character that they encode, and so do the bytes of UTF-8 in URLs, mails, Python, git and LDAP.
An address that a line's end breaks after its ``@`` is whole. What terminals take for colours vanishes.
Patterns run on ``TextView.data``, which has exactly one byte per character of the view.
"""

import html
import re
import sys
import unicodedata
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from governance.detect.named_tuples import new

_HEX = "[0-9A-Fa-f]"


def _utf_8(mark: str, between: str = "", first: str = "") -> str:
    """Return the pattern of a character beyond ASCII whose bytes are written with a mark before each.

    It begins behind the first character of the first mark, ``first`` is what is left of that mark.
    """
    return f"{first}[C-Fc-f]{_HEX}(?:{between}{mark}[89ABab]{_HEX}){{1,3}}"


_NO_NUMBER = (
    rf"(?!(?:3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa])\d){_HEX}{{2}}"
    rf"(?!(?:(?<=['\"]%{_HEX}{_HEX})|(?<=\A%{_HEX}{_HEX}))\d)"
)
"""Two digits that do not begin a number, as in ``LIKE '%4155550132%'``: nobody escapes letters and digits."""
_BEHIND_PERCENT = rf"{_utf_8('%(?:25)*', first='(?:25)*')}|(?:25)*(?=[2-7]){_NO_NUMBER}"
_BEHIND_AMPERSAND = r"(?:\#0{0,40}[0-9]{1,7}|\#[xX]0{0,40}[0-9A-Fa-f]{1,6}|[A-Za-z]{2,10});"
_BEHIND_BACKSLASH = (
    rf"{_utf_8(r'\\{1,2}x?', first=r'\\?x?')}"
    r"|3[0-7]{2}(?:\\2[0-7]{2}){1,3}"
    rf"|u{_HEX}{{4}}|u\{{0{{0,40}}{_HEX}{{1,6}}\}}|U00{_HEX}{{6}}|x[2-7C-Fc-f]{_HEX}|[nrt\"'/]"
)
_BEHIND_BREAK = r"[ \t>]*(?=[^\W_][\w\-]*(?:\.[\w\-]+)*\.[A-Za-z]{2})"
_ESCAPED = (
    # The characters that one of these begins with stand first: so `re` passes over all others at once.
    r"[^\x00-\x09\x0b\x0c\x0e-\x1a\x1c-\x24\x27-\x3c\x3e-\x5b\x5d-\x7f](?:"
    r"(?<=[^\x00-\x7f])"
    rf"|(?<=%)(?:{_BEHIND_PERCENT})"
    r"|(?<=\x1b)\[[0-9;?]{0,16}[A-Za-z]"
    rf"|(?<=&){_BEHIND_AMPERSAND}"
    rf"|(?<=\\)(?:{_BEHIND_BACKSLASH})"
    rf"|(?<==){_utf_8('=', '(?:=\r?\n)?')}"
    rf"|(?:(?<=[^\W_]@\n)|(?<=[^\W_]@\r)\n){_BEHIND_BREAK}"
    r")"
)
_ODD = re.compile(_ESCAPED)
_ODD_IN_MAIL = re.compile(
    rf"{_ESCAPED}|=(?:[2-7A-F][0-9A-F]|0[9AD]|9[1-46]|\r?\n)|_(?=[^\s?]{{0,75}}\?=)"
)
"""As quoted-printable has it (RFC 2045). Elsewhere ``=41`` may begin a number."""
_SAYS_QUOTED = re.compile(r"quoted-printable|=\?[\w\-]{1,40}\?q\?", re.IGNORECASE)
_HINTS = ("=?", "uoted-", "UOTED-")
_SOFT_BREAK = re.compile(r"=\r?\n")
_BYTES = re.compile(rf"(?:%(?:25)*|=|\\x?)({_HEX}{{2}})")
_OCTAL = re.compile(r"\\([0-7]{3})")
_MAYBE_ODD = re.compile(r"[^\x00-\x1a\x1c-\x24\x27-\x3c\x3e-\x5b\x5d-\x7f]")
_SPACED = re.compile(r"\d(?<![\d\-.]\d)(?=([ \-]))(?:\1\d(?!\d)){6,}(?![\-.]\d)")
"""Seven and more single digits with the same mark between them."""
_SHORTEST_SPACED = 13
_ESCAPES = re.compile(r"[%&\\=\x1b]")
_SHORT = 64
_SHORT_ESCAPES = {
    "_": " ",
    r"\n": "\n",
    r"\r": "\n",
    r"\t": " ",
    r"\"": '"',
    r"\'": "'",
    r"\/": "/",
}
_UPPER, _LOWER, _LETTER, _OTHER = "\xc0", "\xe0", "\xaa", "\xa6"
_MOST_REMEMBERED = 8192
_LISTED = 4096


class _CharacterMap(dict[str, str]):
    """What characters are read as, worked out once for those that are met."""

    def __init__(self, read: Callable[[str], str]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, char: str) -> str:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        made = self[char] = self._read(char)
        return made


def _stand_in(char: str) -> str:
    """Stand in for a character outside Latin-1: a letter stays a letter, case kept."""
    if char <= "\xff":
        return char
    if not char.isalpha():
        return _OTHER
    return _UPPER if char.isupper() else _LOWER if char.islower() else _LETTER


def _folded(char: str) -> str:
    """Return what one non-ASCII character is read as; empty when it is invisible."""
    if char.isascii():
        return char
    category = unicodedata.category(char)
    if category in ("Cf", "Mn", "Me") or char in "\u115f\u1160\u3164\uffa0":
        return ""
    if category == "Nd":
        return str(unicodedata.digit(char))
    if category == "Pd" or char in "\u2212\u00ad\u02d7\u2043":
        return "-"
    if category in ("Zs", "Zl", "Zp"):
        return "\n" if category != "Zs" else " "
    if char in "\u2018\u2019\u201b\u02bc":
        return "'"
    plain = unicodedata.normalize("NFKC", char)
    return plain if plain != char and plain.isascii() else char


_FOLDED, _LATIN_1 = _CharacterMap(_folded), _CharacterMap(_stand_in)


def in_latin_1(text: str) -> str:
    """Return a text with a stand-in for each character beyond Latin-1, as ``TextView.data`` has it."""
    return "".join(map(_LATIN_1.__getitem__, text))


def _bytes_of(text: str) -> bytes:
    """Return one byte for each character of a view."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return in_latin_1(text).encode("latin-1")


@lru_cache(maxsize=4096)
def _decoded(piece: str) -> str:
    """Return what one escape stands for, or the piece itself when it stands for nothing."""
    if piece in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[piece]
    if piece[0] in "\r\n\x1b":
        return ""
    if piece[0] == "&":
        char = html.unescape(piece)
    elif piece[1] in "xuU" and piece.count("\\") == 1:
        number = int(piece[2:].strip("{}"), 16)
        char = chr(number) if number <= sys.maxunicode else ""
    elif piece[-1] == "\n":
        return ""
    else:
        char = _of_bytes(piece)
    if len(char) != 1 or unicodedata.category(char) == "Cs":
        return piece
    return _FOLDED[char]


def _of_bytes(piece: str) -> str:
    """Return the text of bytes that are written one by one; nothing where they are none."""
    octal = bytes(int(one, 8) for one in _OCTAL.findall(piece))
    data = octal or bytes.fromhex("".join(_BYTES.findall(piece)))
    try:
        char = data.decode()
    except UnicodeDecodeError:
        char = data.decode("cp1252", "replace") if len(data) == 1 else ""
    return "\n" if char == "\r" else " " if char == "\t" else char


type Places = array[int] | list[int]


class TextView(NamedTuple):
    """A text as detectors see it."""

    original: str
    text: str
    """The view: same length as ``data``."""
    data: bytes
    """One byte per character (Latin-1; letters of other scripts as a stand-in letter)."""
    starts: Places | None = None
    """Where each view character begins in the original; None when both are the same."""
    ends: Places | None = None

    def __repr__(self) -> str:
        """Tell nothing of the text."""
        return f"TextView({len(self.text)} characters)"

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that a non-empty span of the view stands for."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]


def view_of(text: str) -> TextView:
    """Return the view of a text; costs two scans when there is nothing odd in it."""
    if text.isascii() and text.isalnum():
        return new(TextView, (text, text, text.encode(), None, None))
    view = _decoded_view(text)
    if len(view.text) < _SHORTEST_SPACED or _SPACED.search(view.text) is None:
        return view
    return _with_joined_digits(view)


def read_as(text: str) -> str:
    """Return the view's text alone: at once when there is nothing odd in it."""
    if _is_odd(text) or (len(text) >= _SHORTEST_SPACED and _SPACED.search(text) is not None):
        return view_of(text).text
    return text


def _with_joined_digits(view: TextView) -> TextView:
    """Return the view without what stands between single digits: 4 1 5 5 5 5 0 1 9 9."""
    pieces: list[str] = []
    starts, ends = array("l"), array("l")
    at = 0

    def keep(begin: int, end: int) -> None:
        pieces.append(view.text[begin:end])
        starts.extend(range(begin, end) if view.starts is None else view.starts[begin:end])
        ends.extend(range(begin + 1, end + 1) if view.ends is None else view.ends[begin:end])

    for match in _SPACED.finditer(view.text):
        keep(at, match.start())
        for place in range(match.start(), match.end(), 2):
            keep(place, place + 1)
        at = match.end()
    keep(at, len(view.text))
    joined = "".join(pieces)
    return TextView(view.original, joined, _bytes_of(joined), starts, ends)


def _is_odd(text: str) -> bool:
    """Whether there may be anything in a text that stands for something else."""
    if "@\n" in text or "@\r\n" in text:
        return _odd_in(text).search(text) is not None
    if _MAYBE_ODD.search(text) is None:
        return False
    if len(text) < _SHORT and _ESCAPES.search(text) is None:
        return "".join(map(_FOLDED.__getitem__, text)) != text
    return _odd_in(text).search(text) is not None


def _odd_in(text: str) -> re.Pattern[str]:
    """Return what may stand for something else in a text."""
    if "=" not in text:
        return _ODD
    is_mail = any(hint in text for hint in _HINTS) and _SAYS_QUOTED.search(text) is not None
    if is_mail or ("=3D" in text and _SOFT_BREAK.search(text) is not None):
        return _ODD_IN_MAIL
    return _ODD


def _places(text: str) -> Places:
    """Return room for a place for each character: a list is filled twice as fast and takes much more."""
    return [] if len(text) <= _LISTED else array("l")


def _decoded_view(text: str) -> TextView:
    if not _is_odd(text):
        return new(TextView, (text, text, _bytes_of(text), None, None))
    pieces: list[str] = []
    starts, ends = _places(text), _places(text)
    at = 0
    for match in _odd_in(text).finditer(text):
        begin, end = match.span()
        piece = match.group()
        read = _FOLDED[piece] if piece > "\x7f" else _decoded(piece)
        if read == piece:
            continue
        if begin > at:
            pieces.append(text[at:begin])
            starts.extend(range(at, begin))
            ends.extend(range(at + 1, begin + 1))
        for char in read:
            pieces.append(char)
            starts.append(begin)
            ends.append(end)
        at = end
    if at == 0 and not pieces:
        return new(TextView, (text, text, _bytes_of(text), None, None))
    pieces.append(text[at:])
    starts.extend(range(at, len(text)))
    ends.extend(range(at + 1, len(text) + 1))
    joined = "".join(pieces)
    return TextView(text, joined, _bytes_of(joined), starts, ends)
