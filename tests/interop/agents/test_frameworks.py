"""Agents on public frameworks, as they are: fifty sessions at once, one key, no session header."""

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.agents.floor import Floor, compare, drive, floor
from tests.interop.agents.scripts import journeys, marked_tasks, refunds, sales, same_tasks, shelves

SESSIONS = 50

pytestmark = pytest.mark.slow


def plan(run: Floor, tasks: list[str]) -> dict[str, object]:
    return {"base_url": f"{run.base_url}/v1", "key": run.gateway.key, "tasks": tasks}


def test_openai_agents_with_a_hand_off(tmp_path: Path) -> None:
    with floor(tmp_path, refunds) as run:
        drive("run_openai_agents.py", plan(run, same_tasks(SESSIONS)))
        run.assemble()
        compare(run, sessions=SESSIONS)
        assert Counter(item.role_in_graph for item in run.placed)["discarded"] > 5


def test_langgraph_with_titles_and_threads(tmp_path: Path) -> None:
    with floor(tmp_path, shelves) as run:
        drive("run_langgraph.py", plan(run, marked_tasks(SESSIONS)))
        run.assemble()
        compare(run, sessions=SESSIONS)


def test_pydantic_ai_with_parallel_tools(tmp_path: Path) -> None:
    with floor(tmp_path, journeys) as run:
        drive("run_pydantic_ai.py", plan(run, same_tasks(SESSIONS)))
        run.assemble()
        compare(run, sessions=SESSIONS)


def test_an_mcp_client(tmp_path: Path, shop: str) -> None:
    with floor(tmp_path, sales, tools=shop) as run:
        tools_url = f"{run.gateway.url}/tools/mcp"
        drive("run_mcp.py", {**plan(run, same_tasks(SESSIONS)), "tools_url": tools_url})
        run.assemble()
        compare(run, sessions=SESSIONS, dispatched={"quote": "tool", "reserve": "tool"})
        sources = Counter(item.key_source for item in run.placed if item.call.dispatch)
        assert sources == {"tool_call": 3 * SESSIONS}
