"""What an agent gains by facts with unchanged weights: the part of ``make bench-artifacts`` that takes minutes.

One gateway stands before the practice model that reads rules (``examples/practice/reading.py``), with one
tenant for each seed. Agents work at fresh orders, and many quote by the wrong price list.
On another day customers correct wrong quotes, the agents quote again, and the verifier judges how each session
ended. Governance fills the lake, ``headrace artifact propose`` draws facts from it, and what passes its
inspection goes live. Then agents work at the same fresh orders again.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import httpx
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
_SEEN_SECONDS = 30
"""A gateway looks about every second for what is live."""


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


class Town:
    """One gateway with its governance, the model that never changes, and the shops' agents."""

    def __init__(self, stage: Stage, model: Path, seeds: Sequence[int]) -> None:
        """Start everything and create the shops' keys."""
        self._stage, self._ports = stage, stage.ports
        self._house = Installation(stage, stage.ports, seed=0)
        (stage.home / "logs").mkdir(parents=True)
        _write_settings(stage, seeds)
        ports = stage.ports
        programs = {
            "provider": ["examples.practice.provider", "--port", str(ports.provider)],
            "tools": ["examples.practice.tools", "--port", str(ports.tools)],
            "up": ["headrace", "--home", str(stage.home), "up"],
        }
        programs["provider"] += ["--model", str(model)]
        ready = {
            "provider": f"http://127.0.0.1:{ports.provider}/v1/models",
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

    def tried(self, shop: Shop, orders: int) -> list[TaskResult]:
        """Let agents work at fresh orders; customers take what they are told."""
        return self._work(shop, split="fresh", sessions=orders)

    def corrected(self, shop: Shop, sessions: int) -> list[TaskResult]:
        """Let agents work on a day on which customers correct what is wrong."""
        key = {"feedback_url": self._gateway, "feedback_key": shop.key}
        return self._work(shop, split="train", sessions=sessions, corrects=True, **key)

    def _work(self, shop: Shop, **plan: Any) -> list[TaskResult]:
        report = asyncio.run(
            run_fleet(
                Plan(
                    client="openai-chat",
                    tools_url=f"http://127.0.0.1:{self._ports.tools}/mcp",
                    seed=shop.seed,
                    nameless=True,
                    seeded=True,
                    base_url=f"{self._gateway}/{shop_name(shop.seed)}/v1",
                    api_key=shop.key,
                    direct=True,
                    **plan,
                )
            )
        )
        self._house.sent += report.requests["model"]
        return [
            TaskResult(
                one.task.task_id, one.attempt, one.success, float(one.success), one.task.slice
            )
            for one in report.sessions
        ]

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
        self._wait_until_served(shop, name)
        return len(rows[0]["document"]["spec"]["memory"]["facts"])

    def _wait_until_served(self, shop: Shop, name: str) -> None:
        deadline = time.monotonic() + _SEEN_SECONDS
        address = f"{self._gateway}/headrace/v1/artifacts/{name}"
        key = {"authorization": f"Bearer {shop.key}"}
        with httpx.Client(trust_env=False, headers=key) as client:
            while client.get(address).status_code != 200:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the gateway does not serve {name}")
                time.sleep(0.2)


def _write_settings(stage: Stage, seeds: Sequence[int]) -> None:
    os.environ.setdefault(KEY_VARIABLE, "practice-" + secrets.token_hex(16))
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


def artifact_gains(model: Path, home: Path, seeds: Sequence[int], size: Size) -> dict[str, Any]:
    """Return success before and after one cycle, over all orders and for each seed."""
    with Stage(home, Ports()) as stage:
        town = Town(stage, model, seeds)
        before = {shop.seed: town.tried(shop, size.orders) for shop in town.shops}
        for shop in town.shops:
            town.corrected(shop, size.day)
        town.govern()
        facts = [town.learn(shop) for shop in town.shops]
        after = {shop.seed: town.tried(shop, size.orders) for shop in town.shops}
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
