"""Paths as an upstream may read them: decoded once or more, with either slash as a separator."""

import re
from urllib.parse import unquote_to_bytes

_SEPARATORS = re.compile(rb"[/\\]")
_UNSEEN = re.compile(rb"[\x00-\x20\x7f]")
"""What some servers leave out of a name: control characters, and spaces."""
_OVERLONG = ((b"\xc0\xae", b"."), (b"\xc0\xaf", b"/"), (b"\xc1\x9c", b"\\"))
"""Dots and slashes in more bytes than UTF-8 allows: lenient decoders take them."""
_DECODED_TIMES = 4
"""Fronts and frameworks decode a path once or twice; one that goes on changing means harm."""


def climbs(path: bytes) -> bool:
    """Tell whether a path leads up by some server's reading: ``..`` between any two separators."""
    for _ in range(_DECODED_TIMES):
        if _leads_up(path):
            return True
        decoded = unquote_to_bytes(path)
        if decoded == path:
            return False
        path = decoded
    return True


def _leads_up(path: bytes) -> bool:
    for overlong, plain in _OVERLONG:
        path = path.replace(overlong, plain)
    return any(
        _UNSEEN.sub(b"", segment.partition(b";")[0]) == b".." for segment in _SEPARATORS.split(path)
    )


def lies_below(path: bytes, base: bytes) -> bool:
    """Tell whether a request's path, with its query, is ``base`` or leads on from there.

    Without a base everything does; with one nothing that leads up, wherever it would end.
    """
    if not base:
        return True
    if not path.startswith(base) or path[len(base) : len(base) + 1] not in (b"/", b"?", b""):
        return False
    return not climbs(path.partition(b"?")[0])
