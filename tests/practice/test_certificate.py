"""HTTPS: the second door answers to clients that trust the authority, and to no others."""

import ssl
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from examples.practice.certificate import make_certificate
from trajectory.http_server import HttpServer


def test_the_certificate_is_good_for_localhost(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    assert files.key.stat().st_mode & 0o077 == 0

    async def hello(_: object) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.cert, files.key)
    with HttpServer(app, tls=tls) as server:
        trusting = ssl.create_default_context(cafile=str(files.ca))
        with httpx.Client(verify=trusting, trust_env=False) as client:
            assert client.get(f"https://localhost:{server.port}/").text == "hello"
        with (
            httpx.Client(trust_env=False) as client,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE"),
        ):
            client.get(f"https://localhost:{server.port}/")
