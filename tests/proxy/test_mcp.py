"""MCP through the gateway: the official client and server, unaware of it; the same bytes in all modes."""

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.server.fastmcp import Context, FastMCP

from tests.proxy.gateway_process import GatewayProcess
from tests.support.tls import Tls
from trajectory.exchange import Exchange

pytestmark = pytest.mark.filterwarnings("ignore")


@contextlib.contextmanager
def serving(tls: Tls, *, as_json: bool) -> Iterator[str]:
    """Serve tools over HTTPS; answers come as JSON or as streams of events."""
    server = FastMCP("tools", json_response=as_json, log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def count(to: int, ctx: Context[Any, Any, Any]) -> str:
        """Count, and tell how far it is: on the call's own stream, and on the session's."""
        for number in range(to):
            await ctx.report_progress(number, to)
            await ctx.info(f"at {number}")
        await ctx.session.send_tool_list_changed()
        return "done"

    config = uvicorn.Config(
        server.streamable_http_app(),
        port=0,
        log_level="error",
        ws="none",
        lifespan="on",
        ssl_certfile=str(tls.cert),
        ssl_keyfile=str(tls.key),
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"https://localhost:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join(5)


@dataclass
class RecordingTransport(httpx.AsyncBaseTransport):
    """Keeps what is sent, and status, kind and body of what comes back."""

    inner: httpx.AsyncHTTPTransport
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    got: list[tuple[str, int, str | None, list[bytes]]] = field(default_factory=list)
    listens: asyncio.Event = field(default_factory=asyncio.Event)
    """The session's own stream stands."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append((request.method, await request.aread()))
        response = await self.inner.handle_async_request(request)
        pieces: list[bytes] = []
        kind = response.headers.get("content-type")
        self.got.append((request.method, response.status_code, kind, pieces))
        if request.method == "GET":
            self.listens.set()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _RecordingStream(response.stream, pieces)
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()

    def all(self) -> tuple[list[Any], list[Any]]:
        """Return both directions; the session's stream runs beside the calls, so order says nothing."""
        got = sorted(
            (method, status, kind or "", b"".join(x)) for method, status, kind, x in self.got
        )
        return sorted(self.sent), got


class _RecordingStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, pieces: list[bytes]) -> None:
        self._inner, self._pieces = inner, pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._pieces.append(piece)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


async def talk(
    url: str, headers: dict[str, str], roots: str, proxy: str | None = None
) -> tuple[list[Any], list[Any]]:
    """Use the tools as an agent does; return the bytes of both directions."""
    context = ssl.create_default_context(cafile=roots)
    kept = RecordingTransport(httpx.AsyncHTTPTransport(verify=context, proxy=proxy))
    told = asyncio.Event()

    async def hear(message: object) -> None:
        if "list_changed" in repr(message):
            told.set()

    def client(**settings: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=kept, **settings)

    async with (
        streamablehttp_client(f"{url}/mcp", headers=headers, httpx_client_factory=client) as (  # type: ignore[arg-type]
            read,
            write,
            _,
        ),
        ClientSession(read, write, message_handler=hear) as session,
    ):
        await session.initialize()
        await asyncio.wait_for(kept.listens.wait(), 10)
        assert [tool.name for tool in (await session.list_tools()).tools] == ["add", "count"]
        result = await session.call_tool("add", {"a": 2, "b": 3})
        assert getattr(result.content[0], "text", "") == "5"
        await session.call_tool("count", {"to": 3}, progress_callback=_nothing)
        await asyncio.wait_for(told.wait(), 10)
    return kept.all()


async def _nothing(_done: float, _of: float | None, _said: str | None) -> None:
    """Take progress."""


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "stream"])
def test_the_same_bytes_in_both_modes(as_json: bool, tls: Tls, tmp_path: Path) -> None:
    with serving(tls, as_json=as_json) as url:
        settings = {
            "routes": [{"name": "tools", "upstream": url, "kind": "tool"}],
            "upstream_ca": str(tls.roots),
        }
        direct = asyncio.run(talk(url, {}, str(tls.roots)))
        with GatewayProcess(tmp_path, settings) as gateway:
            key = {"Authorization": f"Bearer {gateway.key}"}
            at_base = asyncio.run(talk(f"{gateway.url}/tools", key, str(tls.roots)))
            forward = asyncio.run(talk(url, {}, gateway.bundle, gateway.forward))
            kept = [r for r in gateway.records(14) if isinstance(r, Exchange)]
    sent, got = direct
    assert [method for method, _ in sent].count("POST") == 5
    assert any(b"list_changed" in body for method, _, _, body in got if method == "GET")
    assert any(b"at 2" in body for *_, body in got) is not as_json
    assert at_base == direct
    assert forward == direct
    assert {(e.mode, e.outcome.value) for e in kept} >= {
        ("base_url", "complete"),
        ("forward", "complete"),
    }
    assert sorted(e.request.body for e in kept if e.mode == "forward") == sorted(
        body for _, body in sent
    )


def test_a_tool_call_is_kept(tls: Tls, tmp_path: Path) -> None:
    with serving(tls, as_json=False) as url:
        settings = {
            "routes": [{"name": "tools", "upstream": url, "kind": "tool"}],
            "upstream_ca": str(tls.roots),
            "forward_port": None,
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            key = {"Authorization": f"Bearer {gateway.key}"}
            asyncio.run(talk(f"{gateway.url}/tools", key, str(tls.roots)))
            kept = [r for r in gateway.records(7) if isinstance(r, Exchange)]
    bodies = [json.loads(r.request.body) for r in kept if r.request.method == "POST"]
    assert {"initialize", "tools/list", "tools/call"} <= {body["method"] for body in bodies}
    called = next(r for r in kept if b'"add"' in r.request.body)
    assert called.response is not None
    assert b"5" in called.response.body
    assert "authorization" not in dict(called.request.headers)
