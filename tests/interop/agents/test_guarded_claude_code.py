"""The Claude Code command line behind rules on its tool calls: it hears of denials, waits, and goes on.

The tools are an MCP server over HTTP behind a route of the gateway, and one over stdio behind ``headrace tap``.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from governance.policy.bundle import SHIPPED
from proxy.spool import Cursor, SpoolReader
from tests.interop.agents.floor import Floor, floor
from tests.scenarios.test_tap import TappedHome
from tests.support.guard import GuardSetup
from tests.support.provider.sessions import ModelRequest, ModelTurn, Script, Session
from trajectory.exchange import Feedback
from trajectory.http_server import HttpServer

if TYPE_CHECKING:
    from mcp.server.fastmcp import FastMCP

pytestmark = pytest.mark.slow

RULES: dict[str, Any] = {
    "rules": [
        {"name": "removals", "match": {"tools": "remove"}, "decision": "deny", "reason": "Never."},
        {
            "name": "payments",
            "match": {"tools": "pay", "arguments": [{"path": "$.amount", "above": 100}]},
            "decision": "hold",
            "wait_seconds": 90,
        },
        {"name": "mails", "match": {"tools": "mail"}, "decision": "hold", "wait_seconds": 1},
    ]
}
WANTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("remove", {"order": 7}),
    ("mail", {"order": 7}),
    ("pay", {"amount": 500}),
    ("look", {"order": 7}),
)
"""What the model asks for, one after the other: denied, held too long, held and approved, allowed."""


def script(said: list[tuple[bool, str]]) -> Script:
    """Have the model call each tool once, and write down what it is told of each."""

    def turn(session: Session, asked: ModelRequest) -> ModelTurn:
        if not asked.tools:
            return ModelTurn("Orders", role="auxiliary")
        if "mcp__orders__look" not in asked.tools:
            # The first turn does not wait for tool servers that are slow to connect.
            return ModelTurn(calls=(("Bash", {"command": "sleep 1"}),))
        said[:] = _results(asked.body)
        if len(said) == len(WANTED):
            return ModelTurn("That is all.")
        name, arguments = WANTED[len(said)]
        return ModelTurn(calls=((f"mcp__orders__{name}", arguments),))

    return turn


def _results(body: Mapping[str, Any]) -> list[tuple[bool, str]]:
    """Return what the tools of the server said, and whether each is an error."""
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    ours = {
        block["id"]
        for block in blocks
        if block["type"] == "tool_use" and block["name"].startswith("mcp__orders__")
    }
    return [
        (bool(block.get("is_error")), json.dumps(block["content"]))
        for block in blocks
        if block["type"] == "tool_result" and block["tool_use_id"] in ours
    ]


def run(programs: Path, at: Floor, home: Path, server: Mapping[str, Any]) -> str:
    """Run one session with one tool server; return its last words."""
    folder = home / "work"
    folder.mkdir(parents=True)
    tools = ["Bash", *(f"mcp__orders__{name}" for name, _ in WANTED)]
    command: list[str | Path] = [programs / "claude", "--bare", "-p", "Please do task 1"]
    command += ["--output-format", "json", "--strict-mcp-config"]
    command += ["--mcp-config", json.dumps({"mcpServers": {"orders": server}})]
    command += ["--allowedTools", *tools]
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": at.base_url,
            "ANTHROPIC_API_KEY": at.gateway.key,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "MCP_TIMEOUT": "90000",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return str(json.loads(done.stdout)["result"])


def orders(log: Path) -> "FastMCP":
    """Return an MCP server that writes down which of its tools ran."""
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("orders", log_level="CRITICAL")

    def ran(text: str) -> str:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        return f"done: {text}"

    @server.tool()
    def remove(order: int) -> str:
        """Remove an order."""
        return ran(f"remove {order}")

    @server.tool()
    def mail(order: int) -> str:
        """Send an order's confirmation."""
        return ran(f"mail {order}")

    @server.tool()
    def pay(amount: int) -> str:
        """Pay an amount."""
        return ran(f"pay {amount}")

    @server.tool()
    def look(order: int) -> str:
        """Look at an order."""
        return ran(f"look {order}")

    return server


def went_on(said: list[tuple[bool, str]], ran: str) -> None:
    """Assert what the model was told of each call, and which tools ran."""
    removal, mail, payment, look = said
    assert removal[0]
    assert "Headrace: rule removals denied this call. Never." in removal[1]
    assert mail[0]
    assert "Headrace: rule mails" in mail[1]
    assert (payment[0], "done: pay 500" in payment[1]) == (False, True)
    assert (look[0], "done: look 7" in look[1]) == (False, True)
    assert ran.splitlines() == ["pay 500", "look 7"]


def test_tools_behind_a_route(programs: Path, tmp_path: Path) -> None:
    """Denied, held until time is up, held and approved, allowed: each is heard as the protocol says it."""
    log, said = tmp_path / "ran", list[tuple[bool, str]]()
    guard = GuardSetup(tmp_path / "approvals.sqlite", RULES)
    with HttpServer(orders(log).streamable_http_app()) as listening:
        shop = f"http://127.0.0.1:{listening.port}"
        with floor(tmp_path / "gateway", script(said), tools=shop, guard=guard) as at:
            server = {
                "type": "http",
                "url": f"{at.gateway.url}/tools/mcp",
                "headers": {"Authorization": f"Bearer {at.gateway.key}"},
            }
            approvals = guard.approvals()

            def approve() -> None:
                """Approve the payment, once it waits."""
                while not (found := [o for o in approvals.list() if o.rule == "payments"]):
                    time.sleep(0.1)
                approvals.decide(found[0].approval_id, approve=True, who="ada")

            threading.Thread(target=approve, daemon=True).start()
            assert run(programs, at, tmp_path / "home", server) == "That is all."
    went_on(said, log.read_text(encoding="utf-8"))


def test_tools_behind_a_tap(programs: Path, tmp_path: Path) -> None:
    """The same rules before a server over stdio, which Claude Code starts by itself."""
    log, said = tmp_path / "ran", list[tuple[bool, str]]()
    tapped = TappedHome(tmp_path)
    policy = shutil.copytree(SHIPPED / "agents-safe", tmp_path / "policy")
    document = {"apiVersion": "headrace/v1", "kind": "Action", "metadata": {"name": "orders"}}
    document["spec"] = {"taps": ["*"], **RULES}
    (policy / "actions.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    tapped.environment["HEADRACE_POLICY_BUNDLE"] = str(policy)
    serve = f"from {__name__} import orders, Path; orders(Path({os.fspath(log)!r})).run('stdio')"
    program, *arguments = tapped.command(sys.executable, "-c", serve)
    server = {"type": "stdio", "command": program, "args": arguments, "env": tapped.environment}

    def approve() -> None:
        """Approve the payment as a person does, once it waits."""
        while not (found := [o for o in asked(tapped, "list") if o["rule"] == "payments"]):
            time.sleep(0.1)
        asked(tapped, "approve", found[0]["approval"])

    with floor(tmp_path / "gateway", script(said)) as at:
        threading.Thread(target=approve, daemon=True).start()
        assert run(programs, at, tmp_path / "agent", server) == "That is all."
    went_on(said, log.read_text(encoding="utf-8"))
    batch = SpoolReader(tapped.home.spool, tapped.spool_key).take(Cursor())
    signals = {
        (one.body["source"], one.body["label"])
        for one in batch.records
        if isinstance(one, Feedback)
    }
    assert {("action:removals", "deny"), ("approvals", "approved")} <= signals


def asked(tapped: TappedHome, *arguments: str) -> Any:
    """Run a command of ``headrace approvals`` and return what it says."""
    command = [sys.executable, "-m", "headrace", "approvals", *arguments, "--json"]
    told = subprocess.run(
        command, env=tapped.environment, capture_output=True, timeout=120, check=True
    )
    return json.loads(told.stdout)
