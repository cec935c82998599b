"""MCP through the gateway: the official SDK's client and server, streamable HTTP, both unaware."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.server.fastmcp import FastMCP

from tests.proxy.running import Running
from trajectory.exchange import Exchange


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    server = FastMCP("tools")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = uvicorn.Config(
        server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error", ws="none"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tool_call_through_the_gateway(tools: str, tmp_path: Path) -> None:
    async def call(url: str, key: str) -> str:
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            streamablehttp_client(url, headers=headers) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            listed = await session.list_tools()
            assert [tool.name for tool in listed.tools] == ["add"]
            result = await session.call_tool("add", {"a": 2, "b": 3})
            return getattr(result.content[0], "text", "")

    routes = [{"name": "tools", "upstream": tools, "kind": "tool"}]
    with Running(tmp_path, {"routes": routes}) as gateway:
        assert asyncio.run(call(f"{gateway.url}/tools/mcp", gateway.key)) == "5"
        records = [r for r in gateway.records(5) if isinstance(r, Exchange)]
    bodies = [json.loads(r.request.body) for r in records if r.request.method == "POST"]
    methods = [body["method"] for body in bodies]
    assert {"initialize", "tools/list", "tools/call"} <= set(methods)
    called = next(r for r in records if b"tools/call" in r.request.body)
    assert called.response is not None
    assert b"5" in called.response.body
    assert "authorization" not in dict(called.request.headers)
