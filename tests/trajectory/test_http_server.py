"""An ASGI application served in a thread: bodies, slow clients, crowds, responses that break off."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from trajectory.http_server import (
    BodyTooLongError,
    HttpLimits,
    HttpServer,
    client_of,
    read_body,
)


async def echo(request: Request) -> Response:
    try:
        body = await read_body(request, 1000)
    except BodyTooLongError:
        return PlainTextResponse("too long", 413)
    if not client_of(request).admit():
        return PlainTextResponse("too many", 503)
    return Response(body)


async def broken(_request: Request) -> Response:
    def parts() -> Iterator[bytes]:
        yield b"begun"
        raise RuntimeError

    return StreamingResponse(parts())


async def endless(_request: Request) -> Response:
    def parts() -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    return StreamingResponse(parts())


APP = Starlette(
    routes=[
        Route("/echo", echo, methods=["POST"]),
        Route("/broken", broken),
        Route("/endless", endless),
    ]
)


def test_an_application_starts_before_the_first_request() -> None:
    @asynccontextmanager
    async def start(_: Starlette) -> AsyncIterator[dict[str, str]]:
        await asyncio.sleep(0.2)
        yield {"told": "ready"}
        told.append("ended")

    async def answer(request: Request) -> Response:
        return PlainTextResponse(request.state.told)

    told: list[str] = []
    app = Starlette(routes=[Route("/", answer)], lifespan=start)
    with HttpServer(app) as server:
        response = httpx.get(f"http://127.0.0.1:{server.port}/", trust_env=False)
        assert response.text == "ready"
    assert told == ["ended"]


@pytest.fixture
def base() -> Iterator[str]:
    with HttpServer(APP) as server:
        yield f"http://127.0.0.1:{server.port}"


def connected(server: HttpServer, sent: bytes, source: str = "127.0.0.1") -> socket.socket:
    made = socket.create_connection(
        ("127.0.0.1", server.port), timeout=30, source_address=(source, 0)
    )
    made.sendall(sent)
    return made


def test_a_body_has_a_longest_length(base: str) -> None:
    assert httpx.post(f"{base}/echo", content=b"x" * 1000).content == b"x" * 1000
    assert httpx.post(f"{base}/echo", content=b"x" * 1001).status_code == 413
    chunked = httpx.post(f"{base}/echo", content=iter([b"x" * 600, b"x" * 600]))
    assert chunked.status_code == 413


def test_a_connection_serves_many_requests(base: str) -> None:
    with httpx.Client(base_url=base) as client:
        for body in (b"a", b"x" * 5000, b"b"):
            said = client.post("/echo", content=body)
            assert said.content == (body if len(body) <= 1000 else b"too long")


def test_a_response_that_breaks_off_has_no_end(base: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{base}/broken")


def test_a_taken_port_is_an_error_at_once() -> None:
    with HttpServer(APP) as server, pytest.raises(OSError, match="in use"):
        HttpServer(APP, port=server.port)


def test_half_requests_and_idle_connections_end() -> None:
    with HttpServer(APP, limits=HttpLimits(request_seconds=0.5)) as server:
        head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"
        for sent in (b"", b"POST /echo HT", head, head + b"x" * 9):
            with connected(server, sent) as waiting:
                while waiting.recv(4096):
                    pass


def test_a_client_that_does_not_read_is_let_go() -> None:
    with HttpServer(APP, limits=HttpLimits(write_seconds=0.5)) as server:
        with connected(server, b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n") as idle:
            due = time.monotonic() + 60
            while server.clients or not idle.recv(1, socket.MSG_PEEK):
                assert time.monotonic() < due
                time.sleep(0.05)
        assert httpx.post(f"http://127.0.0.1:{server.port}/echo", content=b"x").content == b"x"


def test_a_crowd_loses_its_own_places() -> None:
    with HttpServer(APP, limits=HttpLimits(waiting=4)) as server, ExitStack() as stack:
        patient = stack.enter_context(connected(server, b"POST", "127.0.0.2"))
        crowd = [stack.enter_context(connected(server, b"POST")) for _ in range(9)]
        said = httpx.post(f"http://127.0.0.1:{server.port}/echo", content=b"x")
        assert said.content == b"x"
        for closed in crowd[:6]:
            with suppress(ConnectionError):
                assert closed.recv(1) == b""
        patient.setblocking(False)
        with pytest.raises(BlockingIOError):
            patient.recv(1)


def test_nothing_that_is_wrong_with_a_request_stops_the_server(
    base: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    port = int(base.rpartition(":")[2])
    for sent in (b"\x16\x03\x01 no http\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as made:
            made.sendall(sent)
            assert b" 400 " in made.recv(4096)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{base}/broken")
    assert httpx.post(f"{base}/echo", content=b"x").content == b"x"
    assert (caplog.text, *capfd.readouterr()) == ("", "", "")
