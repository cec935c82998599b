"""``headrace tap`` with rules: the official MCP client hears of denials, waits for people, and goes on."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import ElicitRequestParams, ElicitResult

from governance.policy.bundle import SHIPPED
from proxy.spool import Cursor, SpoolReader
from tests.scenarios.test_tap import TappedHome
from trajectory.exchange import Feedback

RULES = """
apiVersion: headrace/v1
kind: Action
metadata: {name: taps}
spec:
  taps: ["*"]
  rules:
    - {name: sums, match: {tools: add, arguments: [{path: $.a, above: 100}]}, decision: deny, reason: Too large.}
    - {name: naps, match: {tools: sleep}, decision: hold, wait_seconds: 120}
    - {name: mine, match: {tools: add, arguments: [{path: $.b, above: 100}]}, decision: hold, approver: client}
    - {name: looks, match: {tools: environment}, decision: dry-run}
"""


@pytest.fixture
def guarded(tmp_path: Path) -> TappedHome:
    made = TappedHome(tmp_path)
    policy = shutil.copytree(SHIPPED / "agents-safe", tmp_path / "policy")
    (policy / "actions.yaml").write_text(RULES, encoding="utf-8")
    made.environment["HEADRACE_POLICY_BUNDLE"] = str(policy)
    return made


def headrace(home: TappedHome, *arguments: str) -> Any:
    told = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments, "--json"],
        env=home.environment,
        capture_output=True,
        timeout=120,
        check=True,
    )
    return json.loads(told.stdout)


def approve(home: TappedHome) -> None:
    """Approve the call that waits, once one does."""
    while not (waiting := headrace(home, "approvals", "list")):
        time.sleep(0.1)
    headrace(home, "approvals", "approve", waiting[0]["approval"])


async def accept(context: Any, params: ElicitRequestParams) -> ElicitResult:
    """Accept whatever is asked about 101."""
    return ElicitResult(action="accept" if '"b": 101' in params.message else "decline")


async def ask_the_user(home: TappedHome) -> list[Any]:
    command, *arguments = home.command(sys.executable, str(home.server))
    parameters = StdioServerParameters(command=command, args=arguments, env=home.environment)
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write, elicitation_callback=accept) as session,
    ):
        await session.initialize()
        return [await session.call_tool("add", {"a": 1, "b": b}) for b in (101, 102)]


def test_the_official_client_s_user_decides(guarded: TappedHome) -> None:
    accepted, declined = asyncio.run(ask_the_user(guarded))
    assert (accepted.isError, accepted.content[0].text) == (False, "102")
    assert declined.isError
    assert "a person denied this call" in declined.content[0].text
    decided = headrace(guarded, "approvals", "list", "--status", "all")
    assert {one["status"] for one in decided} == {"used", "denied"}
    entries = headrace(guarded, "audit", "list")
    assert sum(one["actor"].startswith("client:") for one in entries) == 2


async def talk(home: TappedHome) -> list[Any]:
    command, *arguments = home.command(sys.executable, str(home.server))
    parameters = StdioServerParameters(command=command, args=arguments, env=home.environment)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        small = await session.call_tool("add", {"a": 19, "b": 23})
        large = await session.call_tool("add", {"a": 101, "b": 0})
        nap = asyncio.create_task(session.call_tool("sleep", {"seconds": 0.1}))
        names = await session.call_tool("environment", {})
        assert not nap.done()
        asleep = home.server.with_name("asleep")
        assert not asleep.exists()
        await asyncio.to_thread(approve, home)
        told = await nap
        assert asleep.exists()
        return [small, large, names, told]


def test_the_official_client_and_server(guarded: TappedHome) -> None:
    small, large, names, nap = asyncio.run(talk(guarded))
    assert (small.isError, small.content[0].text) == (False, "42")
    assert large.isError
    assert "rule sums denied this call. Too large." in large.content[0].text
    assert not names.isError
    assert (nap.isError, nap.content[0].text) == (False, "awake")
    batch = SpoolReader(guarded.home.spool, guarded.spool_key).take(Cursor())
    said = {
        (one.body["source"], one.body["label"])
        for one in batch.records
        if isinstance(one, Feedback)
    }
    assert said == {
        ("action:sums", "deny"),
        ("action:naps", "hold"),
        ("approvals", "approved"),
        ("action:looks", "dry-run"),
    }
    calls = [one for one in guarded.calls() if one.dispatch is not None]
    assert len(calls) == 4  # the denied one with its answer


def test_a_policy_that_cannot_be_read_starts_no_server(guarded: TappedHome) -> None:
    path = Path(guarded.environment["HEADRACE_POLICY_BUNDLE"]) / "actions.yaml"
    path.write_text(RULES.replace("deny", "forbid"), encoding="utf-8")
    marker = guarded.server.with_name("started")
    told = guarded.run(sys.executable, "-c", f"open({os.fspath(marker)!r}, 'w')")
    assert told.returncode != 0
    assert b"actions.yaml:" in told.stderr
    assert not marker.exists()
