"""Answers through the mitmproxy listener: what no client could read is refused, framing is its own."""

from collections.abc import Iterator

import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.proxy.plain.test_messages import RawUpstream, request, say, upstream

__all__ = ["upstream"]

ASKED = b"Content-Length: 0\r\nConnection: close\r\n"


@pytest.fixture(scope="module", params=[True, False], ids=["fastpath", "stock"])
def gateway(
    request: pytest.FixtureRequest,
    upstream: RawUpstream,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GatewayProcess]:
    routes = [{"name": "up", "upstream": f"http://127.0.0.1:{upstream.port}"}]
    settings = {"routes": routes, "forward_port": None, "fastpath": request.param}
    with GatewayProcess(tmp_path_factory.mktemp("answers"), settings) as running:
        yield running


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 99 Low", b"HTTP/1.1 0 Zero", b"HTTP/1.1 -200 OK", b"HTTP/1.1 200 O\x1bK"]
)
def test_a_status_that_no_client_reads_is_a_broken_answer(
    gateway: GatewayProcess, upstream: RawUpstream, line: bytes
) -> None:
    upstream.answers = [line + b"\r\nContent-Length: 2\r\n\r\nok"]
    assert say(gateway, request(gateway, ASKED)).startswith(b"HTTP/1.1 502 ")


def test_no_trailer_of_an_answer_speaks_of_its_framing(
    gateway: GatewayProcess, upstream: RawUpstream
) -> None:
    upstream.answers = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\nX-Sum: 1\r\nKeep-Alive: 1\r\n\r\n"
    ]
    told = say(gateway, request(gateway, ASKED))
    assert told.endswith(b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n")
