"""MCP sessions of the official SDK's client with its server, over each of its HTTP transports."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.types import JSONRPCMessage
from starlette.applications import Starlette
from starlette.routing import Mount


class StoredEvents(EventStore):
    """Keeps all messages of streams, so that a broken one can be resumed."""

    def __init__(self) -> None:
        self.kept: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        begin = int(last_event_id)
        stream = self.kept[begin - 1][0]
        for number, (name, message) in enumerate(self.kept[begin:], begin + 1):
            if name == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def calculator(**settings: Any) -> FastMCP:
    """Return a server with three tools; one hangs up before it answers."""
    server = FastMCP("calculator", log_level="ERROR", **settings)

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two integers."""
        if a < 0:
            raise ValueError("no negative numbers")
        return a + b

    @server.tool()
    async def slow_add(a: int, b: int, context: Context) -> int:  # type: ignore[type-arg]
        """Add two integers; the answer comes on another stream."""
        await context.close_sse_stream()
        return a + b

    return server


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application on a free port; give the address."""
    config = uvicorn.Config(app, port=0, log_level="critical", ws="none", lifespan="on")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join(5)


@contextlib.contextmanager
def tool_servers() -> Iterator[dict[str, str]]:
    """Serve all transports; give their addresses."""
    plain = calculator(json_response=True)
    streaming = calculator(event_store=StoredEvents(), retry_interval=50)
    # Over HTTP+SSE the server names the address for posts: the gateway's prefix must be in it.
    older = calculator()
    with (
        serving(plain.streamable_http_app()) as one,
        serving(streaming.streamable_http_app()) as two,
        serving(Starlette(routes=[Mount("/tools-sse", older.sse_app())])) as three,
    ):
        yield {"json": one, "stream": two, "sse": f"{three}/tools-sse"}


async def streamable(url: str, key: str, *, resumed: bool = False) -> list[str]:
    """Hold a session over streamable HTTP."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        streamablehttp_client(f"{url}/mcp", headers=headers) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        return await _talk(session, "slow_add" if resumed else "add")


async def over_sse(url: str, key: str) -> list[str]:
    """Hold a session over HTTP+SSE."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        sse_client(f"{url}/sse", headers=headers) as (read, write),
        ClientSession(read, write) as session,
    ):
        return await _talk(session, "add")


async def _talk(session: ClientSession, tool: str) -> list[str]:
    await session.initialize()
    listed = [found.name for found in (await session.list_tools()).tools]
    results = [await session.call_tool(tool, {"a": 19, "b": 23})]
    results.append(await session.call_tool("add", {"a": -1, "b": 0}))
    return [*listed, *(getattr(result.content[0], "text", "") for result in results)]
