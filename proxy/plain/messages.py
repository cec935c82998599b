"""HTTP/1 messages: heads read by llhttp at its strictest, bodies by one framing, heads written anew.

What two readers might read differently is refused: that is llhttp without any of its leniencies, and the checks
below for what it lets through. It decides once how a message's body ends, and frames anew what goes on. No byte of
the other side's framing is passed on.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import httptools

from proxy.clients.credentials import KEY_HEADERS, RawFields
from proxy.heads import HOP_BY_HOP, MOST_HEAD_BYTES, with_values
from proxy.responses import LocalReply
from proxy.routes.upstream_request import OWN_HEADERS

MOST_LINE_BYTES = 64 * 1024
"""Of what stands between two pieces of a chunked body: sizes, extensions, trailers."""
CHUNKED = -1
"""Stands for the length of a body that comes in chunks."""
_UNTIL_CLOSE = -2
_HOP_LENGTHS = frozenset(map(len, HOP_BY_HOP))
_END_OF_HEAD = b"\r\n\r\n"
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_LEAST_STATUS = 100


class MalformedMessageError(Exception):
    """A message is not HTTP/1, or two readers might read it differently."""


class HeadTooLongError(MalformedMessageError):
    """A head is longer than it may be."""


def end_of_head(data: bytes) -> int:
    """Return where the head at the beginning of some bytes ends; -1 where more must come.

    Raises:
        HeadTooLongError: it is longer than a head may be.
    """
    end = data.find(_END_OF_HEAD, 0, MOST_HEAD_BYTES)
    if end >= 0:
        return end + len(_END_OF_HEAD)
    if len(data) >= MOST_HEAD_BYTES:
        raise HeadTooLongError
    bare = data.find(b"\n\n")  # no head that llhttp takes: it says so now, not when time is up
    return bare + 2 if bare >= 0 else -1


class _Reader:
    """One message as llhttp reads it."""

    __slots__ = ("done", "excess", "fields", "head", "pieces", "text", "trailers")

    def __init__(self) -> None:
        self.text = b""
        """The target of a request, the reason of a response."""
        self.fields: list[tuple[bytes, bytes]] = []
        self.head: list[tuple[bytes, bytes]] | None = None
        """The headers, once they are complete; what comes then are trailers."""
        self.trailers: RawFields = ()
        self.pieces: list[bytes] = []
        self.done = False
        self.excess = False
        """Something followed the message's end."""

    def on_url(self, url: bytes) -> None:
        self.text += url

    def on_status(self, reason: bytes) -> None:
        self.text += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.head, self.fields = self.fields, []

    def on_body(self, data: bytes) -> None:
        if not self.done:  # what follows the message is not its body
            self.pieces.append(data)

    def on_message_begin(self) -> None:
        self.excess = self.done

    def on_message_complete(self) -> None:
        if not self.done:
            self.done, self.trailers = True, tuple(_trimmed(self.fields))


def _trimmed(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers without the blanks behind their values, which llhttp leaves there."""
    return [(name, value.rstrip(b" \t")) for name, value in fields]


def _read_head(parser: Any, reader: _Reader, head: bytes) -> list[tuple[bytes, bytes]]:
    """Read a head by llhttp; return its headers.

    Raises:
        MalformedMessageError: it is no head.
    """
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedMessageError(str(error)) from None
    fields = reader.head
    if fields is None:
        raise MalformedMessageError("head")
    blanks = head.find(b" \r\n") >= 0 or head.find(b"\t\r\n") >= 0
    return _trimmed(fields) if blanks else fields


class Body:
    """The body of one message, read by its framing."""

    __slots__ = (
        "_between",
        "_left",
        "_parser",
        "_reader",
        "chunked",
        "done",
        "ends_by_close",
        "excess",
        "trailers",
    )

    def __init__(self, framing: int, parser: Any, reader: _Reader | None) -> None:
        self._left = framing
        self.chunked = framing == CHUNKED
        """It comes in chunks."""
        self.ends_by_close = framing == _UNTIL_CLOSE
        """It ends with its connection."""
        self._parser = parser
        self._reader = reader
        self._between = 0
        self.done = framing == 0
        self.excess = b""
        """What came behind its end."""
        self.trailers: RawFields = ()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of the body in what has come.

        Raises:
            MalformedMessageError: a chunk is none, or what stands between two does not end.
        """
        if self._left >= 0:
            return self._feed_length(data)
        if self._left == _UNTIL_CLOSE:
            return [data] if data else []
        if not data:
            return []
        reader = self._reader
        assert reader is not None  # noqa: S101 - chunks alone come here
        reader.pieces = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not reader.done:
                pieces, reader.pieces = reader.pieces, []
                raise BrokenBodyError(pieces) from error
            reader.excess = True
        self._between = 0 if reader.pieces else self._between + len(data)
        if self._between > MOST_LINE_BYTES:
            raise BrokenBodyError([])
        if reader.done:
            self.done = True
            self.trailers = reader.trailers
            # llhttp does not say where: what follows a chunked message is not answered.
            self.excess = b"?" if reader.excess else b""
        return reader.pieces

    def _feed_length(self, data: bytes) -> list[bytes]:
        left = self._left
        if len(data) > left:
            self.excess, data = data[left:], data[:left]
        self._left = left - len(data)
        self.done = not self._left
        return [data] if data else []


class BrokenBodyError(MalformedMessageError):
    """A body cannot be read on; ``pieces`` came before."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__("broken body")
        self.pieces = pieces


_NOTED = frozenset(
    {b"host", b"expect", b"upgrade", b"connection", b"content-length", b"transfer-encoding"}
)
_FRAMING_BY_UNDERSCORE = frozenset({b"content_length", b"transfer_encoding"})
"""Servers that hand headers on as variables take these for the framing."""
_NOTED_LENGTHS = frozenset(map(len, _NOTED))
"""Most headers have other lengths, and need not be looked at in lower case."""


def _note(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return what a head says of its message and its connection, in lower case.

    Raises:
        MalformedMessageError: it names two hosts, or its framing by an underscore.
    """
    noted: dict[bytes, bytes] = {}
    for name, value in fields:
        if len(name) in _NOTED_LENGTHS:
            lower = name.lower()
            if lower in _FRAMING_BY_UNDERSCORE:
                raise MalformedMessageError("framing with an underscore")
            if lower in _NOTED:
                if lower not in noted:
                    noted[lower] = value.lower()
                elif lower == b"host":
                    raise MalformedMessageError("hosts")
                else:
                    noted[lower] += b"," + value.lower()
    return noted


def _is_chunked(noted: dict[bytes, bytes], version: str) -> bool:
    coding = noted.get(b"transfer-encoding")
    if coding is None:
        return False
    if coding != b"chunked" or version != "1.1":
        raise MalformedMessageError("transfer coding")
    return True


def _length(noted: dict[bytes, bytes]) -> int | None:
    text = noted.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit():
        raise MalformedMessageError("length")
    return int(text)


_NO_HOST = re.compile(rb"[^a-z0-9\-._~%!$&'()*+;=:\[\]]")
"""What no host and port hold."""


class RequestHead:
    """The head of a request; it stays as it is, because one may be that of several requests."""

    __slots__ = (
        "_parser",
        "_reader",
        "chunked",
        "expects",
        "fields",
        "keeps_alive",
        "length",
        "method",
        "target",
        "upgrade",
        "version",
    )

    def __init__(self, head: bytes) -> None:
        """Read a head.

        Raises:
            MalformedMessageError: it is no head of HTTP/1.0 or 1.1, or has two meanings.
        """
        reader = _Reader()
        parser = httptools.HttpRequestParser(reader)
        fields = _read_head(parser, reader, head)
        self.method: bytes = parser.get_method()
        self.version: str = parser.get_http_version()
        self.target = reader.text
        first = b"%s %s HTTP/1." % (self.method, self.target)
        if self.version not in ("1.1", "1.0") or not head.startswith(first):
            raise MalformedMessageError("first line")
        if (self.target[:1] != b"/" and self.target != b"*") or self.target.find(b"#") >= 0:
            raise MalformedMessageError("target")
        noted = _note(fields)
        host = noted.get(b"host", b"" if self.version == "1.0" else b" ")
        if _NO_HOST.search(host):
            raise MalformedMessageError("host")
        self.chunked = _is_chunked(noted, self.version)
        """Its body comes in chunks."""
        self.length = _length(noted)
        """Of its body, where its head says it."""
        named = _tokens(noted[b"connection"]) if b"connection" in noted else _NOTHING
        self.keeps_alive = self.version == "1.1" and b"close" not in named
        self.fields = _without(fields, named)
        self.expects = b"expect" in noted
        """Its client waits for ``100`` before it sends the body."""
        self.upgrade = noted.get(b"upgrade", b"")
        """What the connection is to become, in lower case."""
        if (
            self.chunked and self.upgrade
        ):  # llhttp would end it here, as its client may go on otherwise
            reader = _Reader()
            parser = httptools.HttpRequestParser(reader)
            parser.feed_data(_CHUNKED_HEAD)
        self._parser: Any = parser if self.chunked else None
        self._reader = reader if self.chunked else None

    def body(self) -> "Body":
        """Return what reads the body that follows; chunks are read once."""
        return Body(CHUNKED if self.chunked else self.length or 0, self._parser, self._reader)

    def with_values(
        self, places: Sequence[int], values: Sequence[bytes], length: int | None
    ) -> "RequestHead":
        """Return the same head with other values at some places, for a body of this length."""
        other = object.__new__(RequestHead)
        other.method, other.target, other.version = self.method, self.target, self.version
        other.chunked, other.length = False, length
        other.keeps_alive, other.expects = self.keeps_alive, self.expects
        other.upgrade, other._parser, other._reader = self.upgrade, None, None
        other.fields = with_values(self.fields, places, values)
        return other


class ResponseHead:
    """The head of a response, and what its body is read with."""

    __slots__ = ("body", "fields", "keeps_alive", "length", "reason", "status", "version")

    def __init__(self, head: bytes, method: bytes) -> None:
        """Read a head; ``method`` is that of the request.

        Raises:
            MalformedMessageError: it is no head of HTTP/1.0 or 1.1, or has two meanings.
        """
        reader = _Reader()
        parser = httptools.HttpResponseParser(reader)
        fields = _read_head(parser, reader, head)
        self.version: str = parser.get_http_version()
        if self.version not in ("1.1", "1.0"):
            raise MalformedMessageError("version")
        self.status: int = parser.get_status_code()
        self.reason = reader.text
        if self.status < _LEAST_STATUS or _CONTROL.search(self.reason):
            raise MalformedMessageError("status")
        noted = _note(fields)
        named = _tokens(noted[b"connection"]) if b"connection" in noted else _NOTHING
        self.fields = _without(fields, named) if named else tuple(fields)
        chunked = b"transfer-encoding" in noted and _is_chunked(noted, self.version)
        length = _length(noted)
        self.length = length
        """Of its body, as its head says it; also where there is none, as after HEAD."""
        if self.status == HTTPStatus.NO_CONTENT:
            self.length = None
        if method == b"HEAD" or self.status in (204, 304) or self.status < 200:
            framing = 0
        elif chunked:
            framing = CHUNKED
        else:
            framing = _UNTIL_CLOSE if length is None else length
        self.keeps_alive = (
            self.version == "1.1" and framing != _UNTIL_CLOSE and b"close" not in named
        )
        self.body = Body(framing, parser, reader)


_NOTHING: frozenset[bytes] = frozenset()
_USUAL = frozenset({b"close", b"keep-alive"})
"""What ``Connection`` says beside names of headers."""


def _tokens(value: bytes) -> frozenset[bytes]:
    return frozenset([each.strip() for each in value.split(b",")])


def _without(fields: list[tuple[bytes, bytes]], named: frozenset[bytes]) -> RawFields:
    """Return headers without those that ``Connection`` names: they are for the gateway alone.

    Client keys and Headrace's own headers stay, which the gateway reads and does not pass on. What
    it sets itself later no client can take out by this.
    """
    if named <= _USUAL:
        return tuple(fields)
    return tuple(
        [
            field
            for field in fields
            if (name := field[0].lower()) not in named
            or name in KEY_HEADERS
            or name.startswith(OWN_HEADERS)
        ]
    )


def write_request(method: bytes, target: bytes, fields: RawFields, length: int | None) -> bytes:
    """Return a request's head; ``length`` of its body, -1 in chunks, None where there is none."""
    return _write(b"%s %s HTTP/1.1" % (method, target), fields, length)


def write_response(status: int, reason: bytes, fields: RawFields, length: int | None) -> bytes:
    """Return a response's head; ``length`` of its body, -1 in chunks, None where no header says it."""
    return _write(b"HTTP/1.1 %d %s" % (status, reason), fields, length)


def _write(first: bytes, fields: RawFields, length: int | None) -> bytes:
    """Write a head: order and case stay, what belongs to one connection goes, framing is ours."""
    lines = [first]
    framed = length is None
    for name, value in fields:
        lower = name.lower() if len(name) in _HOP_LENGTHS else b""
        if lower not in HOP_BY_HOP:
            lines.append(name + b": " + value)
        elif lower == b"content-length" and length is not None and length >= 0 and not framed:
            framed = True
            lines.append(b"%s: %d" % (name, length))
        elif lower == b"transfer-encoding" and length == CHUNKED and not framed:
            framed = True
            lines.append(name + b": chunked")
    if length is not None and not framed:
        lines.append(
            b"Transfer-Encoding: chunked" if length == CHUNKED else b"Content-Length: %d" % length
        )
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def chunk(piece: bytes) -> bytes:
    """Return a piece of a body as a chunk."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def last_chunk(trailers: RawFields) -> bytes:
    """Return the end of a chunked body."""
    if not trailers:
        return b"0\r\n\r\n"
    lines = b"".join(
        [
            name + b": " + value + b"\r\n"
            for name, value in trailers
            if name.lower() not in HOP_BY_HOP
        ]
    )
    return b"0\r\n" + lines + b"\r\n"


def write_reply(reply: LocalReply, *, close: bool, body: bool = True) -> bytes:
    """Return an answer of the gateway's own."""
    try:
        reason = HTTPStatus(reply.status).phrase
    except ValueError:
        reason = ""
    lines = [b"HTTP/1.1 %d %s" % (reply.status, reason.encode())]
    lines += [name + b": " + value for name, value in reply.headers]
    if close:
        lines.append(b"connection: close")
    return b"\r\n".join(lines) + _END_OF_HEAD + (reply.body if body else b"")
