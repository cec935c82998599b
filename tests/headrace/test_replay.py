"""Replay: a practice agent recorded through the gateway meets its own past, then leaves it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from examples.practice.tools import ToolServer
from governance.policy import load_bundle
from governance.redact import build_redactor
from governance.redact.pseudonym import MARK
from governance.redact.report import RedactionScope
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.replay.replies import Replies
from headrace.replay.server import LiveUpstreams, serving
from headrace.replay.stored_recording import load_recording
from lakehouse.lake import Lake
from tests.headrace.replay_agent import work
from tests.headrace.spool_governor import govern
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider.sessions import ModelRequest, ModelTurn, Session, SessionProvider
from tests.support.upstream import Upstream
from trajectory.replay import Player, ReplayComparison

PERSON = "maria.lopez@example.org"
PROMPT = f"Quote three bolts for {PERSON}, retail. It is urgent."
ROOT = Path(__file__).parents[2]
KINDS = (("openai-chat", "stream"), ("openai-responses", "whole"), ("anthropic", "stream"))

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def quotes(session: Session, asked: ModelRequest) -> ModelTurn:
    quantity = 5 if asked.body["model"] == "other" else 3
    arguments = {"item": "bolts", "quantity": quantity, "price_list": "retail"}
    if asked.turns == 0:
        return ModelTurn("I will ask.", calls=(("quote", arguments),))
    return ModelTurn(f"{PERSON} pays what the tool said.")


@dataclass
class World:
    home: Path
    provider_url: str
    tools_url: str
    trajectories: dict[str, str] = field(default_factory=dict)
    """By kind of client."""


def agent(kind: str, stream: str, environment: dict[str, str], **more: str) -> str:
    return asyncio.run(work(kind, stream == "stream", PROMPT, {**environment, **more}))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("replay")
    tools = ToolServer(seed=3)
    with Upstream(SessionProvider(quotes)) as model, tools.listen() as other:
        provider_url, tools_url = model.url, f"http://127.0.0.1:{other.port}"
        routes = [
            {"name": "model", "upstream": provider_url},
            {"name": "tools", "upstream": tools_url, "kind": "tool"},
        ]
        with GatewayProcess(home, {"routes": routes}) as gateway:
            key = gateway.registry.create(
                tenant_id="acme", app_id="shop", purposes=("debug", "eval")
            ).secret
            addresses = {
                "OPENAI_BASE_URL": f"{gateway.url}/model/v1",
                "ANTHROPIC_BASE_URL": f"{gateway.url}/model",
                "HEADRACE_REPLAY_MCP_URL": f"{gateway.url}/tools/mcp",
                "OPENAI_API_KEY": key,
                "ANTHROPIC_API_KEY": key,
            }
            for kind, stream in KINDS:
                assert PERSON in agent(kind, stream, addresses)
        lake = govern(home)
        rows = lake.query(
            "select trajectory_id, min(dialect) as d from steps where kind = 'model' group by 1"
        )
        names = {"openai.chat": 0, "openai.responses": 1, "anthropic.messages": 2}
        found = {KINDS[names[row["d"]]][0]: row["trajectory_id"] for row in rows.to_pylist()}
        yield World(home, provider_url, tools_url, found)


@pytest.fixture(scope="module")
def redactor(world: World) -> Any:
    bundle = load_bundle()
    key = load_secrets(Home(world.home).secrets, create=False).derive(b"pseudonym")
    return build_redactor(bundle.redaction.spec, pseudonym_key=key, base=bundle.path)


def replayed(
    world: World,
    redactor: Any,
    kind: str,
    stream: str,
    live: LiveUpstreams | None = None,
    **more: str,
) -> tuple[dict[str, Any], str]:
    recording, tenant = load_recording(
        Lake.open(str(world.home / "lake")), world.trajectories[kind]
    )
    scope = RedactionScope(tenant, recording.trajectory_id)

    def clean(messages: Any) -> Any:
        return tuple(one.message for one in redactor.redact_messages(messages, scope=scope))

    live = live or LiveUpstreams()
    player = Player(
        recording,
        ReplayComparison(mark=MARK, blind_to_results=live.tools_upstream is not None),
        models=live.model_upstream is None,
        tools=live.tools_upstream is None,
    )
    with serving(Replies(player, clean), live) as state:
        said = agent(kind, stream, state.environment, **more)
    assert state.finished.is_set() or live.model_upstream is not None
    report: dict[str, Any] = {**player.report().to_json(), "upstream": state.calls_upstream}
    return report, said


@pytest.mark.parametrize(("kind", "stream"), KINDS)
def test_an_unchanged_agent_is_identical(
    world: World, redactor: Any, kind: str, stream: str
) -> None:
    report, said = replayed(world, redactor, kind, stream)
    assert report["identical"], report
    assert (report["model_answers"], report["tool_answers"]) == (2, 1)
    assert "pays what the tool said" in said
    assert PERSON not in said


def test_the_tool_said_that_it_only_reads(world: World) -> None:
    rows = Lake.open(str(world.home / "lake")).query(
        "select distinct replay_class, ext from steps where kind = 'tool'"
    )
    (row,) = rows.to_pylist()
    assert row["replay_class"] == "approximate"
    assert json.loads(row["ext"])["side_effect"] == "read"


def test_the_other_way_of_reading_a_stream_is_identical_too(world: World, redactor: Any) -> None:
    for kind, stream in KINDS:
        other = "whole" if stream == "stream" else "stream"
        report, _ = replayed(world, redactor, kind, other)
        assert report["identical"], report


def test_a_changed_argument_is_the_first_divergence(world: World, redactor: Any) -> None:
    report, _ = replayed(world, redactor, "openai-chat", "whole", CHANGE="yes")
    assert not report["identical"]
    found = report["divergence"]
    assert found["kind"] == "tool"
    assert (found["where"], found["expected"], found["came"]) == ("arguments.quantity", 3, 7)
    assert found["step_id"] is not None


def test_a_changed_prompt_is_reported_without_personal_data(
    world: World, redactor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PROMPT", PROMPT.replace("urgent", "not urgent"))
    report, _ = replayed(world, redactor, "anthropic", "whole")
    found = report["divergence"]
    assert (found["kind"], found["where"]) == ("model", "messages[0].text")
    assert "not urgent" in found["came"]
    assert PERSON not in json.dumps(report)


def test_a_swapped_model_meets_the_recorded_tools(world: World, redactor: Any) -> None:
    same = LiveUpstreams(model_upstream=world.provider_url, model="same")
    report, said = replayed(world, redactor, "openai-chat", "stream", same)
    assert report["identical"], report
    assert (report["model_answers"], report["tool_answers"]) == (0, 1)
    assert report["upstream"] == {"model": 2, "tools": 0}
    assert PERSON in said
    other = LiveUpstreams(model_upstream=world.provider_url, model="other")
    report, _ = replayed(world, redactor, "openai-chat", "whole", other)
    found = report["divergence"]
    assert (found["where"], found["expected"], found["came"]) == ("arguments.quantity", 3, 5)


def test_live_tools_under_a_recorded_model(world: World, redactor: Any) -> None:
    live = LiveUpstreams(tools_upstream=f"{world.tools_url}/mcp")
    report, _ = replayed(world, redactor, "openai-responses", "whole", live)
    assert report["identical"], report
    assert (report["model_answers"], report["tool_answers"]) == (2, 0)


def test_the_command(world: World) -> None:
    def run(identifier: str, **environment: str) -> tuple[int, dict[str, Any]]:
        program = [sys.executable, "-W", "ignore", "-m"]
        done = subprocess.run(
            [
                *(*program, "headrace", "trajectory", "replay", "--json", identifier, "--"),
                *(*program, "tests.headrace.replay_agent", "openai-chat", "stream", PROMPT),
            ],
            env={**os.environ, "HEADRACE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
            | environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}

    key = (world.home / "secrets" / "master.key").read_text(encoding="utf-8").strip()
    code, report = run(world.trajectories["openai-chat"][:20], HEADRACE_MASTER_KEY=key)
    assert code == 0, report
    assert (report["identical"], report["command_exit_code"]) == (True, 0)
    code, report = run(world.trajectories["openai-chat"], CHANGE="yes")
    assert code == 1, report
    assert report["divergence"]["where"] == "arguments.quantity"


def test_who_does_not_know_the_address_is_refused(world: World) -> None:
    import httpx

    recording, _ = load_recording(
        Lake.open(str(world.home / "lake")), world.trajectories["openai-chat"]
    )
    player = Player(recording, ReplayComparison())
    with serving(Replies(player, tuple), LiveUpstreams()) as state:
        base = f"http://127.0.0.1:{state.port}"
        for path in ("/v1/models", "/guess/v1/models", "/mcp"):
            assert httpx.get(base + path).status_code == 401
        assert httpx.get(f"{state.root}/v1/models").json()["data"]
        refused = httpx.post(f"{base}/guess/mcp", json={"jsonrpc": "2.0", "id": 1})
        assert refused.status_code == 401
