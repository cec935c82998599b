"""Messages with two meanings, the payload classes of the HTTP Garden: over real sockets, both sides.

The upstream records raw bytes: it must never see a request that the gateway did not count, and no
answer may become that of another request.
"""

import asyncio
import gc
import re
import signal
import socket
import ssl
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
import uvloop

from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig
from tests.proxy.gateway_process import GatewayProcess
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import ExchangeOutcome

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from proxy.plain import call, messages
    from proxy.worker import Gateway

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SECRET = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned"


class RawUpstream(threading.Thread):
    """Records all bytes it gets, and answers each request with the bytes it was given."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.got = b""
        self.connections = 0
        self.answers: list[bytes] = []
        """For the next requests; then ANSWER."""
        self.hang_up = False
        """Close after each answer."""
        self.breaks_off = False
        """Reset after each answer."""
        self.stops: GatewayProcess | None = None
        """Stands still until its answer and the reset are there."""

    def run(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        got = b""
        with accepted, suppress(OSError):
            while part := accepted.recv(65536):
                self.got += part
                got += part
                while b"\r\n\r\n" in got:
                    head, _, rest = got.partition(b"\r\n\r\n")
                    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
                    size = int(length[1]) if length else 0
                    if len(rest) < size:
                        break
                    if b"chunked" in head.lower():
                        rest = rest.partition(b"0\r\n\r\n")[2]
                    got = rest[size:]
                    # Who has the answer may already change what is done to the next one.
                    breaks_off, hang_up, stops = self.breaks_off, self.hang_up, self.stops
                    if stops is not None:
                        stops.tell(signal.SIGSTOP)
                    accepted.sendall(self.answers.pop(0) if self.answers else ANSWER)
                    if breaks_off:
                        time.sleep(0.2)  # a reset may overtake what was sent before
                        linger = struct.pack("ii", 1, 0)
                        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        accepted.close()
                    if stops is not None:
                        stops.tell(signal.SIGCONT)
                    if breaks_off or hang_up:
                        return

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture(scope="module")
def upstream() -> Iterator[RawUpstream]:
    server = RawUpstream()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway(
    upstream: RawUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    routes = [{"name": "up", "upstream": f"http://127.0.0.1:{upstream.port}"}]
    settings = {"routes": routes, "forward_port": None, "capture": False}
    with GatewayProcess(tmp_path_factory.mktemp("messages"), settings) as running:
        yield running


def say(gateway: GatewayProcess, raw: bytes) -> bytes:
    """Send bytes on a connection of their own; return all that comes back before it is closed."""
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2])), 30) as there:
        there.sendall(raw)
        got = b""
        with suppress(ConnectionError):
            while part := there.recv(65536):
                got += part
        return got


def request(gateway: GatewayProcess, lines: bytes, body: bytes = b"") -> bytes:
    key = f"Authorization: Bearer {gateway.key}\r\n".encode()
    return b"POST /up/x HTTP/1.1\r\nHost: x\r\n" + key + lines + b"\r\n" + body


INNER = b"GET /up/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        pytest.param(
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n", id="cl-te"
        ),
        pytest.param(
            b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", b"0\r\n\r\n", id="te-cl"
        ),
        pytest.param(b"Content-Length: 0\r\nContent-Length: 44\r\n", INNER, id="two-lengths"),
        pytest.param(b"Content-Length: 0\r\nContent-Length: 0\r\n", b"", id="same-length-twice"),
        pytest.param(b"Content-Length: 0,0\r\n", b"", id="list-of-lengths"),
        pytest.param(b"Content-Length: 0x4\r\n", b"", id="hexadecimal-length"),
        pytest.param(b"Content-Length: -1\r\n", b"", id="negative-length"),
        pytest.param(b"Content-Length: 1_0\r\n", b"", id="underscore-length"),
        pytest.param(b"Content-Length: 99999999999999999999999\r\n", b"", id="huge-length"),
        pytest.param(b"Content-Length:\r\n", INNER, id="empty-length"),
        pytest.param(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n", id="other-coding"),
        pytest.param(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n", id="coded-chunks"),
        pytest.param(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n", id="identity"),
        pytest.param(
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            b"0\r\n\r\n",
            id="two-codings",
        ),
        pytest.param(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n", id="vertical-tab"),
        pytest.param(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n", id="space-before-colon"),
        pytest.param(b"Transfer-Encoding\x00: chunked\r\n", b"0\r\n\r\n", id="nul-in-name"),
        pytest.param(b"Transfer-Encoding:\n chunked\r\n", b"0\r\n\r\n", id="folded"),
        pytest.param(b"X: 1\r\n\tTransfer-Encoding: chunked\r\n", b"", id="folded-by-tab"),
        pytest.param(b"X: 1\nTransfer-Encoding: chunked\r\n", b"", id="bare-lf"),
        pytest.param(b"X: 1\rTransfer-Encoding: chunked\r\n", b"", id="bare-cr"),
        pytest.param(b"X: a\x00b\r\n", b"", id="nul-in-value"),
        pytest.param(b"Host: other\r\n", b"", id="two-hosts"),
        pytest.param(b"(bad): x\r\n", b"", id="no-token"),
        pytest.param(b"Content-Length: +4\r\n", b"", id="signed-length"),
        pytest.param(b"Content-Length: 4 4\r\n", b"", id="two-lengths-in-one"),
        pytest.param(b"Content-Length: 4\r\r\n", b"", id="cr-behind-length"),
        pytest.param(b"Content_Length: 4\r\n", b"", id="length-by-underscore"),
        pytest.param(b"Transfer_Encoding: chunked\r\n", b"0\r\n\r\n", id="coding-by-underscore"),
        pytest.param(b"Transfer-Encoding:\r\n", b"", id="empty-coding"),
        pytest.param(b"Transfer-Encoding: chunked,\r\n", b"0\r\n\r\n", id="coding-and-comma"),
        pytest.param(b"Transfer-Encoding: chunked;q=1\r\n", b"0\r\n\r\n", id="coding-parameter"),
        pytest.param(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n", id="quoted-coding"),
        pytest.param(b"X: a\x01b\r\n", b"", id="control-in-value"),
        pytest.param(b"X\xff: b\r\n", b"", id="high-byte-in-name"),
        pytest.param(b"X\r\n", b"", id="no-colon"),
        pytest.param(b": x\r\n", b"", id="no-name"),
    ],
)
def test_a_request_with_two_meanings_goes_nowhere(
    gateway: GatewayProcess, upstream: RawUpstream, lines: bytes, body: bytes
) -> None:
    before = upstream.got
    told = say(gateway, request(gateway, lines, body + INNER))
    assert told.startswith(b"HTTP/1.1 400 ")
    assert told.count(b"HTTP/1.1") == 1
    assert upstream.got == before


@pytest.mark.parametrize(
    "first",
    [
        b"POST http://evil.example/up/x HTTP/1.1",
        b"POST //evil.example HTTP/2.0",
        b"POST /up/x HTTP/1.2",
        b"POST /up/x HTTP/0.9",
        b"POST /up/x",
        b"POST /up/x  HTTP/1.1",
        b"POST  /up/x HTTP/1.1",
        b" POST /up/x HTTP/1.1",
        b"post /up/x HTTP/1.1",
        b"POST\t/up/x HTTP/1.1",
        b"POST /up/\x80 HTTP/1.1",
        b"POST /up/x#y HTTP/1.1",
        b"POST /up/x HTTP/1.1 ",
        b"POST /up/x HTTP/1.10",
        b"POST /up/x http/1.1",
        b"POST /up/x RTSP/1.0",
        b"CONNECT evil.example:80 HTTP/1.1",
        b"PRI * HTTP/2.0",
    ],
)
def test_other_first_lines_go_nowhere(
    gateway: GatewayProcess, upstream: RawUpstream, first: bytes
) -> None:
    before = upstream.got
    raw = request(gateway, b"").replace(b"POST /up/x HTTP/1.1", first)
    assert say(gateway, raw + INNER).startswith(b"HTTP/1.1 400 ")
    assert upstream.got == before


@pytest.mark.parametrize("host", [b"a/b", b"a@b", b"a, b", b"a b", b"a\xff", b"a?b", b'a"'])
def test_a_host_that_is_none_goes_nowhere(
    gateway: GatewayProcess, upstream: RawUpstream, host: bytes
) -> None:
    before = upstream.got
    raw = request(gateway, b"").replace(b"Host: x", b"Host: " + host)
    assert say(gateway, raw + INNER).startswith(b"HTTP/1.1 400 ")
    assert upstream.got == before


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5\t\r\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"1_0\r\nhellohellohello!\r\n0\r\n\r\n",
        b"5;\r\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\nX: y\n\r\n",
        b"\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-1\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX : y\r\n\r\n",
    ],
)
def test_broken_chunks_end_the_connection(
    gateway: GatewayProcess, upstream: RawUpstream, body: bytes
) -> None:
    say(gateway, request(gateway, b"Transfer-Encoding: chunked\r\n", body + INNER))
    assert b"smuggled" not in upstream.got


@pytest.mark.parametrize("before", [b"\r", b"\n", b"\r\r\n", b"\n\n", b"\r\n\n", b"\0"])
def test_nothing_but_empty_lines_comes_before_a_request(
    gateway: GatewayProcess, upstream: RawUpstream, before: bytes
) -> None:
    got = upstream.got
    raw = request(gateway, b"Content-Length: 0\r\nConnection: close\r\n")
    assert say(gateway, before + raw + INNER).startswith(b"HTTP/1.1 400 ")
    assert upstream.got == got
    assert say(gateway, b"\r\n\r\n" + raw) == ANSWER


def test_a_request_of_1_1_names_its_host(gateway: GatewayProcess, upstream: RawUpstream) -> None:
    before = upstream.got
    raw = request(gateway, b"Content-Length: 0\r\n").replace(b"Host: x\r\n", b"")
    assert say(gateway, raw + INNER).startswith(b"HTTP/1.1 400 ")
    assert upstream.got == before
    assert say(gateway, raw.replace(b"HTTP/1.1", b"HTTP/1.0")) == ANSWER


@pytest.mark.parametrize("upgrade", [b"h2c", b"foo", b"TLS/1.0"])
def test_a_chunked_body_comes_whole_though_its_client_offers_an_upgrade(
    gateway: GatewayProcess, upstream: RawUpstream, upgrade: bytes
) -> None:
    """As Java's client does with its first request."""
    lines = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\nUpgrade: " + upgrade
    raw = request(gateway, lines + b"\r\nTransfer-Encoding: chunked\r\n", b"5\r\nhello\r\n")
    upstream.got = b""
    assert say(gateway, raw + b"0\r\n\r\n" + INNER) == ANSWER
    assert upstream.got.endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    assert b"smuggled" not in upstream.got


def test_http_1_0_with_chunks_is_refused(gateway: GatewayProcess, upstream: RawUpstream) -> None:
    before = upstream.got
    raw = request(gateway, b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n")
    told = say(gateway, raw.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert told.startswith(b"HTTP/1.1 400 ")
    assert upstream.got == before


def test_framing_and_hops_are_the_gateways_own(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    lines = (
        b"Connection: close, X-Hop, Host\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
        b"Proxy-Connection: keep-alive\r\nX-Kept: 1  \r\ntransfer-encoding: Chunked\r\n"
    )
    upstream.got = b""
    told = say(gateway, request(gateway, lines, b"5;name=value\r\nhello\r\n0\r\n\r\n"))
    assert told == ANSWER
    head, _, body = upstream.got.partition(b"\r\n\r\n")
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
    assert names == [b"Host", b"X-Kept", b"transfer-encoding"]
    assert b"X-Kept: 1\r\n" in head + b"\r\n"
    assert body == b"5\r\nhello\r\n0\r\n\r\n"


@pytest.fixture(scope="module")
def keyed(
    upstream: RawUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """Give a gateway whose route has a provider's key of its own, and asks for token ids."""
    route = {"name": "up", "upstream": f"http://127.0.0.1:{upstream.port}", "capture": "tokens"}
    key = {"header": "Authorization", "env": "ROUTE_KEY", "scheme": "Bearer"}
    settings = {"routes": [{**route, "credential": key}], "forward_port": None}
    home = tmp_path_factory.mktemp("keyed")
    with GatewayProcess(home, settings, environment={"ROUTE_KEY": "provided"}) as running:
        yield running


def test_no_client_takes_out_what_the_gateway_sets(
    keyed: GatewayProcess, upstream: RawUpstream
) -> None:
    lines = (
        b"Connection: close, Authorization, Accept-Encoding, Host, Content-Type, X-Hop\r\n"
        b"X-Hop: 1\r\nAccept-Encoding: gzip\r\nContent-Length: 2\r\n"
    )
    upstream.got = b""
    raw = request(keyed, lines, b"{}").replace(b"/up/x", b"/up/v1/chat/completions")
    assert say(keyed, raw).startswith(b"HTTP/1.1 200 ")
    head = upstream.got.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    assert b"Authorization: Bearer provided" in head
    assert b"Host: 127.0.0.1:%d" % upstream.port in head
    assert not any(line.startswith((b"X-Hop", b"Connection")) for line in head)


def test_what_the_gateway_asks_for_is_not_taken_out(
    keyed: GatewayProcess, upstream: RawUpstream
) -> None:
    lines = (
        b"Connection: close, Accept-Encoding\r\nAccept-Encoding: gzip\r\n"
        b"Content-Type: application/json\r\nContent-Length: 16\r\n"
    )
    upstream.got = b""
    raw = request(keyed, lines, b'{"messages": []}').replace(b"/up/x", b"/up/v1/chat/completions")
    say(keyed, raw)
    assert b"accept-encoding: identity\r\n" in upstream.got


@pytest.mark.parametrize("lines", [b"", b"Connection: keep-alive\r\n"])
def test_a_client_of_1_0_has_one_answer_and_no_chunks(
    gateway: GatewayProcess, upstream: RawUpstream, lines: bytes
) -> None:
    upstream.answers = [
        b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ]
    upstream.got = b""
    raw = request(gateway, lines + b"Content-Length: 5\r\n", b"hello")
    told = say(gateway, raw.replace(b"HTTP/1.1", b"HTTP/1.0") + INNER)
    assert told == b"HTTP/1.1 200 OK\r\n\r\nok"
    assert upstream.got.startswith(b"POST /x HTTP/1.1\r\n")
    assert b"smuggled" not in upstream.got


def test_an_answer_that_ends_with_its_connection_is_whole(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    upstream.answers = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it"]
    upstream.hang_up = True
    try:
        assert ask(gateway).content == b"all of it"
    finally:
        upstream.hang_up = False
    assert ask(gateway).content == b"ok"


@pytest.mark.parametrize("at_once", [False, True])
def test_an_answer_that_breaks_off_is_no_whole_one(
    gateway: GatewayProcess, upstream: RawUpstream, at_once: bool
) -> None:
    """Where an answer ends with its connection, only a reset tells that it is not whole."""
    upstream.answers = [b"HTTP/1.1 200 OK\r\n\r\nhalf of it"]
    upstream.breaks_off = True
    upstream.stops = gateway if at_once else None
    try:
        with pytest.raises(httpx.ReadError):
            ask(gateway)
    finally:
        upstream.breaks_off, upstream.stops = False, None
    assert ask(gateway).content == b"ok"


def test_a_head_goes_before_its_broken_body(gateway: GatewayProcess, upstream: RawUpstream) -> None:
    upstream.answers = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"]
    told = say(gateway, request(gateway, b"Content-Length: 0\r\n"))
    assert told == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_answer_of_no_content_has_no_length(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    upstream.answers = [b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"]
    raw = request(gateway, b"Content-Length: 0\r\nConnection: close\r\n")
    assert say(gateway, raw) == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_no_trailer_of_an_answer_speaks_of_its_framing(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    upstream.answers = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\nX-Sum: 1\r\nKeep-Alive: 1\r\n\r\n"
    ]
    raw = request(gateway, b"Content-Length: 0\r\nConnection: close\r\n")
    assert say(gateway, raw).endswith(b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n")


def test_requests_sent_ahead_are_answered_in_order(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    upstream.answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number for number in range(3)
    ]
    raw = request(gateway, b"Content-Length: 5\r\n", b"hello")
    told = say(gateway, raw * 2 + raw.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
    assert re.findall(rb"\r\n\r\n(\d)", told) == [b"0", b"1", b"2"]


def ask(gateway: GatewayProcess) -> httpx.Response:
    headers = {"authorization": f"Bearer {gateway.key}"}
    return httpx.post(f"{gateway.url}/up/x", content=b"hello", headers=headers, timeout=30)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="length-and-chunks",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", id="two-lengths"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="coded"
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="1.0-chunks"
        ),
        pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", id="unasked-upgrade"),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", id="bare-lf"),
        pytest.param(b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", id="version"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n", id="folded"),
        pytest.param(b"HTTP/1.1 099 Early\r\n\r\n" + ANSWER, id="status-of-no-class"),
        pytest.param(b"HTTP/1.1 000 None\r\n\r\n" + ANSWER, id="status-zero"),
        pytest.param(b"HTTP/1.1 200 O\x00K\r\nContent-Length: 2\r\n\r\nok", id="nul-in-reason"),
        pytest.param(b"HTTP/1.1 200 O\x1bK\r\nContent-Length: 2\r\n\r\nok", id="escape-in-reason"),
    ],
)
def test_an_answer_with_two_meanings_is_a_502(
    gateway: GatewayProcess, upstream: RawUpstream, answer: bytes
) -> None:
    upstream.answers = [answer + SECRET]
    assert ask(gateway).status_code == 502
    assert ask(gateway).content == b"ok"


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        pytest.param(ANSWER + SECRET, 200, b"ok", id="behind-a-length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + SECRET,
            200,
            b"ok",
            id="behind-chunks",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n" + SECRET, 204, b"", id="behind-204"),
        pytest.param(
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 8\r\n\r\n" + SECRET,
            304,
            b"",
            id="behind-304",
        ),
        pytest.param(b"HTTP/1.1 102 Wait\r\n\r\n" * 3 + ANSWER + SECRET, 200, b"ok", id="1xx"),
    ],
)
def test_what_follows_an_answer_is_nobodys(
    gateway: GatewayProcess, upstream: RawUpstream, answer: bytes, status: int, body: bytes
) -> None:
    upstream.answers = [answer]
    response = ask(gateway)
    assert (response.status_code, response.content) == (status, body)
    before = upstream.connections
    assert ask(gateway).content == b"ok"
    assert upstream.connections == before + 1


def test_a_connection_is_used_again_by_other_clients(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    ask(gateway)
    before = upstream.connections
    for _ in range(5):
        assert ask(gateway).content == b"ok"
    assert upstream.connections == before


def test_the_listener_is_told_to_who_asks(gateway: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {gateway.key}"}
    url = f"{gateway.url}/up/x"
    assert "x-headrace-listener" not in httpx.get(url, headers=headers).headers
    told = httpx.get(url, headers={**headers, "x-headrace-debug": "1"}).headers
    assert told["x-headrace-listener"] == "plain"
    counted = httpx.get(f"{gateway.admin}/metrics").text
    assert 'headrace_listeners_total{listener="plain"}' in counted


def test_tls_is_spoken_on_the_same_port(
    upstream: RawUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    routes = [{"name": "up", "upstream": f"http://127.0.0.1:{upstream.port}"}]
    with GatewayProcess(tmp_path_factory.mktemp("tls"), {"routes": routes}) as running:
        url = running.url.replace("http:", "https:")
        headers = {"authorization": f"Bearer {running.key}", "x-headrace-debug": "1"}
        roots = ssl.create_default_context(cafile=running.bundle)
        with httpx.Client(verify=roots, headers=headers, timeout=30) as client:
            for _ in range(2):
                told = client.post(f"{url}/up/x", content=b"hello")
                assert (told.status_code, told.content) == (200, b"ok")
                assert told.headers["x-headrace-listener"] == "mitmproxy"
        assert len(running.exchanges(2)) == 2


def test_a_body_that_grows_too_long_under_its_answer_is_cut_off(
    upstream: RawUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    routes = [{"name": "up", "upstream": f"http://127.0.0.1:{upstream.port}"}]
    settings = {"routes": routes, "forward_port": None, "body_bytes": 1024}
    upstream.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nearly"]
    with GatewayProcess(tmp_path_factory.mktemp("growing"), settings) as running:
        place = "127.0.0.1", int(running.url.rpartition(":")[2])
        chunk = b"320\r\n" + b"x" * 0x320 + b"\r\n"
        with socket.create_connection(place, 30) as there:
            there.sendall(request(running, b"Transfer-Encoding: chunked\r\n", chunk))
            assert there.recv(65536).startswith(b"HTTP/1.1 200 ")
            with suppress(ConnectionError):
                there.sendall(chunk * 3)
                while there.recv(65536):
                    pass
        assert ask(running).content == b"ok"
        assert running.exchanges(2)[0].outcome is ExchangeOutcome.CLIENT_ABORT
        assert "headrace_noise_total 0.0" in httpx.get(f"{running.admin}/metrics").text


def test_a_request_that_was_answered_before_it_was_read_says_so(
    upstream: RawUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    routes = [{"name": "up", "upstream": f"http://127.0.0.1:{upstream.port}"}]
    settings = {"routes": routes, "forward_port": None}
    early = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    upstream.answers = [early]
    with GatewayProcess(tmp_path_factory.mktemp("early"), settings) as running:
        place = "127.0.0.1", int(running.url.rpartition(":")[2])
        head = request(running, b"Transfer-Encoding: chunked\r\n").replace(
            b"/up/x", b"/up/v1/chat/completions"
        )
        with socket.create_connection(place, 30) as there:
            there.sendall(head)
            assert there.recv(65536).startswith(b"HTTP/1.1 413 ")
            there.sendall(messages.chunk(b'{"model": "m", "messages": []}') + b"0\r\n\r\n")
            again = request(running, b"Content-Length: 2\r\n", b"hi")
            there.sendall(again)
            assert there.recv(65536).startswith(b"HTTP/1.1 200 ")
        cut, whole = running.exchanges(2)
    assert (cut.outcome, cut.capture_note) == (ExchangeOutcome.COMPLETE, "answered-early")
    assert read_exchange(cut).problem == "capture:answered-early"
    assert (whole.request.body, whole.capture_note) == (b"hi", "")


def here(upstream: int, home: Path) -> Gateway:
    """Return a gateway of this process."""
    config = {
        "port": 0,
        "forward_port": None,
        "admin_port": None,
        "keys": str(home / "keys.json"),
        "limits": str(home / "limits.sqlite"),
        "capture": False,
        "routes": [{"name": "up", "upstream": f"http://127.0.0.1:{upstream}"}],
    }
    validated = GatewayConfig.model_validate(config)
    return Gateway(validated, spool_key=b"s" * 32, fingerprint_key=b"f" * 32)


def test_thousands_of_requests_sent_ahead_leave_the_loop_to_others(
    upstream: RawUpstream, tmp_path: Path
) -> None:
    """Not even who presents no key may keep the event loop for himself."""
    raw, count = b"GET /up/x HTTP/1.1\r\nHost: x\r\n\r\n", 2000

    def send(port: int) -> int:
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(raw * count)
            got = b""
            while got.count(b"HTTP/1.1 401") < count:
                got += connection.recv(65536)
            return got.count(b"HTTP/1.1 401")

    async def main() -> tuple[int, int]:
        gateway = here(upstream.port, tmp_path)
        addresses = await gateway.start()
        assert addresses.base_url is not None
        try:
            calling = asyncio.ensure_future(asyncio.to_thread(send, addresses.base_url[1]))
            turns = 0
            while not calling.done():
                turns += 1
                await asyncio.sleep(0)
            return await calling, turns
        finally:
            await gateway.close()

    answered, turns = asyncio.run(main())
    assert answered == count
    assert turns > count


def test_an_upstream_that_takes_nothing_holds_its_client_up_from_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came while the upstream was connected may be more than that takes at once."""
    monkeypatch.setattr(call, "_UNSENT_BYTES", 8_000_000)  # loopback takes a few megabytes
    most = 64_000_000
    with socket.socket() as deaf, ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):  # until these are accepted, nobody else is
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())

        def accept() -> None:
            with suppress(OSError):
                while True:
                    stack.enter_context(deaf.accept()[0])

        accepting = threading.Thread(target=accept)

        def send(port: int, key: str) -> int:
            head = f"POST /up/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            head += f"Content-Length: {most}\r\n\r\n"
            sent = 0
            with socket.create_connection(("127.0.0.1", port), 60) as connection:
                connection.sendall(head.encode())
                connection.settimeout(0.5)
                with suppress(TimeoutError):
                    while sent < most:
                        sent += connection.send(b"x" * 1_000_000)
                accepting.start()
                connection.settimeout(4)
                with suppress(TimeoutError):
                    while sent < most:
                        sent += connection.send(b"x" * 1_000_000)
            return sent

        async def main() -> int:
            key = KeyRegistry.load(tmp_path / "keys.json").create(tenant_id="acme", app_id="x")
            gateway = here(deaf.getsockname()[1], tmp_path)
            addresses = await gateway.start()
            assert addresses.base_url is not None
            try:
                return await asyncio.to_thread(send, addresses.base_url[1], key.secret)
            finally:
                await gateway.close()

        try:
            assert 8_000_000 < uvloop.run(main()) < most
        finally:
            deaf.shutdown(socket.SHUT_RDWR)
            accepting.join()


def test_no_call_is_left_to_the_collector(upstream: RawUpstream, tmp_path: Path) -> None:
    key = KeyRegistry.load(tmp_path / "keys.json").create(tenant_id="acme", app_id="x").secret

    def ask_five(port: int) -> None:
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(headers=headers, timeout=30) as client:
            for _ in range(5):
                url = f"http://127.0.0.1:{port}/up/x"
                assert client.post(url, content=b"hello").content == b"ok"

    async def main() -> int:
        gateway = here(upstream.port, tmp_path)
        addresses = await gateway.start()
        assert addresses.base_url is not None
        gc.collect()
        gc.disable()
        try:
            await asyncio.to_thread(ask_five, addresses.base_url[1])
            return sum(type(each) is call.ClientCall for each in gc.get_objects())
        finally:
            gc.enable()
            await gateway.close()

    assert asyncio.run(main()) == 0


def test_a_head_that_dribbles_is_cut_off(gateway: GatewayProcess) -> None:
    began = time.monotonic()
    assert say(gateway, b"POST /up/x HTTP/1.1\r\nHost: ") == b""
    assert 9 < time.monotonic() - began < 30
