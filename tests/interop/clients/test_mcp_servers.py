"""Other people's MCP servers behind ``headrace tap`` with rules: the official client goes on after denials."""

import asyncio
import shutil
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from governance.policy.bundle import SHIPPED
from tests.scenarios.test_tap import TappedHome

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
RULES = """
apiVersion: headrace/v1
kind: Action
metadata: {{name: servers}}
spec:
  taps: ["*"]
  effects: {{"read*": read, "list*": read, "write*": destructive, "edit*": destructive, "move*": destructive}}
  rules:
    - {{name: outside, match: {{tools: ["*file*", "*director*"], arguments: [{{path: $..path, outside: {folder}/open}}]}}, decision: deny}}
    - {{name: changes, match: {{tools: ["write*", "edit*", "move*"]}}, decision: deny, reason: Read alone.}}
    - {{name: sums, match: {{tools: "get-sum", arguments: [{{path: $.a, above: 100}}]}}, decision: deny}}
    - {{name: secrets, match: {{tools: "*env*"}}, decision: deny}}
"""


@pytest.fixture(scope="session")
def servers() -> Path:
    """Return the folder of the servers' programs."""
    told = subprocess.run(
        [ROOT / "scripts" / "test-environment", "mcp-servers"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return ROOT / told.stdout.splitlines()[-1] / ".bin"


@pytest.fixture
def tapped(tmp_path: Path) -> TappedHome:
    made = TappedHome(tmp_path)
    policy = shutil.copytree(SHIPPED / "agents-safe", tmp_path / "policy")
    (policy / "actions.yaml").write_text(RULES.format(folder=tmp_path), encoding="utf-8")
    made.environment["HEADRACE_POLICY_BUNDLE"] = str(policy)
    return made


@asynccontextmanager
async def connected(tapped: TappedHome, *command: str) -> Any:
    program, *arguments = tapped.command(*command)
    parameters = StdioServerParameters(command=program, args=arguments, env=tapped.environment)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


def said(result: Any) -> str:
    """Return the text of a result."""
    return " ".join(getattr(part, "text", "") for part in result.content)


def test_the_filesystem_server(servers: Path, tapped: TappedHome, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("omega", encoding="utf-8")

    async def talk() -> None:
        # The server itself may read all of it: only the rules stand before the secret.
        async with connected(
            tapped, str(servers / "mcp-server-filesystem"), str(tmp_path)
        ) as session:
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert {"read_text_file", "write_file", "edit_file", "move_file"} <= tools
            path = str(folder / "a.txt")
            assert "alpha" in said(await session.call_tool("read_text_file", {"path": path}))
            for tool, arguments in (
                ("read_text_file", {"path": str(tmp_path / "secret.txt")}),
                ("read_text_file", {"path": f"{folder}/../secret.txt"}),
                ("read_multiple_files", {"paths": [path], "path": str(tmp_path / "secret.txt")}),
                ("write_file", {"path": f"{folder}/b.txt", "content": "beta"}),
                ("edit_file", {"path": path, "edits": [{"oldText": "alpha", "newText": "beta"}]}),
                ("move_file", {"source": path, "destination": f"{folder}/c.txt"}),
                ("Write-File", {"path": f"{folder}/b.txt", "content": "beta"}),
            ):
                told = await session.call_tool(tool, arguments)
                assert told.isError, tool
                assert said(told).startswith("Headrace: rule "), tool
                assert "omega" not in said(told)
            listed = said(await session.call_tool("list_directory", {"path": str(folder)}))
            assert "a.txt" in listed

    asyncio.run(talk())
    assert [one.name for one in folder.iterdir()] == ["a.txt"]
    assert (folder / "a.txt").read_text(encoding="utf-8") == "alpha"


def test_the_everything_server(servers: Path, tapped: TappedHome) -> None:
    async def talk() -> None:
        async with connected(tapped, str(servers / "mcp-server-everything")) as session:
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert {"echo", "get-sum", "get-env"} <= tools
            assert "hello" in said(await session.call_tool("echo", {"message": "hello"}))
            assert "5" in said(await session.call_tool("get-sum", {"a": 2, "b": 3}))
            large = await session.call_tool("get-sum", {"a": 101, "b": 3})
            assert (large.isError, "104" in said(large)) == (True, False)
            secrets = await session.call_tool("get-env", {})
            assert (secrets.isError, "PATH" in said(secrets)) == (True, False)
            assert (await session.list_prompts()).prompts
            resources = (await session.list_resources()).resources
            assert (await session.read_resource(resources[0].uri)).contents
            assert "again" in said(await session.call_tool("echo", {"message": "again"}))

    asyncio.run(talk())
