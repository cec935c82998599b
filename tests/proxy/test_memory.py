"""Memory stays flat: large bodies both ways, WebSocket floods to a client that reads slowly."""

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy.connection import Connection
    from OpenSSL import SSL

    from proxy.worker import Gateway

from tests.proxy.gateway_process import GatewayProcess
from tests.proxy.test_admission import answers as greet
from tests.proxy.test_fault_matrix import listening
from tests.support.tls import Tls
from tests.support.upstream import ReceivedRequest, Reply, Upstream, chunk, plain
from trajectory.exchange import Exchange, ExchangeOutcome

MEGABYTE = b"m" * 1_000_000
COUNT = 100
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def script(request: ReceivedRequest) -> Reply:
    """Answer with 100 MB, or flood a WebSocket with as much."""
    if request.target == "/hear":
        agreed = b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        head = greet(ReceivedRequest("GET", "/ws", request.headers, b"")).pieces[0]
        assert isinstance(head, bytes)
        if "permessage-deflate" in (request.header("sec-websocket-extensions") or ""):
            head = head.removesuffix(b"\r\n\r\n") + agreed
        return Reply([head, threading.Event()])
    if request.target == "/head":
        return Reply([b"HTTP/1.1 200 OK\r\nX-Long: ", *([MEGABYTE] * COUNT)])
    if request.target == "/part":
        return plain(200, b"p" * 200_000)
    if request.target == "/ws":
        head = greet(request).pieces[0]
        frame = b"\x82\x7e" + (64_000).to_bytes(2) + b"w" * 64_000
        return Reply([head, 0.1, *([frame * 10] * 100), b"\x88\x02\x03\xe8", 0.3], close=True)
    return Reply([_CHUNKED, *([chunk(MEGABYTE)] * COUNT), b"0\r\n\r\n"])


@contextlib.contextmanager
def growth(process: psutil.Process) -> Iterator[list[float]]:
    """Watch by how many megabytes a process grows at most."""
    before, peak, done = process.memory_info().rss, [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], (process.memory_info().rss - before) / 2**20)

    thread = threading.Thread(target=watch)
    thread.start()
    yield peak
    done.set()
    thread.join()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "up", "upstream": upstream.url}], "forward_port": None}
        with GatewayProcess(tmp_path_factory.mktemp("memory"), settings) as running:
            yield running


def connect(gateway: GatewayProcess) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2])), 20)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    return connection


def ended(gateway: GatewayProcess, path: str) -> list[int]:
    """Return the sizes of the bodies of the whole exchange with a path; late ones of other tests may come before."""
    until, found = time.monotonic() + 60, list[Exchange]()
    while not found and time.monotonic() < until:
        records = gateway.records(1, seconds=1)
        found = [r for r in records if isinstance(r, Exchange) and r.request.path == path]
    (record,) = found
    assert record.outcome is ExchangeOutcome.COMPLETE
    assert record.response is not None
    return [len(record.request.body), len(record.response.body)]


@pytest.mark.slow
def test_a_hundred_megabytes_each_way(gateway: GatewayProcess) -> None:
    head = (
        f"POST /up/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    with connect(gateway) as connection, growth(psutil.Process(gateway.pid)) as peak:
        connection.sendall(head.encode())
        for _ in range(COUNT):
            connection.sendall(chunk(MEGABYTE))
        connection.sendall(b"0\r\n\r\n")
        size, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            part = connection.recv(1 << 20)
            size, tail = size + len(part), (tail + part)[-16:]
    assert size > COUNT * len(MEGABYTE)
    assert peak[0] < 50
    assert ended(gateway, "/x") == [COUNT * len(MEGABYTE)] * 2


@pytest.mark.slow
def test_a_head_without_an_end_is_no_answer(gateway: GatewayProcess) -> None:
    with growth(psutil.Process(gateway.pid)) as peak:
        answer = httpx.get(
            f"{gateway.url}/up/head",
            headers={"authorization": f"Bearer {gateway.key}"},
            timeout=60,
        )
    assert answer.status_code == 502
    assert peak[0] < 20
    assert gateway.exchange().outcome is ExchangeOutcome.UPSTREAM_ABORT


@pytest.mark.parametrize("stage", ["connect", "tls"])
def test_a_body_waits_until_its_upstream_is_there(stage: str, tmp_path: Path) -> None:
    """While an upstream is being connected, a client's body is not read on into memory."""
    most = 60_000_000
    with listening(backlog=0 if stage == "connect" else 9) as port:
        scheme = "https" if stage == "tls" else "http"
        route = {"name": "up", "upstream": f"{scheme}://127.0.0.1:{port}"}
        settings = {"routes": [route], "forward_port": None, "connect_seconds": 2}
        with GatewayProcess(tmp_path, settings) as gateway, connect(gateway) as connection:
            head = (
                f"POST /up/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
                f"Content-Length: {most}\r\n\r\n"
            )
            connection.sendall(head.encode())
            sent = 0
            with growth(psutil.Process(gateway.pid)) as peak:
                connection.settimeout(1)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    while sent < most:
                        sent += connection.send(MEGABYTE)
            connection.settimeout(20)
            answer = connection.recv(65536)
    assert sent < most
    assert peak[0] < 25
    assert answer.startswith(b"HTTP/1.1 50")


@pytest.mark.parametrize("admitted", [True, False], ids=["admitted", "refused"])
def test_who_reads_no_answer_gets_no_further_one(gateway: GatewayProcess, admitted: bool) -> None:
    """A client that sends requests ahead and reads nothing is soon read from no more."""
    key = gateway.key if admitted else "none"
    head = f"GET /up/part HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    sent, most = 0, 16_000_000
    with connect(gateway) as connection, growth(psutil.Process(gateway.pid)) as peak:
        connection.settimeout(1.5)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < most:
                sent += connection.send(head * 500)
    assert sent < most
    assert peak[0] < 20
    gateway.records(10**6, seconds=1)


def test_a_websocket_flood_to_a_slow_client(gateway: GatewayProcess) -> None:
    head = (
        f"GET /up/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with connect(gateway) as connection, growth(psutil.Process(gateway.pid)) as peak:
        connection.sendall(head.encode())
        time.sleep(1)
        size = 0
        while part := connection.recv(1 << 20):
            size += len(part)
    assert size > 60_000_000
    assert peak[0] < 50
    assert ended(gateway, "/ws")[1] > 60_000_000


def greeted(gateway: GatewayProcess, more: str = "") -> socket.socket:
    """Open a WebSocket by hand."""
    connection = connect(gateway)
    connection.sendall(
        f"GET /up/hear HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(4096)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"permessage-deflate" not in head.lower()
    return connection


def frame(first: int, data: bytes) -> bytes:
    """Return a frame as a client sends it, masked with nothing."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 127]) + size.to_bytes(8)
    return bytes([first]) + length + bytes(4) + data


def closed_with(connection: socket.socket) -> int | None:
    """Return the code with which a WebSocket is closed; None where what was unread resets it first."""
    got = b""
    connection.settimeout(60)  # a machine that is busy with other things takes its time
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            got += part
    assert got[:1] in (b"\x88", b""), got[:20]
    return int.from_bytes(got[2:4]) if got else None


def test_a_compressed_message_cannot_fill_the_memory(gateway: GatewayProcess) -> None:
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"".join(squeezed.compress(b" " * 2**20) for _ in range(300))
    bomb = (bomb + squeezed.flush(zlib.Z_SYNC_FLUSH))[:-4]
    offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
    with greeted(gateway, offer) as connection, growth(psutil.Process(gateway.pid)) as peak:
        with contextlib.suppress(ConnectionError):
            connection.sendall(frame(0xC1, bomb))
        assert closed_with(connection) in (1002, None)
    assert peak[0] < 50


@pytest.mark.parametrize("size", [1_000_000, 0], ids=["large", "many"])
def test_a_message_without_an_end_is_closed(gateway: GatewayProcess, size: int) -> None:
    with greeted(gateway) as connection, growth(psutil.Process(gateway.pid)) as peak:
        part = frame(0x00, bytes(size))
        with contextlib.suppress(ConnectionError):
            connection.sendall(frame(0x02, b""))
            for _ in range(60 if size else 1_000):
                connection.sendall(part * (1 if size else 1_000))
        assert closed_with(connection) in (1009, None)
    assert peak[0] < 150


def test_compressed_feedback_cannot_fill_the_memory(gateway: GatewayProcess) -> None:
    body = gzip.compress(b" " * (300 * 2**20), 9)
    with growth(psutil.Process(gateway.pid)) as peak:
        answer = httpx.post(
            f"{gateway.url}/headrace/v1/feedback",
            content=body,
            headers={"authorization": f"Bearer {gateway.key}", "content-encoding": "gzip"},
            timeout=60,
        )
    assert answer.status_code == 413
    assert peak[0] < 50


def standing() -> int:
    """Count the connections of this process that still are objects."""
    gc.collect()
    return sum(issubclass(type(each), Connection | SSL.Connection) for each in gc.get_objects())


def test_closed_connections_leave_nothing_behind(tls: Tls, tmp_path: Path) -> None:
    key = KeyRegistry.load(tmp_path / "keys.json").create(tenant_id="acme", app_id="x").secret
    config = GatewayConfig.model_validate(
        {
            "port": None,
            "forward_port": 0,
            "admin_port": None,
            "authority": str(tmp_path / "ca"),
            "upstream_ca": str(tls.roots),
            "keys": str(tmp_path / "keys.json"),
            "limits": str(tmp_path / "limits.sqlite"),
            "spool": {"directory": str(tmp_path / "spool")},
            "intercept_hosts": ["localhost"],
        }
    )

    def call(port: int, times: int) -> None:
        roots = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.pem"))
        for _ in range(times):
            place = f"http://headrace:{key}@127.0.0.1:{port}"
            with httpx.Client(proxy=place, verify=roots, timeout=60) as client:
                assert client.get(f"{upstream.url}/x").content == b"ok"

    async def left(gateway: Gateway, port: int, times: int, before: int) -> int:
        await asyncio.to_thread(call, port, times)
        deadline = time.monotonic() + 30
        while True:
            found = standing()
            if (not gateway.connections and found <= before) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.05)

    async def main() -> int:
        before = standing()
        gateway = Gateway(config, spool_key=b"s" * 32, fingerprint_key=b"f" * 32)
        try:
            addresses = await gateway.start()
            assert addresses.forward is not None
            port = addresses.forward[1]
            return await left(gateway, port, 10, before) - before
        finally:
            await gateway.close()

    with Upstream(lambda _: plain(200, b"ok"), tls=tls.context) as upstream:
        assert asyncio.run(main()) <= 0
