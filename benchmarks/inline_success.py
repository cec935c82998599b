"""How often agents succeed with surrogates: raw, with tokens, with values that look real, at the same tasks.

    python -m benchmarks.inline_success [--quick] [--model FOLDER] [--chat-model FOLDER] [--seed N]

Each run goes through a real gateway; ``raw`` is a route without pseudonymisation. The last line is one JSON object:
``success_raw, success_token, success_realistic`` with 95 % intervals, and ``token_minus_raw``,
``realistic_minus_raw``: paired over the tasks.

``practice`` is the demo's agent (official SDK, real MCP server) with the demo's base model, whose draws are seeded,
at held-out orders with personal data. No order needs a personal value to be solved: this tells whether surrogates
distract. ``carried`` asks the chat model of ``--chat-model`` to remind somebody whom the question names: an address
or a number must stand in the tool call exactly as the user wrote it. The model is shown one call before, and says
what is likeliest. The tool may have the value, so that the gateway restores it in the call.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import httpx

from benchmarks.planting import Planter
from examples.practice.fleet import Plan, run_fleet
from examples.practice.model import ensure_model
from examples.practice.network import PracticeNetwork
from examples.practice.tools import ToolServer
from headrace.serving.server import ModelServer
from tests.proxy.gateway_process import GatewayProcess
from tests.support.inline import inline_setup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from train.evaluation.evaluate import TaskResult, compare
from train.evaluation.intervals import Interval
from train.generation import BatchGenerator, Engine
from train.recipes.settings import EvaluationSettings
from train.types import Prompt

WAYS = ("raw", "token", "realistic")
_TOOL: dict[str, Any] = {
    "name": "remind",
    "description": "Send a reminder to an e-mail address or a phone number.",
    "parameters": {
        "type": "object",
        "properties": {"to": {"type": "string"}},
        "required": ["to"],
    },
}
_KEY = "PRACTICE_PROVIDER_KEY"
_ASKS = ("Please send a reminder to {}.", "Send {} a reminder, please.")
_CARRIED_KINDS = ("email", "phone")


@contextlib.contextmanager
def gateways(folder: Path, upstream: str, key: str) -> Iterator[dict[str, tuple[str, str]]]:
    """Start a gateway for each kind of surrogates; yield the base URL and the client key of each way."""
    with ExitStack() as stack:
        found: dict[str, tuple[str, str]] = {}
        for kind in WAYS[1:]:
            setup = inline_setup(
                folder / f"{kind}-policy",
                routes=["model"],
                surrogates=kind,
                budget_ms=600_000,
                restore={"to": ["client", f"tool:{_TOOL['name']}"]},
            )
            credential = {"env": _KEY, "header": "authorization"}
            routes = [
                {"name": name, "upstream": upstream, "credential": credential}
                for name in ("model", "plain")
            ]
            gateway = stack.enter_context(
                GatewayProcess(
                    folder / kind, {"routes": routes}, environment={_KEY: key}, inline=setup
                )
            )
            found[kind] = f"{gateway.url}/model", gateway.key
            found["raw"] = f"{gateway.url}/plain", gateway.key
        yield found


def practice(folder: Path, model: Path, seed: int, tasks: int) -> dict[str, list[TaskResult]]:
    """Let the demo's agent work on the same orders in each way."""
    key = secrets.token_hex(16)
    engine = Engine(PracticeNetwork(model, exact=True))
    provider = ModelServer({"practice": engine}, key=key).listen("127.0.0.1", 0)
    tools = ToolServer(seed=seed).listen()
    found: dict[str, list[TaskResult]] = {}
    with provider, tools, gateways(folder, f"http://127.0.0.1:{provider.port}", key) as ways:
        for way in WAYS:
            base, client_key = ways[way]
            plan = Plan(
                client="openai-chat",
                tools_url=f"http://127.0.0.1:{tools.port}/mcp",
                sessions=tasks,
                seed=seed,
                split="heldout",
                concurrency=16,
                seeded=True,
                base_url=f"{base}/v1",
                api_key=client_key,
                direct=True,
            )
            sessions = asyncio.run(run_fleet(plan)).sessions
            found[way] = [
                TaskResult(one.task.task_id, one.attempt, one.success, float(one.success))
                for one in sessions
            ]
    engine.stop()
    return found


@dataclass(frozen=True, slots=True)
class Errand:
    """Somebody whom a question names, and who must stand in the call."""

    name: str
    value: str = field(repr=False)
    kind: str
    body: Mapping[str, Any] = field(repr=False)


def errands(seed: int, count: int) -> list[Errand]:
    """Return questions, each behind an example of a call for another one."""
    planter, draw = Planter(seed), random.Random(seed)  # noqa: S311 - reproducible, not secret
    made = []
    for number in range(count):
        kind = _CARRIED_KINDS[number % len(_CARRIED_KINDS)]
        shown, asked = planter.one(kind).value, planter.one(kind).value
        before, now = (draw.choice(_ASKS).format(who) for who in (shown, asked))
        arguments = json.dumps({"to": shown})
        call = {"name": _TOOL["name"], "arguments": arguments}
        called = {"id": "call_1", "type": "function", "function": call}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": before},
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sent"},
            {"role": "user", "content": now},
        ]
        body = {"model": "m", "messages": messages, "temperature": 0}
        body["tools"] = [{"type": "function", "function": _TOOL}]
        made.append(Errand(f"errand {number}", asked, kind, body))
    return made


class ChatModel:
    """A provider: it writes down the questions, thinks about all of them at once, then answers each."""

    def __init__(self, folder: Path) -> None:
        """Load the model."""
        self._generator = BatchGenerator(folder, temperature=0, most_tokens=40)
        self._answers: dict[str, str] = {}
        self._asked: dict[str, Mapping[str, Any]] = {}

    def __call__(self, request: ReceivedRequest) -> Reply:
        """Answer a question, with nothing where it was not thought about yet."""
        body = json.loads(request.body)
        key = json.dumps(body["messages"])
        self._asked[key] = body
        message: dict[str, Any] = {"role": "assistant", "content": self._answers.get(key, "")}
        call = _call_in(message["content"])
        if call is not None:
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "tool_calls" if call else "stop", "message": message}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
        return as_json({**whole, "choices": [choice]})

    def asked(self, value: str) -> bool:
        """Tell whether a question came that holds a value."""
        return any(value in key for key in self._asked)

    def think(self, at_once: int = 25) -> None:
        """Answer all questions that have come."""
        new = [key for key in self._asked if key not in self._answers]
        for start in range(0, len(new), at_once):
            keys = new[start : start + at_once]
            prompts = [Prompt(_shown(self._asked[key]), (), key) for key in keys]
            for key, answer in zip(keys, self._generator.answer(prompts), strict=True):
                self._answers[key] = "" if answer is None else str(answer.message["content"])


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def _shown(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a conversation as a model without tool calls of its own is shown it."""
    (tool,) = (one["function"] for one in body["tools"])
    system = f'{tool["description"]} Answer with {_OPEN}{{"to": …}}{_CLOSE} alone.'
    shown = [{"role": "system", "content": system}]
    for message in body["messages"]:
        if message["role"] == "tool":
            continue
        text = message["content"]
        if message.get("tool_calls"):
            text = f"{_OPEN}{message['tool_calls'][0]['function']['arguments']}{_CLOSE}"
        shown.append({"role": message["role"], "content": text})
    return shown


def _call_in(text: str) -> dict[str, Any] | None:
    """Return the call that a model's words ask for."""
    arguments = text.partition(_OPEN)[2].partition(_CLOSE)[0].strip()
    try:
        found = json.loads(arguments)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    function = {"name": _TOOL["name"], "arguments": json.dumps(found)}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def carried(folder: Path, model: Path, seed: int, tasks: int) -> dict[str, list[TaskResult]]:
    """Ask a chat model for calls in each way; a success names the right receiver, letter for letter.

    All questions are sent twice: surrogates do not change, and so they can be thought about at once.
    """
    provider, some = ChatModel(model), errands(seed, tasks)
    found: dict[str, list[TaskResult]] = {}
    with Upstream(provider) as upstream, gateways(folder, upstream.url, "none") as ways:
        for way in ("token", "realistic"):
            _send(ways[way], some)
            if any(provider.asked(one.value) for one in some):
                raise RuntimeError("a value reached the model as it is")
        _send(ways["raw"], some)
        provider.think()
        for way in WAYS:
            told = _send(ways[way], some)
            found[way] = [
                TaskResult(one.name, 0, to == one.value, float(to == one.value), one.kind)
                for one, to in zip(some, told, strict=True)
            ]
    return found


def _send(way: tuple[str, str], some: Sequence[Errand]) -> list[str | None]:
    """Send all questions; return the receivers that the client reads."""
    base, key = way
    told: list[str | None] = []
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base, headers=headers, timeout=600) as client:
        for one in some:
            answer = client.post(
                "/v1/chat/completions", json=one.body, headers={"x-headrace-session": one.name}
            )
            if answer.status_code != 200:
                raise RuntimeError(f"the gateway answered {answer.status_code}")
            calls = answer.json()["choices"][0]["message"].get("tool_calls") or ()
            told += [json.loads(calls[0]["function"]["arguments"]).get("to")] if calls else [None]
    return told


def summary(found: Mapping[str, Sequence[TaskResult]]) -> dict[str, Any]:
    """Return each way's success, and what a kind of surrogates changes."""
    settings = EvaluationSettings(command=("none",))
    out: dict[str, Any] = {"tasks": len(found["raw"])}
    for way in WAYS:
        compared = compare(found["raw"], found[way], settings)
        out[f"success_{way}"] = _rounded(compared.candidate)
        if way != "raw":
            out[f"{way}_minus_raw"] = _rounded(compared.gain)
            for name, one in compared.slices.items():
                out[f"{way}_{name}"] = [round(one.base, 3), round(one.candidate, 3)]
    return out


def _rounded(interval: Interval) -> list[float]:
    """Return estimate, lower and upper end."""
    return [round(value, 3) for value in (interval.estimate, interval.low, interval.high)]


def main() -> None:
    """Read the options, measure, print one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="make bench-inline-success", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="few tasks, within 50 seconds where the model is made"
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="the demo's base model; else the demo's, made where it is not there",
    )
    parser.add_argument("--chat-model", type=Path, help="for `carried`, left out without it")
    parser.add_argument("--tasks", type=int, help="of each part")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tasks = options.tasks or (24 if options.quick else 200)
    model = options.model or ensure_model(Path(".headrace/demo/practice"), progress=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        found = {"practice": summary(practice(folder / "practice", model, options.seed, tasks))}
        if options.chat_model is not None:
            results = carried(folder / "carried", options.chat_model, options.seed, tasks)
            found["carried"] = summary(results)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
