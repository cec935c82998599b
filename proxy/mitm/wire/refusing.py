"""Heads that are not plain HTTP: what two readers might read differently is refused."""

import re
from collections.abc import Sequence

from mitmproxy.http import Request
from mitmproxy.net.http import http1, status_codes

from proxy.responses import LocalReply, Reason, Shape, answer

_FIRST_LINE = re.compile(rb"[!-~]+ [!-~\x80-\xff]+ HTTP/1\.[01]")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""NUL, lone returns and their like: stock code strips some of them before it looks at a value."""
_read_request_head = http1.read_request_head


def raw_answer(reply: LocalReply) -> bytes:
    """Return an answer as bytes that end the connection."""
    reason = status_codes.RESPONSES.get(reply.status, "")
    lines = [f"HTTP/1.1 {reply.status} {reason}".encode()]
    lines += [name + b": " + value for name, value in reply.headers]
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + reply.body


def own_words(status: int, _quoting_the_client: str = "") -> bytes:
    """Return what a client is told whose head cannot be read; stock code makes HTML of it."""
    return raw_answer(answer(Reason.BAD_REQUEST, Shape.OPENAI, status=status))


def read_request_head(lines: Sequence[bytes]) -> Request:
    """Read a head as stock code does, once it is sure that the next reader finds the same in it.

    Raises:
        ValueError: it is not sound.
    """
    first, *fields = lines
    if not _FIRST_LINE.fullmatch(first):
        raise ValueError("no request line of HTTP/1")
    for line in fields:
        if line[:1] in (b" ", b"\t") or _CONTROL.search(line):
            raise ValueError("folded line or control character in a header")
    request = _read_request_head(list(lines))
    for name, value in request.headers.fields:
        if name.lower() == b"transfer-encoding" and value.lower() != b"chunked":
            raise ValueError("transfer encoding other than chunked")
    return request
