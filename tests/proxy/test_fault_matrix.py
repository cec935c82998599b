"""Every row of the fault matrix, whole and streamed: what the client sees, what is kept."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from proxy.spool.breaker import FIRST_SECONDS
from tests.proxy.fault_matrix import MATRIX, STREAMED, WHOLE, Fault, partial, script, table
from tests.proxy.gateway_process import GatewayProcess
from tests.support.tls import Tls
from tests.support.upstream import Upstream

ROOT = Path(__file__).resolve().parents[2]
BODY = b'{"model": "m", "messages": []}'
SENT = {"hang-up-sending": BODY[:5], "expect-refused": b""}
"""What a client has sent of its body, where that is not all of it."""
ROWS = [
    pytest.param(row, way, id=f"{row.name}-{way}")
    for row in MATRIX
    for way in (("whole", "stream") if row.both else ("whole",))
]


@dataclass
class Deployment:
    """The gateway and the upstream that the matrix runs against."""

    gateway: GatewayProcess
    upstream: Upstream

    @property
    def port(self) -> int:
        return int(self.gateway.url.rpartition(":")[2])


@contextlib.contextmanager
def listening(*, backlog: int) -> Iterator[int]:
    """Listen without ever accepting; a full backlog does not even complete a connection."""
    with socket.socket() as server, contextlib.ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(backlog)
        for _ in range(3 if backlog == 0 else 0):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield int(server.getsockname()[1])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="fast"),
        pytest.param(False, id="stock", marks=pytest.mark.slow),
    ],
)
def ground(
    request: pytest.FixtureRequest, tls: Tls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    with (
        Upstream(script) as upstream,
        Upstream(script, tls=tls.context) as secure,
        listening(backlog=0) as deaf,
        listening(backlog=50) as mute,
    ):
        targets = {
            "up": upstream.url,
            "closed": upstream.url,
            "refused": "http://127.0.0.1:9",
            "deaf": f"http://127.0.0.1:{deaf}",
            "mute": f"https://127.0.0.1:{mute}",
            "untrusted": secure.url,
        }
        routes = [
            {"name": name, "upstream": url, "connect_seconds": 0.6} for name, url in targets.items()
        ]
        routes[1]["without_capture"] = "refuse"
        settings = {"routes": routes, "forward_port": None, "fastpath": request.param}
        with GatewayProcess(tmp_path_factory.mktemp("matrix"), settings) as gateway:
            yield Deployment(gateway, upstream)


def request_of(path: str, key: str, *, method: str = "POST", more: bytes = b"") -> bytes:
    """Return a request's head; the body is BODY unless ``more`` says otherwise."""
    length = b"" if b"Transfer-Encoding" in more else b"Content-Length: %d\r\n" % len(BODY)
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n".encode()
        + length
        + more
        + b"\r\n"
    )


def read(connection: socket.socket, *, enough: float = 0.25) -> bytes:
    """Read until the other side closes, or has been silent for a while after its answer's end."""
    got = b""
    deadline = time.monotonic() + 60
    connection.settimeout(enough)
    while time.monotonic() < deadline:
        try:
            part = connection.recv(65536)
        except TimeoutError:
            if whole(got):
                return got
            continue
        except ConnectionResetError:
            return got
        if not part:
            return got
        got += part
        if whole(got):
            return got
    raise AssertionError(f"no end after {got[:200]!r}")


def final(got: bytes) -> tuple[int, bytes, bytes]:
    """Return status, head and raw body of the last answer; informational ones go before it."""
    while got.startswith((b"HTTP/1.1 100", b"HTTP/1.1 103")):
        got = got.partition(b"\r\n\r\n")[2]
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head[9:12] or 0), head, body


def whole(got: bytes) -> bool:
    """Tell whether an answer has its end."""
    status, head, body = final(got)
    if b"\r\n\r\n" not in got or not status:
        return False
    if status in (204, 304) or b"Content-Length: 1234" in head:
        return True
    if b"chunked" in head:
        _, found, _ = body.rpartition(b"0\r\n")[2].partition(b"\r\n\r\n")
        return bool(found) or body.endswith(b"0\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return length.isdigit() and len(body) >= int(length)


def unchunked(head: bytes, body: bytes) -> bytes:
    """Return a body without its chunks' frame."""
    if b"chunked" not in head:
        return body
    out, rest = b"", body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size or b"0", 16)
        if not length:
            break
        out, rest = out + rest[:length], rest[length + 2 :]
    return out


def call(ground: Deployment, row: Fault, way: str) -> bytes:
    """Make the call as the row's client makes it; return what came back."""
    key = ground.gateway.key + ("x" if row.name == "no-key" else "")
    path = f"/{row.route}/{row.name}/{way}" if row.name != "no-route" else "/nowhere/x/y"
    with socket.create_connection(("127.0.0.1", ground.port), 5) as connection:
        return ask(connection, row.name, path, key, streaming=way == "stream")


def direct(ground: Deployment, row: Fault, way: str) -> bytes:
    """Make the same call at the upstream itself."""
    with socket.create_connection(("localhost", ground.upstream.port), 5) as connection:
        return ask(connection, row.name, f"/{row.name}/{way}", "k", streaming=way == "stream")


def ask(connection: socket.socket, name: str, path: str, key: str, *, streaming: bool) -> bytes:
    """Say what the row's client says on a connection; return what came back."""
    plain = request_of(path, key)
    match name:
        case "bad-request":
            connection.sendall(b"\x00\x01 nonsense\r\n\r\n")
        case "head-endless":
            with contextlib.suppress(OSError):
                for _ in range(40):
                    connection.sendall(b"GET /x HTTP/1.1\r\nX-Filler: " + b"x" * 65536)
        case "head":
            connection.sendall(request_of(path, key, method="HEAD") + BODY)
        case "hang-up-sending":
            connection.sendall(plain + BODY[:5])
            time.sleep(0.1)
            return b""
        case "hang-up-waiting":
            connection.sendall(plain + BODY)
            time.sleep(0.1)
            return b""
        case "hang-up-reading" | "hang-up-unnoticed":
            connection.sendall(plain + BODY)
            while partial(streaming) not in connection.recv(65536):
                pass
            if name == "hang-up-reading":
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            return b""
        case "expect" | "expect-refused" | "expect-unheard":
            return wait_and_ask(connection, name, path, key)
        case "chunked-upload":
            connection.sendall(request_of(path, key, more=b"Transfer-Encoding: chunked\r\n"))
            half = len(BODY) // 2
            for part in (BODY[:half], BODY[half:]):
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            connection.sendall(b"0\r\nX-Checksum: abc\r\n\r\n")
        case "early-answer":
            connection.sendall(plain + BODY[:5])
            time.sleep(0.1)
            connection.sendall(BODY[5:])
        case _:
            connection.sendall(plain + BODY)
    return read(connection)


def wait_and_ask(connection: socket.socket, name: str, path: str, key: str) -> bytes:
    """Send the body only when told to go on, or after a while; return all that came back."""
    connection.sendall(request_of(path, key, more=b"Expect: 100-continue\r\n"))
    heard = b""
    connection.settimeout(0.3 if name == "expect-unheard" else 60)
    with contextlib.suppress(TimeoutError):
        heard = connection.recv(1024)
    if name == "expect-refused":
        return heard
    assert bool(heard) is (name == "expect")
    connection.sendall(BODY)
    return heard + read(connection)


@contextlib.contextmanager
def failing_disk(ground: Deployment) -> Iterator[None]:
    """Let the gateway's disk refuse every write."""
    process = psutil.Process(ground.gateway.pid)
    soft, hard = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))


def call_without_disk(ground: Deployment, row: Fault, way: str) -> bytes:
    """Return the answer to a call right after the disk has refused another one."""
    with failing_disk(ground):
        while True:
            began = time.monotonic()
            call(ground, Fault("well", "", "", ""), "whole")
            got = call(ground, row, way)
            if time.monotonic() - began < FIRST_SECONDS:  # later the disk is tried again
                return got


@pytest.mark.parametrize(("row", "way"), ROWS)
def test_row(ground: Deployment, row: Fault, way: str) -> None:
    streaming = way == "stream"
    without_disk = row.name.startswith("disk-")
    got = call_without_disk(ground, row, way) if without_disk else call(ground, row, way)
    if row.name == "chunked-upload":
        assert ground.upstream.seen[-1].trailers == [b"X-Checksum: abc"]
    status, head, body = final(got)
    if row.client == "nothing":
        assert got == b""
    elif row.client == "the same":
        if row.name != "dribble":
            assert got == direct(ground, row, way)
        assert unchunked(head, body) in (STREAMED, WHOLE) or "gzip" in row.name or not body
    elif row.client == "cut":
        assert status == 200
        assert not whole(got)
        assert unchunked(head, body) == partial(streaming or row.name == "bad-chunk")
    else:
        assert status == int(row.client)
        assert b"top-secret" not in got
        if row.name != "bad-request":
            assert b'{"error": {"message": "Headrace: ' in body
    if row.outcome == "-":
        assert ground.gateway.records(1, seconds=0.1) == [] or row.name.startswith("disk-")
        return
    exchange = ground.gateway.exchange()
    assert exchange.outcome.value == row.outcome
    if row.client == "the same" and row.name != "head":
        assert exchange.response is not None
        assert exchange.response.status == status
        assert exchange.response.body == unchunked(head, body)
    if row.client == "cut":
        assert exchange.response is not None
        assert exchange.response.body == partial(streaming or row.name == "bad-chunk")
    if row.outcome != "refused" and row.route == "up":
        assert exchange.request.body == SENT.get(row.name, BODY)


def test_no_row_leaves_content_or_credentials_in_logs_or_metrics(ground: Deployment) -> None:
    said = ground.gateway.log.read_text() + httpx.get(f"{ground.gateway.admin}/metrics").text
    assert "headrace_exchanges_total" in said
    for secret in ("top-secret", ground.gateway.key, '"messages"', "data: 1", "chatcmpl-1"):
        assert secret not in said


def test_the_document_shows_the_matrix() -> None:
    assert table() in (ROOT / "docs" / "faults.md").read_text("utf-8")
    assert len(MATRIX) >= 20
