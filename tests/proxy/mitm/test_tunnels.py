"""What passes under a CONNECT: opened or blind, with the overrides and with stock code."""

import base64
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.tls import Tls
from tests.support.upstream import ReceivedRequest, Reply, Upstream, plain, stream

_LEAVE = threading.Event()
_APPLICATION_DATA = 23
"""Kind of a TLS record that holds what is protected."""


def script(request: ReceivedRequest) -> Reply:
    """Answer with what was sent; where the target says so, in chunks, or by an end of the connection."""
    if "chunks" in request.target:
        return stream([request.body] * 3)
    if "leave" in request.target:
        return Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", _LEAVE], close=True)
    if "close" in request.target:
        return Reply([b"HTTP/1.1 200 OK\r\n\r\nto the end"], close=True)
    return plain(200, request.body)


@pytest.fixture(scope="module")
def secure(tls: Tls) -> Iterator[Upstream]:
    with Upstream(script, tls=tls.context) as server:
        yield server


@pytest.fixture(scope="module")
def other() -> Iterator[Upstream]:
    with Upstream(script) as server:
        yield server


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "stock"])
def proxy(
    secure: Upstream,
    tls: Tls,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[GatewayProcess]:
    settings = {
        "routes": [{"name": "up", "upstream": secure.url}],
        "upstream_ca": str(tls.roots),
        "fastpath": request.param,
    }
    with GatewayProcess(tmp_path_factory.mktemp("tunnels"), settings) as running:
        yield running


class Client:
    """A client on one connection to the proxy, which speaks TLS over it once that is asked for."""

    def __init__(self, proxy: GatewayProcess) -> None:
        self.raw = socket.create_connection(("127.0.0.1", proxy.forward_port), 30)
        self._bundle = proxy.bundle
        word = base64.b64encode(f"x:{proxy.key}".encode()).decode()
        self.key = f"Proxy-Authorization: Basic {word}\r\n"
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.records: list[int] = []
        """Kinds of the TLS records that came."""
        self._rest = b""

    def close(self) -> None:
        self.raw.close()

    def read_head(self) -> bytes:
        """Read what ends with an empty line, outside of TLS."""
        found = b""
        while not found.endswith(b"\r\n\r\n"):
            more = self.raw.recv(1)
            assert more, found
            found += more
        return found

    def connect(self, upstream: Upstream) -> None:
        """Ask for a tunnel."""
        place = f"localhost:{upstream.port}"
        self.raw.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{self.key}\r\n".encode())
        assert self.read_head().startswith(b"HTTP/1.1 200")

    def greet(self, *, piece: int = 0) -> None:
        """Begin TLS; the greeting may come in two pieces."""
        context = ssl.create_default_context(cafile=self._bundle)
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        greeting = self._out.read()
        self._send(greeting[:piece], greeting[piece:])
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._exchange()
        self.raw.sendall(self._out.read())

    def _exchange(self) -> bool:
        """Send what TLS has made, and take what has come; False where that is the end."""
        self.raw.sendall(self._out.read())
        data = self.raw.recv(65536)
        self._in.write(data)
        self._rest += data
        while len(self._rest) >= 5 and len(self._rest) >= 5 + (
            length := int.from_bytes(self._rest[3:5])
        ):
            self.records.append(self._rest[0])
            self._rest = self._rest[5 + length :]
        return bool(data)

    def _send(self, first: bytes, rest: bytes) -> None:
        """Send two pieces that arrive apart."""
        self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if first:
            self.raw.sendall(first)
            time.sleep(0.3)  # one that comes with the rest is read with it, and proves less
        self.raw.sendall(rest)

    def call(self, target: str, body: bytes = b"", *, until: bytes | None) -> bytes:
        """Make a call under TLS; return what comes until it ends so, or until the connection does."""
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        return self.say(b"", head.encode() + body, until=until)

    def say(self, first: bytes, rest: bytes, *, until: bytes | None) -> bytes:
        """Say something under TLS, which may begin in a record of its own; return what comes."""
        if first:
            self._tls.write(first)
        begun = self._out.read()
        self._tls.write(rest)
        self._send(begun, self._out.read())
        found = b""
        while until is None or not found.endswith(until):
            try:
                found += self._tls.read(65536)
            except ssl.SSLWantReadError:
                if not self._exchange():
                    break
            except ssl.SSLError:
                break
        return found


def test_calls_follow_each_other_in_an_opened_tunnel(
    proxy: GatewayProcess, secure: Upstream
) -> None:
    with closing(Client(proxy)) as client:
        client.connect(secure)
        client.greet()
        assert client.call("/echo", b"one", until=b"one").startswith(b"HTTP/1.1 200")
        assert client.call("/chunks", b"two", until=b"0\r\n\r\n").count(b"3\r\ntwo\r\n") == 3
        assert client.call("/echo", b"three", until=b"three").startswith(b"HTTP/1.1 200")
    answers = [exchange.response for exchange in proxy.exchanges(3)]
    assert [each.body for each in answers if each] == [b"one", b"twotwotwo", b"three"]


def test_an_answer_that_ends_with_its_connection_ends_the_tunnel(
    proxy: GatewayProcess, secure: Upstream
) -> None:
    with closing(Client(proxy)) as client:
        client.connect(secure)
        client.greet()
        assert client.call("/close", until=None).endswith(b"to the end")
    response = proxy.exchange().response
    assert response is not None
    assert response.body == b"to the end"


def test_a_plain_call_before_the_tunnel_leaves_its_upstream_to_who_made_it(
    proxy: GatewayProcess, secure: Upstream, other: Upstream
) -> None:
    _LEAVE.clear()
    with closing(Client(proxy)) as client:
        place = f"localhost:{other.port}"
        head = f"POST http://{place}/leave HTTP/1.1\r\nHost: {place}\r\n{client.key}"
        client.raw.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
        assert client.read_head().startswith(b"HTTP/1.1 200")
        client.connect(secure)
        client.greet()
        assert client.call("/echo", b"one", until=b"one").startswith(b"HTTP/1.1 200")
        _LEAVE.set()
        for _ in range(8):
            assert client.call("/echo", b"two", until=b"two").startswith(b"HTTP/1.1 200")
    proxy.exchanges(9)
    assert "ERROR" not in proxy.log.read_text()


@pytest.mark.parametrize("first", [b"\r\n", b"P"])
def test_what_is_opened_is_http_however_it_begins(
    proxy: GatewayProcess, secure: Upstream, first: bytes
) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\none"
    with closing(Client(proxy)) as client:
        client.connect(secure)
        client.greet()
        rest = head.removeprefix(first)
        assert client.say(first, rest, until=b"one").startswith(b"HTTP/1.1 200")
    assert proxy.exchange().request.body == b"one"


def test_a_greeting_in_small_pieces_is_still_one(proxy: GatewayProcess, secure: Upstream) -> None:
    with closing(Client(proxy)) as client:
        client.connect(secure)
        client.greet(piece=1)
        assert client.call("/echo", b"one", until=b"one").startswith(b"HTTP/1.1 200")
    assert proxy.exchange().request.body == b"one"


def test_a_blind_tunnel_closes_both_sides_together(proxy: GatewayProcess) -> None:
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        there, _ = listener.accept()
        with there:
            there.settimeout(30)
            while data := there.recv(65536):
                heard.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener, closing(Client(proxy)) as client:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        client.raw.sendall(
            f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{client.key}\r\n".encode()
        )
        client.read_head()
        client.raw.sendall(b"all of it")
        client.raw.shutdown(socket.SHUT_WR)
        assert client.raw.recv(65536) == b""
        thread.join(30)
    assert b"".join(heard) == b"all of it"


def test_a_head_and_its_body_are_sealed_as_one_record(
    proxy: GatewayProcess, secure: Upstream
) -> None:
    with closing(Client(proxy)) as client:
        client.connect(secure)
        client.greet()
        client.call("/echo", b"one", until=b"one")
        client.records.clear()
        client.call("/echo", b"two", until=b"two")
    fast = '"fastpath":true' in (proxy.home / "gateway.json").read_text()
    assert client.records == [_APPLICATION_DATA] * (1 if fast else 2)
    proxy.exchanges(2)


def test_a_blind_tunnel_ends_with_the_key_that_opened_it(proxy: GatewayProcess) -> None:
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        there, _ = listener.accept()
        with there:
            there.settimeout(30)
            while data := there.recv(65536):
                heard.append(data)
                there.sendall(data)

    created = proxy.registry.create(tenant_id="acme", app_id="leaving")
    word = base64.b64encode(f"x:{created.secret}".encode()).decode()
    with socket.create_server(("127.0.0.1", 0)) as listener, closing(Client(proxy)) as client:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: Basic {word}\r\n"
        client.raw.sendall(f"{head}\r\n".encode())
        assert client.read_head().startswith(b"HTTP/1.1 200")
        client.raw.sendall(b"before")
        assert client.raw.recv(65536) == b"before"
        proxy.registry.revoke(created.key.key_id)
        until, left = time.monotonic() + 60, b"more"
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while left:  # keys are looked at twice a second, and so are tunnels
                assert time.monotonic() < until, "the tunnel is still open"
                time.sleep(0.1)
                client.raw.sendall(b"more")
                left = client.raw.recv(65536)
        thread.join(30)
    assert b"".join(heard).startswith(b"before")
