"""The Claude Code command line from npm, as it is: fifty sessions, one key, no Headrace header.

Six in its usual mode, each with a sub-agent; the others with ``--bare`` and tools over MCP (where
the tool server connects in time); two are resumed as new sessions. Each is a process of its own,
so sixteen run at once.
"""

import json
import os
import subprocess
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.interop.agents.floor import Floor, compare, floor
from tests.interop.agents.scripts import HELPER_ORDERS, HELPERS, REPAIRS, errands, repairs
from trajectory.call import CallKind
from trajectory.canonical import content_hash
from trajectory.harness.lineage import Lineages, Sighting, Sketch
from trajectory.harness.normal_form import normal_form

SESSIONS = 50
USUAL = 6
RESUMED = 2
AT_ONCE = 16

pytestmark = pytest.mark.slow


def session(programs: Path, run: Floor, home: Path, prompt: str, *options: str) -> str:
    """Run one session in a home of its own; return the session's own name."""
    folder = home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    shop = {
        "type": "http",
        "url": f"{run.gateway.url}/tools/mcp",
        "headers": {"Authorization": f"Bearer {run.gateway.key}"},
    }
    servers = {"shop": shop} if "--bare" in options else {}
    command = [programs / "claude", "-p", prompt, "--output-format", "json", "--strict-mcp-config"]
    command += ["--mcp-config", json.dumps({"mcpServers": servers})]
    command += ["--allowedTools", "Bash", "Agent", "mcp__shop__quote"]
    answer = ask([*command, *options], run, home, folder)
    assert answer["result"] == "That is all.", answer
    return str(answer["session_id"])


def environment(run: Floor, home: Path) -> dict[str, str]:
    """Return the environment of the program in a home of its own."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": run.base_url,
        "ANTHROPIC_API_KEY": run.gateway.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def title(programs: Path, run: Floor, home: Path, description: str) -> None:
    """Have the program make a session's title, as its SDK asks for one."""
    request = {"subtype": "generate_session_title", "description": description}
    asked = {"type": "control_request", "request_id": "title", "request": request}
    command: list[str | Path] = [programs / "claude", "-p", "--verbose"]
    command += ["--strict-mcp-config", "--input-format", "stream-json"]
    command += ["--output-format", "stream-json"]
    with subprocess.Popen(
        command,
        cwd=home / "work",
        env=environment(run, home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        answers = (json.loads(line) for line in process.stdout)
        response = next(one["response"] for one in answers if one["type"] == "control_response")
        assert response["subtype"] == "success", response
        process.stdin.close()
        process.stdout.read()


def ask(command: list[str | Path], run: Floor, home: Path, folder: Path) -> dict[str, Any]:
    """Run the program in a home of its own; return what it says."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(run, home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_claude_code(programs: Path, shop: str, tmp_path: Path) -> None:
    with floor(tmp_path / "gateway", errands, tools=shop) as run:
        homes = [tmp_path / f"home-{number}" for number in range(SESSIONS)]
        with ThreadPoolExecutor(AT_ONCE) as pool:

            def errand(number: int) -> str:
                options = [] if number < USUAL else ["--bare"]
                prompt = f"Please do the errand of task {number}"
                return session(programs, run, homes[number], prompt, *options)

            names = list(pool.map(errand, range(SESSIONS)))

            def go_on(number: int) -> str:
                options = ["--bare", "--resume", names[number], "--fork-session"]
                prompt = f"And once more, as task {100 + number}"
                return session(programs, run, homes[number], prompt, *options)

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


def test_three_sub_agents_and_a_compaction_are_one_session(programs: Path, tmp_path: Path) -> None:
    """Three sub-agents of many steps at once; then the conversation is compacted and goes on."""
    with floor(tmp_path / "gateway", repairs) as run:
        home = tmp_path / "home"
        (home / "work").mkdir(parents=True)
        allowed = ["--output-format", "json", "--allowedTools", "Bash", "Agent"]
        for words in (
            ["-p", REPAIRS.format("first")],
            ["-c", "-p", "/compact"],
            ["-c", "-p", REPAIRS.format("second")],
        ):
            ask([programs / "claude", *words, *allowed], run, home, home / "work")
        run.assemble()
        compare(run, sessions=1)
        kinds = Counter(link.kind for link in run.links)
        assert kinds["subagent_call"] == 2 * HELPERS
        assert kinds["compaction"] == 1
        assert "handoff" not in kinds


def test_each_agent_has_one_name_and_one_version(programs: Path, tmp_path: Path) -> None:
    """Main agent, sub-agent and title maker, in other folders, some of them under git."""
    with floor(tmp_path / "gateway", errands) as run:
        homes = [tmp_path / "one", tmp_path / "second" / "home", tmp_path / "third-of-them"]
        for number, home in enumerate(homes):
            (home / "work").mkdir(parents=True)
            if number:
                (home / "work" / f"notes-{number}.txt").write_text("a note")
                git = ["git", "init", "-q", "-b", f"work-{number}"]
                subprocess.run(git, cwd=home / "work", check=True)
            session(programs, run, home, f"Please do the errand of task {number}")
            title(programs, run, home, f"The errand of task {number} is to be done")
        run.assemble()
        agents = defaultdict(set)
        lineages = Lineages()
        for call in run.calls:
            if call.kind is not CallKind.MODEL:
                continue
            prompts = takewhile(lambda said: said.role == "system", call.context)
            prompt, tools = "\n\n".join(said.text() for said in prompts), json.dumps([*call.tools])
            form = normal_form(prompt, tools)
            one = Sighting(
                "acme", "shop", None, content_hash(form.value), prompt, call.exchange.started_at,
                partial(Sketch.of, form, b"k" * 32),
            )  # fmt: skip
            lineages.number([one])
            version = lineages.find(one.key)
            assert version is not None
            asked = " ".join(said.text() for said in call.context if said.role == "user")
            kind = "sub-agent" if HELPER_ORDERS[:15] in asked else "main" if call.tools else "title"
            agents[kind].add((version.harness_name, version.harness_version))
        assert set(agents) == {"main", "sub-agent", "title"}
        assert {kind: len(found) for kind, found in agents.items()} == dict.fromkeys(agents, 1)
        assert len({name for found in agents.values() for name, _ in found}) == len(agents)
