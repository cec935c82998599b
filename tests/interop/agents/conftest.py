"""A tool server that the agents reach through the gateway, and agents from npm as they are."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trajectory.http_server import HttpServer


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

    with HttpServer(server.streamable_http_app()) as listening:
        yield f"http://127.0.0.1:{listening.port}"


@pytest.fixture(scope="session")
def programs() -> Path:
    """Install the agents of npm from the committed lock, once; return the folder of their commands."""
    folder = Path(__file__).parent / "programs"
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: Claude Code and Codex come from it")
    with (folder / ".install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (folder / "package-lock.json").read_bytes()
        ready = folder / "node_modules" / ".headrace-lock"
        if not ready.exists() or ready.read_bytes() != wanted:
            command = ["npm", "ci", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
            if done.returncode and "CI" not in os.environ:
                pytest.skip(f"npm cannot install the agents: {done.stderr.strip()[-300:]}")
            assert done.returncode == 0, done.stderr[-2000:]
            ready.write_bytes(wanted)
    return folder / "node_modules" / ".bin"
