"""The fault matrix: what goes wrong, what the client sees of it, and what is kept of it.

One list; the test runs every row both ways, and docs/faults.md shows it as a table.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.upstream import ReceivedRequest, Reply, chunk

WHOLE = b'{"id": "chatcmpl-1", "choices": []}'
EVENTS = (b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n")
STREAMED = b"".join(EVENTS)
_SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_JSON = b"HTTP/1.1 %d Whatever\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"
_LAST = b"0\r\n\r\n"


@dataclass(frozen=True)
class Fault:
    """One row of the matrix."""

    name: str
    """What the upstream's script and the test's client act on; also the row's first column."""
    said: str
    """What happens, in words."""
    client: str
    """What the client sees: ``the same`` bytes as from the upstream, ``cut`` off where the upstream
    was, an error ``502`` … of the gateway's own, or ``nothing`` because it is gone itself."""
    outcome: str
    """How the exchange is kept; ``-`` where nothing is."""
    both: bool = True
    """Whether it is run streamed too."""
    route: str = "up"
    by_client: bool = field(default=False)
    """The client does it, not the upstream."""


MATRIX = (
    Fault("well", "nothing goes wrong", "the same", "complete"),
    Fault("refused", "the upstream's port is closed", "502", "upstream_abort", route="refused"),
    Fault("deaf", "the upstream accepts no connection", "502", "upstream_abort", route="deaf"),
    Fault("tls-silent", "the TLS handshake is not answered", "502", "upstream_abort", route="mute"),
    Fault(
        "tls-unknown", "the certificate is not trusted", "502", "upstream_abort", route="untrusted"
    ),
    Fault("close-at-once", "it closes instead of answering", "502", "upstream_abort"),
    Fault("reset-at-once", "it resets instead of answering", "502", "upstream_abort"),
    Fault("half-head", "it closes within the head", "502", "upstream_abort"),
    Fault("garbage", "what comes is not HTTP", "502", "upstream_abort"),
    Fault("two-lengths", "two lengths contradict each other", "502", "upstream_abort", both=False),
    Fault("cut", "it closes within the body", "cut", "upstream_abort"),
    Fault("reset", "it resets within the body", "cut", "upstream_abort"),
    Fault("bad-chunk", "a chunk has no valid length", "cut", "upstream_abort"),
    Fault(
        "until-close", "the body has no length and ends with the connection", "the same", "complete"
    ),
    Fault("dribble", "the answer comes byte by byte", "the same", "complete"),
    Fault("pause", "it pauses within the body", "the same", "complete"),
    Fault("early-hints", "103 comes before the answer; it is passed on", "the same", "complete"),
    Fault("continue", "100 comes unasked before the answer", "the same", "complete"),
    Fault("trailers", "trailers follow the body; they are passed on", "the same", "complete"),
    Fault("no-content", "204 without a body", "the same", "complete", both=False),
    Fault("not-modified", "304 without a body", "the same", "complete", both=False),
    Fault("head", "HEAD is answered with a length and no body", "the same", "complete", both=False),
    Fault("error-500", "the provider answers 500", "the same", "complete"),
    Fault("error-529", "the provider is overloaded (529)", "the same", "complete"),
    Fault("rate-429", "the provider limits (429, retry-after)", "the same", "complete"),
    Fault("gzip-broken", "the body is not the gzip that it says it is", "the same", "complete"),
    Fault("gzip-cut", "gzip ends early, the connection does not", "the same", "complete"),
    Fault(
        "early-answer",
        "it answers before it has read the request",
        "the same",
        "complete",
        both=False,
    ),
    Fault(
        "hang-up-sending",
        "the client goes while it sends",
        "nothing",
        "client_abort",
        by_client=True,
    ),
    Fault(
        "hang-up-waiting",
        "the client goes before the answer",
        "nothing",
        "client_abort",
        by_client=True,
    ),
    Fault(
        "hang-up-reading",
        "the client goes within the answer",
        "nothing",
        "client_abort",
        by_client=True,
    ),
    Fault(
        "hang-up-unnoticed",
        "the client closes within the answer, the upstream takes no notice",
        "nothing",
        "client_abort",
        by_client=True,
    ),
    Fault(
        "expect",
        "the client waits for the upstream's 100 before it sends the body",
        "the same",
        "complete",
        by_client=True,
    ),
    Fault(
        "expect-refused",
        "the upstream answers 417 instead of 100, the body is never sent",
        "the same",
        "complete",
        by_client=True,
    ),
    Fault(
        "expect-unheard",
        "the upstream knows no 100, the client sends the body after a while",
        "the same",
        "complete",
        by_client=True,
    ),
    Fault(
        "head-endless",
        "the client's head does not end (64 KiB)",
        "431",
        "-",
        by_client=True,
        both=False,
    ),
    Fault(
        "chunked-upload",
        "the client sends chunks and trailers",
        "the same",
        "complete",
        by_client=True,
    ),
    Fault(
        "bad-request", "what the client sends is not HTTP", "400", "-", by_client=True, both=False
    ),
    Fault("no-key", "the client's key is wrong", "401", "refused", by_client=True),
    Fault("no-route", "no route fits", "404", "-", by_client=True, both=False),
    Fault("disk-passes", "the disk refuses, the route passes", "the same", "-"),
    Fault("disk-refuses", "the disk refuses, the route refuses", "503", "-", route="closed"),
)


def _body(streaming: bool, extra: bytes = b"", status: int = 200) -> list[bytes | float]:
    if streaming:
        return [_SSE.replace(b"200 OK", b"%d Whatever" % status), *map(chunk, EVENTS), _LAST]
    return [_JSON % (status, extra, len(WHOLE)) + WHOLE]


def _cut(streaming: bool) -> list[bytes | float]:
    if streaming:
        return [_SSE + chunk(EVENTS[0])]
    return [_JSON % (200, b"", len(WHOLE)) + WHOLE[:10]]


def partial(streaming: bool) -> bytes:
    """Return what a client has of an answer that is cut off."""
    return EVENTS[0] if streaming else WHOLE[:10]


def _bytewise(pieces: Iterable[bytes | float]) -> list[bytes | float]:
    whole = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    return [part for byte in whole for part in (bytes([byte]), 0.0)]


def script(request: ReceivedRequest) -> Reply:
    """Answer as the path says: ``/<name>/<stream|whole>``."""
    _, name, way = request.target.split("/")
    streaming = way == "stream"
    whole = _body(streaming)
    match name:
        case "close-at-once":
            return Reply([], close=True)
        case "reset-at-once":
            return Reply([], abort=True)
        case "half-head":
            return Reply([b"HTTP/1.1 200 OK\r\nContent-Ty"], close=True)
        case "garbage":
            return Reply([b"\x16\x03 this is not HTTP: top-secret\r\n\r\n"], close=True)
        case "two-lengths":
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"
            return Reply([head], close=True)
        case "cut":
            return Reply([*_cut(streaming), 0.05], close=True)
        case "reset":
            return Reply([*_cut(streaming), 0.1], abort=True)
        case "bad-chunk":
            return Reply([_SSE + chunk(EVENTS[0]), 0.05, b"zz\r\n"], close=True)
        case "until-close":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
            return Reply([head, STREAMED if streaming else WHOLE], close=True)
        case "dribble":
            return Reply(_bytewise(whole))
        case "pause" | "hang-up-reading":
            cut = _cut(streaming)
            rest = _body(streaming)
            tail = [*map(chunk, EVENTS[1:]), _LAST] if streaming else [WHOLE[10:]]
            return Reply([*cut, 0.3, *tail]) if rest else Reply([])
        case "hang-up-unnoticed":
            first, *_ = _cut(streaming)
            parts = map(chunk, EVENTS[1:]) if streaming else (WHOLE[10:12], WHOLE[12:14])
            return Reply([first, *[piece for part in parts for piece in (0.15, part)], 1.0])
        case "hang-up-waiting":
            return Reply([], listen=True)
        case "early-hints":
            return Reply([b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 0.02, *whole])
        case "continue":
            return Reply([b"HTTP/1.1 100 Continue\r\n\r\n", *whole])
        case "trailers":
            return Reply([_SSE, *map(chunk, EVENTS), b"0\r\nX-Checksum: abc\r\n\r\n"])
        case "no-content":
            return Reply([b"HTTP/1.1 204 No Content\r\n\r\n"])
        case "not-modified":
            return Reply([b"HTTP/1.1 304 Not Modified\r\n\r\n"])
        case "head":
            return Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"])
        case "error-500":
            return Reply(_body(streaming, status=500))
        case "error-529":
            return Reply(_body(streaming, status=529))
        case "rate-429":
            return Reply(_body(streaming, b"Retry-After: 7\r\n", 429))
        case "gzip-broken" | "gzip-cut":
            data = b"\x1f\x8b\x08\x00" + (b"broken" if name == "gzip-broken" else b"\x00" * 6)
            if streaming:
                head = _SSE.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
                return Reply([head, chunk(data), _LAST])
            return Reply([_JSON % (200, b"Content-Encoding: gzip\r\n", len(data)) + data])
    return Reply(whole)


def table() -> str:
    """Return the matrix as docs/faults.md shows it."""
    lines = ["| fault | what happens | the client sees | kept as | runs |", "|---|---|---|---|---|"]
    for row in MATRIX:
        ways = "whole, streamed" if row.both else "whole"
        lines.append(f"| `{row.name}` | {row.said} | {row.client} | `{row.outcome}` | {ways} |")
    return "\n".join(lines) + "\n"
