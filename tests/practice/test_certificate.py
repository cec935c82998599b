"""HTTPS: the second door answers to clients that trust the authority, and to no others."""

import asyncio
import ssl
import threading
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from examples.practice.certificate import make_certificate
from examples.practice.serving import Listener, _servers


def test_the_certificate_is_good_for_localhost(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    assert files.key.stat().st_mode & 0o077 == 0

    async def hello(_: object) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    (server,) = _servers(app, (Listener(0, cert=str(files.cert), key=str(files.key)),))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        trusting = ssl.create_default_context(cafile=str(files.ca))
        with httpx.Client(verify=trusting, trust_env=False) as client:
            assert client.get(f"https://localhost:{port}/").text == "hello"
        with (
            httpx.Client(trust_env=False) as client,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE"),
        ):
            client.get(f"https://localhost:{port}/")
    finally:
        server.should_exit = True
        thread.join(10)
