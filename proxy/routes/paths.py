"""Paths as an upstream may read them: decoded once or more, with either slash as a separator."""

import re
from unicodedata import normalize
from urllib.parse import unquote_to_bytes

_SEPARATORS = re.compile(rb"[/\\]")
_UNSEEN = re.compile(rb"[\x00-\x20\x7f]")
"""What some servers leave out of a name: control characters, and spaces."""
_ENDS = re.compile(rb"[;#?]"), re.compile(rb"[;#?\x00]")
"""Where a name ends for some servers; NUL does for those that do not leave it out."""
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_WIDE = re.compile(rb"%u([0-9a-f]{4})", re.IGNORECASE)
"""Characters as older servers of Microsoft's code them."""
_LENIENT = tuple(
    (odd, plain)
    for plain, odds in (
        (b".", (b"\xc0\xae", b"\xe0\x80\xae", b"\xc0.")),
        (b"/", (b"\xc0\xaf", b"\xe0\x80\xaf", b"\xc0/")),
        (b"\\", (b"\xc1\x9c", b"\xe0\x81\x9c", b"\xc1\\")),
    )
    for odd in odds
)
"""What lenient decoders take for dots and slashes: bytes that are no UTF-8."""
_DECODED_TIMES = 4
"""Fronts and frameworks decode a path once or twice; one that goes on changing means harm."""


def climbs(path: bytes) -> bool:
    """Tell whether a path leads up by some server's reading: ``..`` between any two separators."""
    for _ in range(_DECODED_TIMES):
        if _leads_up(path):
            return True
        decoded = _decoded(path)
        if decoded == path:
            return False
        path = decoded
    return True


def lenient_reading(path: bytes) -> str | None:
    """Return a path as the most lenient server reads it: decoded, with single slashes, plain names alone.

    None where nobody can tell. Either it goes on changing as it is decoded, or it holds control characters, which
    end a name for some servers and which others leave out.
    """
    for _ in range(_DECODED_TIMES):
        decoded = _decoded(path)
        if decoded == path:
            break
        path = decoded
    else:
        return None
    path = _plain(path)
    if _CONTROL.search(path):
        return None
    segments = [_ENDS[0].split(one, 1)[0].strip(b" ") for one in _SEPARATORS.split(path)]
    names = [one for one in segments if one not in (b"", b".")]
    end = b"/" if names and not segments[-1] else b""
    return (b"/" + b"/".join(names) + end).decode("utf-8", "surrogateescape")


def _decoded(path: bytes) -> bytes:
    return _WIDE.sub(_narrow, unquote_to_bytes(path))


def _narrow(coded: re.Match[bytes]) -> bytes:
    return chr(int(coded[1], 16)).encode("utf-8", "surrogatepass")


def _leads_up(path: bytes) -> bool:
    return any(
        _UNSEEN.sub(b"", ends.split(segment, 1)[0]) == b".."
        for segment in _SEPARATORS.split(_plain(path))
        for ends in _ENDS
    )


def _plain(path: bytes) -> bytes:
    """Return a path with plain characters for those that mean the same: wide ones, dots in one sign."""
    if path.isascii():
        return path
    for odd, plain in _LENIENT:
        path = path.replace(odd, plain)
    text = path.decode("utf-8", "surrogateescape")
    return normalize("NFKC", text).encode("utf-8", "surrogateescape")


def lies_below(path: bytes, base: bytes) -> bool:
    """Tell whether a request's path, with its query, is ``base`` or leads on from there.

    Without a base everything does; with one nothing that leads up, wherever it would end.
    """
    if not base:
        return True
    if not path.startswith(base) or path[len(base) : len(base) + 1] not in (b"/", b"?", b""):
        return False
    return not climbs(path.partition(b"?")[0])
