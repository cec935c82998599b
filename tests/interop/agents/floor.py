"""Runs a framework's sessions through a real gateway and compares what came out with the truth."""

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.provider.sessions import Script, Session, SessionProvider
from tests.support.upstream import Upstream
from tests.trajectory.corrections import corrected
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.result import PlacedCall, PlacedLink
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import Exchange

ROOT = Path(__file__).parents[3]
_KEY = b"a" * 32
_BATCH = 60


@dataclass
class Floor:
    """A gateway, a provider behind it, and what came through."""

    gateway: GatewayProcess
    provider: SessionProvider
    placed: list[PlacedCall] = field(default_factory=list)
    links: list[PlacedLink] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        """Where agents find the model API."""
        return f"{self.gateway.url}/model"

    def assemble(self) -> None:
        """Read the spool to its end and assemble it in batches, with a restart after each."""
        records = [
            record
            for record in self.gateway.records(100_000, seconds=0.6)
            if isinstance(record, Exchange)
        ]
        self.calls = [read_exchange(record) for record in records]
        # A gateway's or client's own probe (``HEAD /``) is no traffic to understand.
        self.calls = [call for call in self.calls if call.exchange.request.method != "HEAD"]
        self.assemble_calls(self.calls)

    def assemble_calls(self, calls: Sequence[Call]) -> None:
        """Assemble calls in batches, with a restart after each."""
        assemblies, saved = [], AssemblerState().to_json()
        for start in range(0, len(calls), _BATCH):
            assembler = Assembler(_KEY, AssemblerState.from_json(json.loads(json.dumps(saved))))
            assemblies.append(assembler.assemble(calls[start : start + _BATCH]))
            saved = assembler.state.to_json()
        found = corrected(assemblies)
        self.placed, self.links = found.placed, found.links


@contextmanager
def floor(
    home: Path, script: Script, *, tools: str | None = None, guard: GuardSetup | None = None
) -> Iterator[Floor]:
    """Start provider and gateway; the guard judges calls at the route of the tools."""
    provider = SessionProvider(script)
    with Upstream(provider) as upstream:
        routes = [{"name": "model", "upstream": upstream.url}]
        if tools is not None:
            routes.append({"name": "tools", "upstream": tools, "kind": "tool"})
        with GatewayProcess(home, {"routes": routes}, guard=guard) as gateway:
            yield Floor(gateway, provider)


def drive(program: str, plan: dict[str, Any], *, seconds: float = 90) -> None:
    """Run a driver in the agents' environment until its sessions have ended."""
    python = subprocess.run(
        [ROOT / "scripts" / "test-environment", "agents"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.strip()
    done = subprocess.run(
        [ROOT / python, ROOT / "tests" / "interop" / "agents" / "drivers" / program],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


type Story = dict[str, Any]


def arguments(value: Any) -> str:
    """Return arguments as one text, however they were spaced."""
    return json.dumps(value, sort_keys=True)


def truth(session: Session, dispatched: dict[str, str] | None = None) -> Story:
    """Return a session as the provider tells it."""
    tools = dispatched or {}
    return {
        "steps": {one.response_id: (one.parent, one.role) for one in session.said},
        "failed": session.failures,
        "asked": Counter(
            (name, arguments(values)) for one in session.said for name, values in one.calls
        ),
        "tools": {
            (arguments(values), one.response_id)
            for one in session.said
            for name, values in one.calls
            if name in tools
        },
    }


def rebuilt(floor: Floor) -> dict[str, Story]:
    """Return each trajectory in the same words, by its id."""
    names = {item.step_id: item.call.response_id for item in floor.placed}
    quoted = {
        link.to_step_id: link.from_step_id
        for link in floor.links
        if link.kind in ("handoff", "compaction")
    }
    asides = {link.to_step_id for link in floor.links if link.kind == "auxiliary"}
    stories: dict[str, Story] = defaultdict(
        lambda: {"steps": {}, "failed": 0, "asked": Counter(), "tools": set()}
    )
    for item in floor.placed:
        story, call = stories[item.trajectory_id], item.call
        parent = names.get(item.parent_step_id or quoted.get(item.step_id, ""))
        if call.kind is CallKind.TOOL and call.dispatch is not None:
            story["tools"].add((arguments(call.dispatch.arguments), parent))
        elif item.role_in_graph == "discarded":
            story["failed"] += 1
        else:
            assert call.response_id not in story["steps"]
            # What an earlier batch could not know comes later, as a link.
            role = "auxiliary" if item.step_id in asides else item.role_in_graph
            story["steps"][call.response_id] = (parent, role)
            asked = call.output.tool_calls() if call.output else ()
            story["asked"].update((one.name, arguments(one.arguments)) for one in asked)
    return dict(stories)


def compare(floor: Floor, *, sessions: int, dispatched: dict[str, str] | None = None) -> None:
    """Assert that the trajectories are the sessions, one to one and step by step."""
    assert len(floor.provider.sessions) == sessions
    problems = [(c.problem, c.exchange.request.path) for c in floor.calls if c.problem]
    assert not problems
    found = {tuple(sorted(story["steps"])): story for story in rebuilt(floor).values()}
    wanted = [truth(session, dispatched) for session in floor.provider.sessions]
    wrong = [
        (story, found.get(tuple(sorted(story["steps"]))))
        for story in wanted
        if found.get(tuple(sorted(story["steps"]))) != story
    ]
    assert not wrong, f"{len(wrong)} of {len(wanted)} sessions, the first: {_difference(*wrong[0])}"
    assert len(found) == sessions


def _difference(told: Story, found: Story | None) -> Story:
    """Return what is not alike in a story and in what was rebuilt of it."""
    if found is None:
        return told
    steps = {
        one: (told["steps"].get(one), found["steps"].get(one))
        for one in {**told["steps"], **found["steps"]}
        if told["steps"].get(one) != found["steps"].get(one)
    }
    others = {name: (told[name], found[name]) for name in told if told[name] != found[name]}
    return {**others, "steps": steps}
