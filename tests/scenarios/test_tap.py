"""``headrace tap``: the official MCP client and server do not notice it, whatever happens."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.cli.tap import route_name
from proxy.clients.keys import KeyRegistry
from proxy.spool import Cursor, SpoolReader
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange, ExchangeOutcome

SERVER = """
import os, pathlib, time
from mcp.server.fastmcp import FastMCP
server = FastMCP("calculator", log_level="ERROR")

@server.tool()
def add(a: int, b: int) -> int:
    if a < 0:
        raise ValueError("no negative numbers")
    return a + b

@server.tool()
def environment() -> str:
    return " ".join(sorted(os.environ))

@server.tool()
def sleep(seconds: float) -> str:
    pathlib.Path(__file__).with_name("asleep").touch()
    time.sleep(seconds)
    return "awake"

server.run("stdio")
"""


class TappedHome:
    """A home with a client key, and commands run through the tap."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home").create()
        self.spool_key = load_secrets(self.home.secrets, create=True).derive(b"spool")
        self.server = folder / "server.py"
        self.server.write_text(SERVER, encoding="utf-8")
        created = KeyRegistry.load(self.home.client_keys).create(tenant_id="acme", app_id="bot")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.environment = {
            **inherited,
            "HEADRACE_HOME": str(self.home.root),
            "TAP_KEY": created.secret,
            "PYTHONPATH": str(Path.cwd()),
        }

    def command(self, *command: str) -> list[str]:
        return [sys.executable, "-m", "headrace", "tap", "--key-env", "TAP_KEY", "--", *command]

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command(*command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def run(self, *command: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.command(*command),
            input=given,
            capture_output=True,
            env=self.environment,
            timeout=60,
        )

    def exchanges(self) -> list[Exchange]:
        batch = SpoolReader(self.home.spool, self.spool_key).take(Cursor())
        return [record for record in batch.records if isinstance(record, Exchange)]

    def calls(self) -> list[Call]:
        return [call for exchange in self.exchanges() for call in read_calls(exchange)]


@pytest.fixture
def tapped(tmp_path: Path) -> TappedHome:
    return TappedHome(tmp_path)


async def talk(parameters: StdioServerParameters) -> list[Any]:
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        listed = [tool.name for tool in (await session.list_tools()).tools]
        added = await session.call_tool("add", {"a": 19, "b": 23})
        failed = await session.call_tool("add", {"a": -1, "b": 0})
        names = await session.call_tool("environment", {})
        texts = [getattr(result.content[0], "text", "") for result in (added, failed, names)]
        return [listed, texts[0], failed.isError, "TAP_KEY" in texts[2].split()]


def test_the_official_sdk_s_session(tapped: TappedHome) -> None:
    command, *arguments = tapped.command(sys.executable, str(tapped.server))
    parameters = StdioServerParameters(
        command=command, args=arguments, env=tapped.environment, cwd=Path.cwd()
    )
    said = asyncio.run(talk(parameters))
    assert said == [["add", "environment", "sleep"], "42", True, False]
    tools = [call for call in tapped.calls() if call.kind is CallKind.TOOL]
    assert [call.dispatch and call.dispatch.name for call in tools] == ["add", "add", "environment"]
    assert [call.dispatch and call.dispatch.is_error for call in tools] == [False, True, False]
    assert tools[0].dispatch is not None
    assert tools[0].dispatch.arguments == {"a": 19, "b": 23}
    assert tools[0].exchange.client.tenant_id == "acme"
    assert tools[0].exchange.route == route_name(Path(sys.executable).stem)
    methods = {call.ext.get("method") for call in tapped.calls()}
    assert {"initialize", "notifications/initialized", "tools/list"} <= methods


def test_bytes_and_exit_code_pass(tapped: TappedHome) -> None:
    given = os.urandom(3_000_000) + b'\n{"jsonrpc":"2.0","id":1,"method":"x"}\r\nno end'
    done = tapped.run("sh", "-c", "cat; echo oops >&2; exit 7", given=given)
    assert done.stdout == given
    assert done.returncode == 7
    assert done.stderr.endswith(b"oops\n")


def test_the_server_does_not_get_the_master_key(tapped: TappedHome) -> None:
    master = tapped.home.secrets / "master.key"
    tapped.environment["HEADRACE_MASTER_KEY"] = master.read_text(encoding="utf-8").strip()
    done = tapped.run("env")
    assert b"HEADRACE_HOME=" in done.stdout
    assert b"MASTER_KEY" not in done.stdout


def test_a_wrong_key_or_command_is_said_before_anything_runs(tapped: TappedHome) -> None:
    tapped.environment["TAP_KEY"] = "hr_nobody_nothing"
    done = tapped.run("touch", str(tapped.home.root / "ran"))
    assert done.returncode == 2
    assert b"TAP_KEY holds no valid client key" in done.stderr
    assert not (tapped.home.root / "ran").exists()


@pytest.mark.slow
def test_a_program_that_is_not_there(tapped: TappedHome) -> None:
    done = tapped.run("no-such-program")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"cannot start 'no-such-program'" in done.stderr


@pytest.mark.slow
def test_a_spool_that_cannot_be_written_breaks_nothing(tapped: TappedHome) -> None:
    command = " ".join(tapped.command("cat"))
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 0; exec {command}"],  # no file may grow: the disk is full
        input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        env=tapped.environment,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert b"headrace tap: " in done.stderr
    assert b"captured" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_server_and_its_end_is_ours(
    tapped: TappedHome, number: signal.Signals
) -> None:
    with tapped.start("sh", "-c", "echo ready; exec sleep 60") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(20) == -number


@pytest.mark.slow
def test_a_server_that_handles_a_signal_decides_its_own_exit_code(tapped: TappedHome) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with tapped.start("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.stdout.read() == b"bye\n"
        assert process.wait(20) == 3


@pytest.mark.slow
def test_a_client_that_goes_away_is_noticed_by_the_server(tapped: TappedHome) -> None:
    with tapped.start("sh", "-c", "yes") as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(20) in (-signal.SIGPIPE, 128 + signal.SIGPIPE)


@pytest.mark.slow
def test_killed_in_the_middle_what_passed_is_kept(tapped: TappedHome) -> None:
    with tapped.start(sys.executable, str(tapped.server)) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(number: int, method: str, **params: Any) -> None:
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]

        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        ask(1, "initialize", **hello, clientInfo={"name": "t", "version": "1"})
        assert b"calculator" in process.stdout.readline()
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        ask(2, "tools/call", name="add", arguments={"a": 1, "b": 2})
        assert b"3" in process.stdout.readline()
        ask(3, "tools/call", name="sleep", arguments={"seconds": 5})
        deadline = time.monotonic() + 60
        while not tapped.server.with_name("asleep").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.wait(20)
    found = {call.dispatch.name: call.exchange.outcome for call in tapped.calls() if call.dispatch}
    assert found == {"add": ExchangeOutcome.COMPLETE, "sleep": ExchangeOutcome.LOST_END}
