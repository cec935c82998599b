"""Bytes that come in pieces, until what they are of is whole."""

import re
from itertools import pairwise

LONGEST = 64 * 1024 * 1024
"""Bytes of an event, a line, or a compressed answer that are restored; longer ones stay as they are."""
_LONGEST_END = 4


class OpenPieces:
    """What has come of an event or a line; each byte is looked at once."""

    def __init__(self, end: re.Pattern[bytes]) -> None:
        """Wait for such an end."""
        self._end = end
        self._data = bytearray()
        self._seen = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return what ``data`` completes, its end included; what grows too long, in pieces."""
        self._data += data
        ends = [one.end() for one in self._end.finditer(self._data, self._seen)]
        if not ends and len(self._data) > LONGEST:
            return [self.left()]
        raw = bytes(self._data[: ends[-1]]) if ends else b""
        del self._data[: len(raw)]
        self._seen = max(len(self._data) - _LONGEST_END + 1, 0)
        return [raw[a:b] for a, b in pairwise([0, *ends])]

    def left(self) -> bytes:
        """Return what is left, once."""
        raw = bytes(self._data)
        self._data.clear()
        self._seen = 0
        return raw
