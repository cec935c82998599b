"""A tool server that the agents reach through the gateway."""

from collections.abc import Iterator

import pytest

from examples.practice.serving import served_in_thread


@pytest.fixture
def shop() -> Iterator[str]:
    """Address of an MCP server with two tools."""
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("shop", log_level="CRITICAL")

    @server.tool()
    def quote(item: str, quantity: int) -> str:
        """Return a price."""
        return f"{quantity} {item}: {quantity * 3 % 50}.00"

    @server.tool()
    def reserve(item: str, quantity: int) -> str:
        """Put something aside."""
        return f"reserved {item}"

    with served_in_thread(server.streamable_http_app()) as port:
        yield f"http://127.0.0.1:{port}"
