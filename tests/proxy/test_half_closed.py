"""Clients that close their sending side: some read on, some have gone without a word."""

import asyncio
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from OpenSSL import SSL

    from proxy.config import GatewayConfig
    from proxy.keys import KeyRegistry
    from proxy.mitm.wire import half_close
    from proxy.worker import Gateway

from proxy.spool import Cursor, SpoolReader
from tests.proxy.conftest import Tls
from tests.proxy.running import FINGERPRINT_KEY, SPOOL_KEY, Running
from tests.proxy.upstream import Reply, Seen, Upstream, plain
from trajectory.exchange import Exchange

REQUEST = b"POST /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    b"5\r\nworld\r\n0\r\nX-Sum: 1\r\n\r\n"
)


class Listener(threading.Thread):
    """An upstream that answers only once its client has closed its sending side."""

    def __init__(self, tls: Tls) -> None:
        super().__init__(daemon=True)
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.use_certificate_file(str(tls.cert))
        context.use_privatekey_file(str(tls.key))
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.told: list[str] = []

    def run(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._server.accept()
                with accepted:
                    self._one(SSL.Connection(self._context, accepted))

    def _one(self, connection: SSL.Connection) -> None:
        connection.set_accept_state()
        got = b""
        try:
            while True:
                got += connection.recv(65536)
        except SSL.ZeroReturnError:
            self.told.append(got.rpartition(b"\r\n\r\n")[2].decode())
            connection.sendall(ANSWER)
        except SSL.Error as error:
            self.told.append(repr(error))
        connection.sock_shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def listener(tls: Tls) -> Iterator[Listener]:
    upstream = Listener(tls)
    upstream.start()
    yield upstream
    upstream.close()
    upstream.join(5)


def call(connection: socket.socket) -> bytes:
    """Make the call over TLS and close the sending side; return what comes back."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    secure = SSL.Connection(context, connection)
    secure.set_tlsext_host_name(b"localhost")
    secure.set_connect_state()
    secure.do_handshake()
    secure.sendall(REQUEST)
    secure.shutdown()
    got = b""
    with suppress(SSL.Error):
        while part := secure.recv(65536):
            got += part
    return got


@pytest.mark.parametrize(
    "fastpath", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["fast", "stock"]
)
def test_it_is_answered_and_kept_whole(
    listener: Listener, tls: Tls, tmp_path: Path, fastpath: bool
) -> None:
    settings = {
        "port": None,
        "intercept_hosts": [f"localhost:{listener.port}"],
        "upstream_ca": str(tls.roots),
        "fastpath": fastpath,
    }
    with socket.create_connection(("127.0.0.1", listener.port), 5) as plain:
        plain.settimeout(None)
        direct = call(plain)
    assert direct == ANSWER
    with (
        Running(tmp_path, settings) as gateway,
        socket.create_connection(("127.0.0.1", gateway.forward_port), 5) as plain,
    ):
        plain.settimeout(None)
        target = f"localhost:{listener.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        plain.sendall(f"{head}Proxy-Authorization: Bearer {gateway.key}\r\n\r\n".encode())
        assert b" 200 " in plain.recv(1024)
        got = call(plain)
        assert got == direct
        exchange = gateway.exchange()
    assert listener.told == ["hello", "hello"]
    assert exchange.outcome.value == "complete"
    assert exchange.request.body == b"hello"
    assert exchange.response is not None
    assert exchange.response.body == b"world"


@pytest.mark.parametrize(
    "fastpath", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["fast", "stock"]
)
def test_who_has_gone_is_noticed_and_who_waits_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fastpath: bool
) -> None:
    """A FIN says nothing more will be sent, not that nobody reads: only the kernel can tell."""
    asked_soon = half_close.Patience(look_seconds=0.1, idle_seconds=1, interval_seconds=1)
    monkeypatch.setattr(half_close, "PATIENCE", asked_soon)
    think = threading.Event()

    def script(_: Seen) -> Reply:
        return Reply([think, *plain(200, b"late").pieces])

    key = KeyRegistry.load(tmp_path / "keys.json").create(tenant_id="acme", app_id="x").secret

    def ask(port: int, word: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), 60)
        head = f"GET /up/{word} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        return connection

    def scene(port: int, gateway: Gateway) -> bytes:
        with ask(port, "waits") as waiting:
            with ask(port, "breaks") as breaking:
                with ask(port, "vanishes") as vanishing:
                    until(lambda: len(upstream.seen) == 3)
                    # How long its kernel remembers the connection: a minute where nobody says so.
                    vanishing.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
                until(lambda: gateway.connections == 2)
                breaking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until(lambda: gateway.connections == 1)
            think.set()
            return b"".join(iter(lambda: waiting.recv(65536), b""))

    async def main() -> bytes:
        gateway = Gateway(config, spool_key=SPOOL_KEY, fingerprint_key=FINGERPRINT_KEY)
        try:
            addresses = await gateway.start()
            assert addresses.base_url is not None
            return await asyncio.to_thread(scene, addresses.base_url[1], gateway)
        finally:
            await gateway.close()

    with Upstream(script) as upstream:
        config = GatewayConfig.model_validate(
            {
                "port": 0,
                "forward_port": None,
                "admin_port": None,
                "keys": str(tmp_path / "keys.json"),
                "limits": str(tmp_path / "limits.sqlite"),
                "spool": {"directory": str(tmp_path / "spool")},
                "routes": [{"name": "up", "upstream": upstream.url}],
                "fastpath": fastpath,
            }
        )
        got = asyncio.run(main())
    assert got.endswith(b"\r\n\r\nlate")
    records = SpoolReader(tmp_path / "spool", SPOOL_KEY).take(Cursor()).records
    kept = {r.request.path: r.outcome.value for r in records if isinstance(r, Exchange)}
    gone = "client_abort"
    assert kept == {"/vanishes": gone, "/breaks": gone, "/waits": "complete"}


def until(holds: Callable[[], bool]) -> None:
    """Wait for what must come."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
