"""What an agent gains by facts with unchanged weights: the part of ``make bench-artifacts`` that takes minutes.

One gateway stands before the practice model that reads rules (``examples/practice/reading.py``), with one
tenant for each seed. Agents work at fresh orders, and many quote by the wrong price list.
On another day customers correct wrong quotes, the agents quote again, and the verifier judges how each session
ended. Governance fills the lake, ``headrace artifact propose`` draws facts from it, and what passes its
inspection goes live. Then agents work at the same fresh orders again.

A chat model without tools is asked within how many days things arrive, which nobody can guess
(``benchmarks/delivery_questions.py``); the rest is the same.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import yaml

from examples.practice.fleet import Plan, run_fleet
from examples.practice.installation import Installation
from examples.practice.provider import KEY_VARIABLE
from examples.practice.stage import Ports, Stage
from train.evaluation.evaluate import TaskResult, compare
from train.recipes.settings import EvaluationSettings

_SETTINGS = EvaluationSettings(command=("none",))
_PATIENCE_SECONDS = 300
"""For a process to start, or governance to end, on a machine that others use too."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything, for each seed."""

    orders: int = 100
    """Fresh ones, tried before and after."""
    day: int = 72
    """Sessions of the day on which customers correct."""


@dataclass(frozen=True, slots=True)
class Shop:
    """A tenant of the gateway: one seed."""

    seed: int
    key: str = field(repr=False)

    @property
    def artifact(self) -> str:
        """Name of what is drawn from its sessions."""
        return f"{shop_name(self.seed)}-corrections"


def shop_name(seed: int) -> str:
    """Return the name of a seed's tenant and route."""
    return f"shop-{seed}"


@dataclass(frozen=True, slots=True)
class Worked:
    """What agents did in a shop."""

    sessions: list[TaskResult]
    calls: int
    """Of the model."""


@dataclass(frozen=True, slots=True)
class Day:
    """What agents are to do in a shop."""

    shop: Shop
    gateway: str
    tools: str
    """Address of the MCP server."""
    sessions: int
    corrects: bool
    """Customers correct what is wrong, and the verifier judges; else the work is fresh, and they do not."""

    @property
    def base_url(self) -> str:
        """Of the shop's route."""
        return f"{self.gateway}/{shop_name(self.shop.seed)}/v1"


@dataclass(frozen=True, slots=True)
class Agents:
    """Who works in the shops, and the model behind them."""

    serve: Callable[[Stage, Path], AbstractContextManager[None]]
    """Serves the model of a folder at the stage's port of the provider."""
    work: Callable[[Day], Worked]


class Town:
    """One gateway with its governance, the model that never changes, and the shops' agents."""

    def __init__(self, stage: Stage, seeds: Sequence[int], agents: Agents) -> None:
        """Start everything and create the shops' keys."""
        self._stage, self._ports, self._work = stage, stage.ports, agents.work
        self._house = Installation(stage, stage.ports, seed=0)
        _write_settings(stage, seeds)
        ports = stage.ports
        programs = {
            "tools": ["examples.practice.tools", "--port", str(ports.tools)],
            "up": ["headrace", "--home", str(stage.home), "up"],
        }
        ready = {
            "tools": f"http://127.0.0.1:{ports.tools}/mcp",
            "up": f"{self._gateway}/headrace/v1/health",
        }
        for name, command in programs.items():
            stage.start(name, ["-m", *command], {})
            stage.wait_until_ready(name, ready[name], seconds=_PATIENCE_SECONDS)
        self.shops = [Shop(seed, self._new_key(seed)) for seed in seeds]

    @property
    def _gateway(self) -> str:
        return f"http://127.0.0.1:{self._ports.gateway}"

    def _new_key(self, seed: int) -> str:
        whose = ("--tenant", shop_name(seed), "--app", "shop")
        created = self._stage.headrace_json("keys", "create", *whose, "--purpose", "evolve")
        return str(created["key"])

    def sessions(self, shop: Shop, count: int, *, corrects: bool = False) -> list[TaskResult]:
        """Let agents work; with ``corrects`` on a day on which customers correct what is wrong."""
        tools = f"http://127.0.0.1:{self._ports.tools}/mcp"
        worked = self._work(Day(shop, self._gateway, tools, count, corrects))
        self._house.sent += worked.calls
        return worked.sessions

    def govern(self) -> None:
        """Wait until what was captured is governed."""
        self._house.drain(seconds=_PATIENCE_SECONDS)

    def learn(self, shop: Shop) -> int:
        """Draw facts from a shop's sessions and let them go live; return how many there are."""
        asked = ("artifact", "propose", "--tenant", shop_name(shop.seed), "--kind", "memory")
        rows = self._stage.headrace_json(*asked, "--add")
        if not rows or "@" not in rows[0]["artifact"]:
            return 0
        name, _, version = rows[0]["artifact"].partition("@")
        self._stage.headrace("artifact", "promote", name, version)
        self._stage.wait_until_served(name, shop.key)
        return len(rows[0]["document"]["spec"]["memory"]["facts"])


def _write_settings(stage: Stage, seeds: Sequence[int]) -> None:
    ports = stage.ports
    routes = [
        {
            "name": shop_name(seed),
            "upstream": f"http://127.0.0.1:{ports.provider}",
            "credential": {"env": KEY_VARIABLE, "header": "authorization"},
            "evolve": {"artifacts": [Shop(seed, "").artifact]},
        }
        for seed in seeds
    ]
    listeners = {"port": ports.gateway, "forward_port": ports.forward, "admin_port": ports.admin}
    settings = {"gateway": {**listeners, "routes": routes}, "console": {"enabled": False}}
    (stage.home / "headrace.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def quote(day: Day) -> Worked:
    """Let agents quote prices by the tool; customers correct the price list."""
    report = asyncio.run(
        run_fleet(
            Plan(
                client="openai-chat",
                tools_url=day.tools,
                sessions=day.sessions,
                seed=day.shop.seed,
                split="train" if day.corrects else "fresh",
                corrects=day.corrects,
                nameless=True,
                seeded=True,
                base_url=day.base_url,
                api_key=day.shop.key,
                direct=True,
                feedback_url=day.gateway if day.corrects else None,
                feedback_key=day.shop.key if day.corrects else None,
            )
        )
    )
    sessions = [
        TaskResult(one.task.task_id, one.attempt, one.success, float(one.success), one.task.slice)
        for one in report.sessions
    ]
    return Worked(sessions, report.requests["model"])


@contextmanager
def serve_practice(stage: Stage, model: Path) -> Iterator[None]:
    """Serve a practice model; the stage stops its program in the end."""
    port = stage.ports.provider
    command = ["-m", "examples.practice.provider", "--port", str(port), "--model", str(model)]
    stage.start("provider", command, {})
    ready = f"http://127.0.0.1:{port}/v1/models"
    stage.wait_until_ready("provider", ready, seconds=_PATIENCE_SECONDS)
    yield


QUOTING = Agents(serve_practice, quote)
"""Agents of the demo's shop, with its tool and the model that reads rules."""


def artifact_gains(
    model: Path, home: Path, seeds: Sequence[int], size: Size, agents: Agents = QUOTING
) -> dict[str, Any]:
    """Return success before and after one cycle, over all tasks and for each seed."""
    os.environ.setdefault(KEY_VARIABLE, "practice-" + secrets.token_hex(16))
    (home / "logs").mkdir(parents=True)
    with Stage(home, Ports()) as stage, agents.serve(stage, model):
        town = Town(stage, seeds, agents)
        before = {shop.seed: town.sessions(shop, size.orders) for shop in town.shops}
        for shop in town.shops:
            town.sessions(shop, size.day, corrects=True)
        town.govern()
        facts = [town.learn(shop) for shop in town.shops]
        after = {shop.seed: town.sessions(shop, size.orders) for shop in town.shops}
    by_seed = [compare(before[seed], after[seed], _SETTINGS) for seed in seeds]
    first, last = ([one for tried in side.values() for one in tried] for side in (before, after))
    whole = compare(first, last, _SETTINGS)
    return {
        "gain": round(whole.gain.estimate, 3),
        "gain_ci_low": round(whole.gain.low, 3),
        "success_before": round(whole.base.estimate, 3),
        "success_after": round(whole.candidate.estimate, 3),
        "gains_by_seed": [round(one.gain.estimate, 3) for one in by_seed],
        "gain_lows_by_seed": [round(one.gain.low, 3) for one in by_seed],
        "facts_by_seed": facts,
        "orders_by_seed": size.orders,
    }
