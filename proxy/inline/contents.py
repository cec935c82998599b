"""Files and batches on their way back: lists of them, their names, and what they hold.

What they hold comes back a line at a time, however long it is.
"""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from proxy.inline.answers import CallSurrogates
from proxy.inline.pieces import OpenPieces
from proxy.inline.requests import is_json
from proxy.inline.restorer import TextRestorer
from proxy.request_json import dumped

_LITERAL = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"')
_LINE = re.compile(rb"\n")
_MOST_LISTED = 1000
"""Objects of a list that are looked up: the newest come first, and what is old is not known any more."""
_NAME = re.compile(
    r'; *filename(?:="(?P<quoted>(?:[^"\\]|\\.)*)"|=(?P<word>[^\s;"]+)'
    r"|\*=utf-8'[^']*'(?P<encoded>[^\s;]+))",
    re.IGNORECASE,
)
"""The name of a file in a header: in quotes, as a word, or with its letters encoded."""
_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r'["\\]')
_NOT_PLAIN = re.compile(r"[^ -~]")
"""What stands in a header in no way but encoded."""


class BodyRestorer(Protocol):
    """Restores a body that comes in pieces."""

    def feed(self, data: bytes) -> bytes:
        """Take a piece; return what can go on."""
        ...

    def close(self) -> bytes:
        """Return what is left at the end."""
        ...


def restored_object(value: Any, surrogates: CallSurrogates) -> Any:
    """Return an answer restored; who goes on from it may."""
    if isinstance(value, dict):
        surrogates.answered(value)
    told = surrogates.value(value)
    if not isinstance(told, dict) or told.get("type") != "message_batch":
        return told
    # Results are restored where they pass: the path alone leads there.
    url = told.get("results_url")
    if not isinstance(url, str):
        return told
    return {**told, "results_url": urlsplit(url)._replace(scheme="", netloc="").geturl()}


def restored_list(value: Any, surrogates: CallSurrogates) -> Any:
    """Return a list of what a provider keeps: what the key has made is restored, the rest is left.

    Returns:
        None for what is no such list.
    """
    listed = value.get("data") if isinstance(value, dict) else None
    if not surrogates.asks_for_list or not isinstance(listed, list):
        return None

    def restored(one: Any) -> Any:
        named = one.get("id") if isinstance(one, dict) else None
        known = surrogates.inner(named) if isinstance(named, str) else None
        if known is None:
            return one
        told = restored_object(one, known)
        surrogates.add(known)
        return told

    return {**value, "data": [*map(restored, listed[:_MOST_LISTED]), *listed[_MOST_LISTED:]]}


def restored_disposition(header: bytes, surrogates: CallSurrogates) -> bytes:
    """Return a ``content-disposition`` that names a file as who uploaded it did."""
    text = header.decode("utf-8", "surrogateescape")
    named = [*_NAME.finditer(text)]
    said = [unquote(one["encoded"]) for one in named if one["encoded"]]
    said += [_ESCAPED.sub(r"\1", one["quoted"]) for one in named if one["quoted"]]
    said += [one["word"] for one in named if one["word"]]
    told = surrogates.text(said[0]) if said else ""
    if not said or told == said[0]:
        return header
    plain = _NOT_PLAIN.sub("_", told)
    names = f'; filename="{_SPECIAL.sub(r"\\\g<0>", plain)}"'
    if plain != told:
        names += f"; filename*=UTF-8''{quote(told, safe='', errors='replace')}"
    return (_NAME.sub("", text) + names).encode("utf-8", "surrogateescape")


class FileTextRestorer:
    """Restores a text that its client has uploaded."""

    def __init__(self, surrogates: CallSurrogates) -> None:
        """Restore what was issued for it."""
        self._surrogates = surrogates
        self._restorer = TextRestorer(surrogates.issued)
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, data: bytes) -> bytes:
        """Return what can go on of a piece."""
        told = self._restorer.feed(self._decoder.decode(data))
        return told.encode("utf-8", "surrogateescape")

    def close(self) -> bytes:
        """Return what is left."""
        told = self._restorer.feed(self._decoder.decode(b"", final=True)) + self._restorer.close()
        self._surrogates.count(self._restorer)
        return told.encode("utf-8", "surrogateescape")


class FileLineRestorer:
    """Restores lines: those of JSON that a client has uploaded, and answers to its requests."""

    def __init__(self, line: Callable[[int, bytes], bytes]) -> None:
        """Restore each line by what ``line`` makes of its number and itself; empty ones do not count."""
        self._line = line
        self._open = OpenPieces(_LINE)
        self._count = 0

    def feed(self, data: bytes) -> bytes:
        """Return all lines that ``data`` completes."""
        return b"".join(map(self._next, self._open.feed(data)))

    def close(self) -> bytes:
        """Return the last line, where it has no end."""
        left = self._open.left()
        return self._next(left) if left else b""

    def _next(self, line: bytes) -> bytes:
        if not line.strip():
            return line
        self._count += 1
        return self._line(self._count - 1, line)


def content_restorer(surrogates: CallSurrogates) -> BodyRestorer | None:
    """Return what restores what a file or a batch holds; None where nothing of it is known."""
    known = surrogates.looked_up
    if known is None:
        return None
    if not known.requests:
        if not known.in_json:
            return FileTextRestorer(surrogates)
        return FileLineRestorer(lambda _, line: _own_line(line, surrogates))
    restore = _answer_line if known.is_answers else _own_line

    def line_of(number: int, line: bytes) -> bytes:
        request = surrogates.inner(_name(line) or str(number))
        if request is None:
            return line
        told = restore(line, request)
        surrogates.add(request)
        return told

    return FileLineRestorer(line_of)


def _answer_line(line: bytes, surrogates: CallSurrogates) -> bytes:
    """Return a line with an answer, as the client of its request gets it."""
    try:
        value = json.loads(line)
        told = surrogates.value(value)
    except (ValueError, RecursionError):
        return line
    return line if told == value else dumped(told) + line[len(line.rstrip(b"\r\n")) :]


def _name(line: bytes) -> str:
    """Return what a line is known by; nothing where it has no name."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    named = value.get("custom_id") if isinstance(value, dict) else None
    return named if isinstance(named, str) else ""


def _own_line(line: bytes, surrogates: CallSurrogates) -> bytes:
    """Return a line of JSON as its client wrote it, byte for byte but for escapes."""
    try:
        return _own_json(line.decode(), surrogates).encode()
    except (UnicodeDecodeError, RecursionError):
        return line


def _own_json(text: str, surrogates: CallSurrogates) -> str:
    """Return JSON with its literals, and those of JSON within them, as their client wrote them."""
    issued = surrogates.issued

    def literal(found: re.Match[str]) -> str:
        raw = found[0]
        said = json.loads(raw)
        if said in issued.numbers and said in issued.values:
            return issued.values[said]
        told = _own_json(said, surrogates) if is_json(said) else surrogates.text(said)
        return raw if told == said else dumped(told).decode()

    return _LITERAL.sub(literal, text)
