"""The Claude Code command line from npm, as it is: fifty sessions, one key, no Headrace header.

Six in its usual mode, each with a sub-agent; the others with ``--bare`` and tools over MCP (where
the tool server connects in time); two are resumed as new sessions. Each is a process of its own,
so sixteen run at once.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.floor import Floor, compare, floor
from tests.agents.scripts import errands

SESSIONS = 50
USUAL = 6
RESUMED = 2
AT_ONCE = 16
PROGRAM = Path(__file__).parent / "claude_code"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


@pytest.fixture(scope="module")
def claude() -> Path:
    """Install the program from the committed lock, once."""
    program = PROGRAM / "node_modules" / ".bin" / "claude"
    with (PROGRAM / ".install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            command = ["npm", "ci", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=PROGRAM, check=True, capture_output=True, timeout=120)
    return program


def session(claude: Path, run: Floor, home: Path, prompt: str, *options: str) -> str:
    """Run one session in a home of its own; return the session's own name."""
    folder = home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    shop = {
        "type": "http",
        "url": f"{run.gateway.url}/tools/mcp",
        "headers": {"Authorization": f"Bearer {run.gateway.key}"},
    }
    servers = {"shop": shop} if "--bare" in options else {}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": run.base_url,
        "ANTHROPIC_API_KEY": run.gateway.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [claude, "-p", prompt, "--output-format", "json", "--strict-mcp-config"]
    command += ["--mcp-config", json.dumps({"mcpServers": servers})]
    command += ["--allowedTools", "Bash", "Agent", "mcp__shop__quote"]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    answer = json.loads(done.stdout)
    assert answer["result"] == "That is all.", answer
    return str(answer["session_id"])


def test_claude_code(claude: Path, shop: str, tmp_path: Path) -> None:
    with floor(tmp_path / "gateway", errands, tools=shop) as run:
        homes = [tmp_path / f"home-{number}" for number in range(SESSIONS)]
        with ThreadPoolExecutor(AT_ONCE) as pool:

            def errand(number: int) -> str:
                options = [] if number < USUAL else ["--bare"]
                prompt = f"Please do the errand of task {number}"
                return session(claude, run, homes[number], prompt, *options)

            names = list(pool.map(errand, range(SESSIONS)))

            def go_on(number: int) -> str:
                options = ["--bare", "--resume", names[number], "--fork-session"]
                prompt = f"And once more, as task {100 + number}"
                return session(claude, run, homes[number], prompt, *options)

            list(pool.map(go_on, range(USUAL, USUAL + RESUMED)))
        run.assemble()
        tools = {"mcp__shop__quote": "quote"}
        compare(run, sessions=SESSIONS + RESUMED, dispatched=tools)
        kinds = Counter(link.kind for link in run.links)
        assert kinds["subagent_call"] == USUAL
        assert kinds["prefix"] == RESUMED
        sources = Counter(item.key_source for item in run.placed)
        assert set(sources) <= {"client:x-claude-code-session-id", "tool_call"}

        # Without its own session header the histories alone tell as much; but a resumed history
        # is then the same conversation.
        resumed = {one.response_id for s in run.provider.sessions[SESSIONS:] for one in s.said}
        calls = [call for call in run.calls if call.response_id not in resumed]
        run.provider.sessions = run.provider.sessions[:SESSIONS]
        run.assemble_calls([replace(call, hints=()) for call in calls])
        compare(run, sessions=SESSIONS, dispatched=tools)
