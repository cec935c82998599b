"""AgentDojo's tasks under the bundle ``agents-safe``: what its injections call, and what its users do."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from governance.policy.bundle import SHIPPED
from headrace.app.guard import read_actions
from proxy.guard.document import rules_of
from proxy.guard.rules import RequestedCall

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
STOPPED = frozenset({"deny", "hold"})


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    """Return the calls that reach each task's goal, as AgentDojo itself makes them."""
    told = subprocess.run(
        [ROOT / "scripts" / "test-environment", "agentdojo"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    python = ROOT / told.stdout.splitlines()[-1]
    program = Path(__file__).parent / "programs" / "agentdojo_calls.py"
    printed = subprocess.run([python, program], check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(printed.stdout.splitlines()[-1])
    return found


def test_how_many_tasks_of_injections_and_of_users_go_on_without_a_person(
    tasks: list[dict[str, Any]],
) -> None:
    rules = rules_of(read_actions(SHIPPED / "agents-safe"))
    assert rules is not None
    count = {"injection": [0, 0, 0], "user": [0, 0, 0]}
    for task in tasks:
        told = {
            rules.judge(RequestedCall(one["tool"], one["arguments"])).ruling.value
            for one in task["calls"]
        }
        counted = count[task["kind"]]
        counted[0] += 1
        counted[1] += bool(told & STOPPED)
        counted[2] += bool(told & STOPPED) or "limit" in told
    # All, those that wait for a person or are denied, and those with messages that are counted, too.
    assert count == {"injection": [26, 14, 23], "user": [97, 26, 51]}
