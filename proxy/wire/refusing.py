"""Heads that are not plain HTTP: what two readers might read differently is refused."""

import re

from mitmproxy.http import Message, Request
from mitmproxy.net.http import status_codes, validate

from proxy.answers import Answer, Reason, Shape, answer

_AMBIGUOUS = re.compile(rb"[\r\n\0]")
"""Folded lines, lone returns and NUL: the next reader may take what follows for a line of its own."""
_VERSIONS = frozenset({b"HTTP/1.1", b"HTTP/1.0"})


def raw_answer(reply: Answer) -> bytes:
    """Return an answer as bytes that end the connection."""
    reason = status_codes.RESPONSES.get(reply.status, "")
    lines = [f"HTTP/1.1 {reply.status} {reason}".encode()]
    lines += [name + b": " + value for name, value in reply.headers]
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + reply.body


def own_words(status: int, _quoting_the_client: str = "") -> bytes:
    """Return what a client is told whose head cannot be read; stock code makes HTML of it."""
    return raw_answer(answer(Reason.BAD_REQUEST, Shape.OPENAI, status=status))


def validate_headers(message: Message) -> None:
    """Check a head as stock code does, and in requests what that lets through.

    Raises:
        ValueError: it is not sound.
    """
    validate.validate_headers(message)
    if not isinstance(message, Request):
        return
    if message.data.http_version not in _VERSIONS:
        raise ValueError(f"unknown version {message.http_version!r}")
    if _AMBIGUOUS.search(b"".join([value for _, value in message.data.headers.fields])):
        raise ValueError("header value with a control character")
