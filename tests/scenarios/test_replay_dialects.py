"""Replay for clients of Gemini, Bedrock and Ollama: their SDKs meet what the gateway recorded."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.replay.replies import Replies
from headrace.replay.server import LiveUpstreams, serving
from headrace.replay.stored_recording import load_recording
from lakehouse.lake import Lake
from tests.headrace.spool_governor import govern
from tests.interop.clients.drivers import (
    MODEL,
    Wire,
    bedrock_client,
    bedrock_converse,
    gemini,
    gemini_interactions,
)
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.provider.answer import ANSWER, SCHEMA, SYSTEM
from tests.support.upstream import ReceivedRequest, Reply, Upstream
from trajectory.replay import Player, ReplayComparison

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def ollama(wire: Wire, *, stream: bool) -> list[Any]:
    """The tool loop, as Ollama's own client sends it."""
    function = {"name": "add", "description": "Add.", "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    messages.append({"role": "user", "content": "Nineteen lamps and 23 lamps make how many?"})
    said: list[Any] = []
    with wire.client(headers={"Authorization": f"Bearer {wire.key}"}) as api:
        for _ in range(2):
            body = {"model": "tiny", "tools": tools, "messages": messages, "stream": stream}
            answer = api.post(f"{wire.url}/api/chat", json=body)
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
            whole: dict[str, Any] = {"role": "assistant", "content": ""}
            for line in lines:
                message = line["message"]
                whole["content"] += message["content"]
                whole |= {k: message[k] for k in ("thinking", "tool_calls") if k in message}
            said.append(whole)
            messages += [whole, {"role": "tool", "tool_name": "add", "content": "42"}]
    return said


def claude(wire: Wire, *, stream: bool) -> list[Any]:
    """The tool loop over ``invoke`` with a body of Anthropic's."""
    api = bedrock_client(wire)
    messages: list[Any] = [{"role": "user", "content": "Please add the two counts of March."}]
    said: list[Any] = []
    for _ in range(2):
        body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 99, "messages": messages}
        data = json.dumps(body).encode()
        if stream:
            asked = api.invoke_model_with_response_stream(modelId=MODEL, body=data)
            events = [json.loads(event["chunk"]["bytes"]) for event in asked["body"]]
            blocks = [_block(events, index) for index in range(events[-3]["index"] + 1)]
        else:
            blocks = json.loads(api.invoke_model(modelId=MODEL, body=data)["body"].read())[
                "content"
            ]
        said.append(blocks)
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "42"}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    return said


def _block(events: list[Any], index: int) -> Any:
    mine = [event for event in events if event.get("index") == index]
    block, deltas = dict(mine[0]["content_block"]), [event["delta"] for event in mine[1:-1]]
    if block["type"] == "tool_use":
        return {**block, "input": json.loads("".join(one["partial_json"] for one in deltas))}
    return {**block, "text": "".join(one["text"] for one in deltas)}


ROOT = Path(__file__).parents[2]
AGENTS: dict[str, Callable[..., Any]] = {
    "google.gemini": gemini,
    "google.interactions": gemini_interactions,
    "bedrock.converse": bedrock_converse,
    "bedrock.invoke": claude,
    "ollama": ollama,
}
RECORDED_AS_STREAM = {"google.gemini": False, "bedrock.converse": True, "bedrock.invoke": False,
                      "google.interactions": True, "ollama": True}  # fmt: skip


def numbered(counter: "itertools.count[int]", request: ReceivedRequest) -> Reply:
    """Answer with response ids that no other answer has, as real providers do."""
    number, reply = next(counter), provider(request)
    for own in (b"7b9f1c1e-0000-4000-8000-00000000000", b'"gem-'):
        reply.pieces = [
            piece if isinstance(piece, float) else _renumbered(piece, own, number)
            for piece in reply.pieces
        ]
    return reply


def _renumbered(piece: bytes, beginning: bytes, number: int) -> bytes:
    before, found, rest = piece.partition(beginning)
    return before + found + b"%x" % number + rest[1:] if found else piece


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dialects")


@pytest.fixture(scope="module")
def recorded(home: Path) -> tuple[Lake, dict[str, Any]]:
    said: dict[str, Any] = {}
    with Upstream(partial(numbered, itertools.count(1))) as upstream:
        routes = [{"name": "model", "upstream": upstream.url}]
        with GatewayProcess(home, {"routes": routes}) as gateway:
            for name, agent in AGENTS.items():
                wire = Wire(f"{gateway.url}/model", gateway.key)
                said[name] = agent(wire, stream=RECORDED_AS_STREAM[name])
    return govern(home), said


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_it_meets_its_own_past(
    recorded: tuple[Lake, dict[str, Any]], name: str, stream: bool
) -> None:
    lake, said = recorded
    found = lake.query(
        "select distinct trajectory_id as id from steps where dialect = $name",
        parameters={"name": name},
    )
    (trajectory_id,) = found["id"].to_pylist()
    recording, _ = load_recording(lake, trajectory_id)
    player = Player(recording, ReplayComparison())
    with serving(Replies(player, tuple), LiveUpstreams()) as state:
        now = AGENTS[name](Wire(state.root, "replay"), stream=stream)
    report = player.report()
    assert report.identical, report.divergence
    assert report.model_answers == len(said[name])
    assert _words(now) == ANSWER * (len(said[name]) - 1)
    if stream == RECORDED_AS_STREAM[name] and not stream:
        assert now == said[name], "what the application sees is what it saw"


def _words(said: Any) -> str:
    """Return the text in what an application saw, thoughts and calls left out."""
    if isinstance(said, list):
        return "".join(map(_words, said))
    if not isinstance(said, dict) or said.get("thought") or "reasoningContent" in said:
        return ""
    if str(said.get("type")).startswith("thought"):
        return ""
    own = said.get("text", said.get("content", "") if isinstance(said.get("content"), str) else "")
    return own + "".join(_words(v) for v in said.values() if isinstance(v, list | dict))


def test_the_model_is_swapped_where_the_path_names_it(
    recorded: tuple[Lake, dict[str, Any]],
) -> None:
    lake, _ = recorded
    (trajectory_id,) = lake.query(
        "select distinct trajectory_id as id from steps where dialect = 'google.gemini'"
    )["id"].to_pylist()
    recording, _ = load_recording(lake, trajectory_id)
    with Upstream(provider) as upstream:
        live = LiveUpstreams(model_upstream=upstream.url, model="other/1")
        with serving(
            Replies(Player(recording, ReplayComparison(), models=False), tuple), live
        ) as state:
            gemini(Wire(state.root, "replay"), stream=True)
            bedrock_converse(Wire(state.root, "replay"))
        asked = {request.target for request in upstream.seen}
    assert asked == {
        "/v1/models/other%2F1:streamGenerateContent?alt=sse",
        "/model/other%2F1/converse",
    }


_GEMINI = """
import os
from tests.interop.clients.drivers import Wire, gemini
gemini(Wire(os.environ["GOOGLE_GEMINI_BASE_URL"], os.environ["GEMINI_API_KEY"]))
"""
_BEDROCK = """
import boto3
from tests.interop.clients import drivers
drivers.bedrock_client = lambda _: boto3.client("bedrock-runtime", region_name="us-east-1")
drivers.bedrock_converse(None, stream=True)
"""
_AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_BEARER_TOKEN_BEDROCK": "not sent without TLS",
}


@pytest.mark.parametrize(
    ("dialect", "agent", "answers"),
    [("google.gemini", _GEMINI, 3), ("bedrock.converse", _BEDROCK, 2)],
)
def test_the_command_points_the_sdk_at_its_past(
    home: Path, recorded: tuple[Lake, dict[str, Any]], dialect: str, agent: str, answers: int
) -> None:
    found = recorded[0].query(
        "select distinct trajectory_id as id from steps where dialect = $name",
        parameters={"name": dialect},
    )
    (trajectory_id,) = found["id"].to_pylist()
    program = [sys.executable, "-W", "ignore"]
    command = [*program, "-m", "headrace", "trajectory", "replay", "--json", trajectory_id, "--"]
    done = subprocess.run(
        [*command, *program, "-c", agent],
        env={**os.environ, **_AWS, "HEADRACE_HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["identical"], report["model_answers"]) == (True, answers)
