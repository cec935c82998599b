"""Nights of a shop's agents with one planted cause, as rows of the lake: for ``make bench-evolve`` and tests.

Four tenants, five kinds of task. Before the change one session in eight fails; each cause takes
about ten points of success, but where it says otherwise.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from governance.records import GovernanceRecord
from lakehouse.lake import Lake
from trajectory.step import Signal, Step, ToolCall, ToolResult

T0 = datetime(2026, 6, 1, tzinfo=UTC)
TENANTS = ("acme", "birch", "cedar", "delta")
TASKS = {
    "refund": ("find_order", "refund"),
    "buy": ("find_item", "pay", "reserve"),
    "ship": ("find_order", "ship"),
    "bill": ("find_order", "invoice"),
    "ask": (),
}
FAILS = 0.12

CAUSES: dict[str, tuple[str, str | None]] = {
    "tool_renamed": ("tool_schema", "refund"),
    "fact_missing": ("memory", "birch"),
    "procedure_wrong": ("skill", "find_item > pay > reserve"),
    "prompt_worse": ("rollback", "harness_version support@2"),
    "weak": ("weights", None),
    "canary_regressed": ("rollback", "model_version shop@5"),
    "cost_doubled": ("harness", None),
    "judge_changed": ("nothing", None),
    "angry_users": ("nothing", None),
}
"""What is planted → the surface that is right, and what the subject must name."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the tables."""

    steps: list[Step] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    governance: list[GovernanceRecord] = field(default_factory=list)

    def write(self, lake: Lake) -> None:
        """Append everything by the lake's own writer."""
        for name in ("steps", "signals", "governance"):
            lake.append_rows(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Traffic:
    """A world: which cause, since which night, and how many sessions a night has."""

    seed: int
    cause: str | None
    since: int
    """The first night with the cause."""
    sessions: int = 200
    drop: float = 0.1
    begin: datetime = T0
    """Midnight before the first night."""

    def nights(self, first: int, last: int) -> Rows:
        """Return the rows of some nights; the same ones however they are cut."""
        rows = Rows()
        for one in self.shop_sessions(first, last):
            one.add_to(rows)
        return rows

    def shop_sessions(self, first: int, last: int) -> Iterator["ShopSession"]:
        """Yield what happens in some nights."""
        for night in range(first, last):
            cause = self.cause if night >= self.since else None
            draw = random.Random(f"{self.seed} {cause} {night}")  # noqa: S311 - no secret
            for number in range(self.sessions + draw.randint(-20, 20)):
                yield self._session(draw, night, number)
            if self.cause == "angry_users" and night == self.since:
                for number in range(5):
                    yield self._session(draw, night, 10_000 + number, angry=True)

    def _is(self, cause: str, night: int) -> bool:
        return self.cause == cause and night >= self.since

    def _session(
        self, draw: random.Random, night: int, number: int, *, angry: bool = False
    ) -> "ShopSession":
        one = ShopSession(
            f"w{self.seed}-{night}-{number}", draw.choice(TENANTS), draw.choice(tuple(TASKS)),
            self.begin + timedelta(days=night, seconds=draw.randrange(80_000)),
        )  # fmt: skip
        if angry:
            one.begun = self.begin + timedelta(days=night, hours=9, minutes=10 * (number % 6))
        share = FAILS
        if self._is("weak", night):
            share += self.drop
        if self._is("prompt_worse", night):
            share, one.harness = share + self.drop, 2
        if self._is("canary_regressed", night) and draw.random() < 0.2:
            share, one.model = share + 5 * self.drop, "shop@5"
        if self._is("fact_missing", night) and one.tenant == "birch":
            share += 4 * self.drop
        if self._is("judge_changed", night):
            share, one.judge = share + self.drop, "2"
        if self._is("cost_doubled", night):
            one.tokens *= 2
        one.tokens = round(one.tokens * draw.uniform(0.6, 1.6))
        if self._is("procedure_wrong", night) and one.task == "buy":
            share += 5 * self.drop
            one.errors = {"pay": "the item is not set aside yet: call reserve before pay"}
        if self._is("tool_renamed", night) and one.task == "refund":
            share += 5 * self.drop
            one.errors = {"refund": "invalid request: unknown field order_id; expected order"}
        one.success = not angry and draw.random() >= share
        one.corrected = angry or draw.random() < (0.04 if one.success else 0.3)
        if one.success:
            one.errors = {}
        for tool in TASKS[one.task]:
            if tool not in one.errors and draw.random() < 0.02:
                one.errors = {**one.errors, tool: "the request timed out"}
        return one


@dataclass(slots=True)
class ShopSession:
    """One session of the shop's agent: what is asked, what the tools answer, what is said of it."""

    name: str
    tenant: str
    task: str
    begun: datetime
    harness: int = 1
    model: str = "shop@4"
    judge: str = "1"
    tokens: int = 900
    success: bool = True
    corrected: bool = False
    errors: dict[str, str] = field(default_factory=dict)

    def add_to(self, rows: Rows) -> None:
        """Append the session's steps and what was said of it."""
        tools = TASKS[self.task]
        for index in range(len(tools) + 1):
            asked = tools[index] if index < len(tools) else None
            told = tools[index - 1] if index else None
            rows.steps.append(self._step(index, asked, told))
            rows.governance.append(_allowed(rows.steps[-1]))
        rows.signals.append(self._signal("success", float(self.success), "verifier", "tests"))
        if self.corrected:
            rows.signals.append(
                self._signal("correction", 1.0, "human_implicit", "headrace:correction")
            )

    def _step(self, index: int, asked: str | None, told: str | None) -> Step:
        at = self.begun + timedelta(seconds=5 * index)
        arguments = json.dumps({"order_id": f"A-{index}"})
        return Step(
            tenant_id=self.tenant, app_id="shop", environment="prod", trajectory_id=self.name,
            step_id=f"{self.name}-s{index}", step_index=index,
            parent_step_id=f"{self.name}-s{index - 1}" if index else None, branch=0, kind="model",
            role_in_graph="agent", key_source="header:x-headrace-session",
            exchange_id=f"{self.name}-x{index}", route="model", dialect="openai.chat",
            started_at=at, ended_at=at + timedelta(seconds=3), context_keep=2 * index,
            context_message_ids=(), output_message_id=None,
            tool_calls=(ToolCall(f"c{index}", asked, arguments),) if asked else (),
            tool_results=() if told is None else (
                ToolResult(f"c{index - 1}", self.errors.get(told, ""), told in self.errors),
            ),
            model_requested="shop", model_served=self.model, finish_reason="stop", http_status=200,
            input_tokens=self.tokens, output_tokens=self.tokens // 10, agent_role="support",
            harness_name="support", harness_version=self.harness,
        )  # fmt: skip

    def _signal(self, name: str, value: float, kind: str, source: str) -> Signal:
        at = self.begun + timedelta(minutes=2)
        return Signal(
            tenant_id=self.tenant, signal_id=f"{self.name}-{name}", target_kind="trajectory",
            target_id=self.name, trajectory_id=self.name, step_id=None, name=name, value=value,
            label=None, rationale=None, source_kind=kind, source=source,
            source_version=self.judge if name == "success" else "2", confidence=None,
            observed_at=at, recorded_at=at,
        )  # fmt: skip


def _allowed(step: Step) -> GovernanceRecord:
    return GovernanceRecord(
        tenant_id=step.tenant_id, step_id=step.step_id, trajectory_id=step.trajectory_id,
        decided_at=step.started_at, started_at=step.started_at, policy_hash="b2:bench",
        decision="allow", reasons=(), subjects=(), data_classes=(), legal_basis="contract",
        purposes=("train_sft",), consent_reference=None, retention_class="default",
        expires_at=None, legal_hold=False, redaction_report="{}", redaction_counts={},
    )  # fmt: skip


def prices() -> Iterator[dict[str, Any]]:
    """Yield what both models cost each tenant."""
    for tenant in TENANTS:
        for model in ("shop@4", "shop@5"):
            yield {
                "tenant_id": tenant, "model": model, "valid_from": T0 - timedelta(days=400),
                "recorded_at": T0, "currency": "EUR", "input_per_million": 3.0,
                "cached_input_per_million": None, "output_per_million": 15.0,
            }  # fmt: skip


def lake_of(folder: str, traffic: Traffic, nights: int) -> Lake:
    """Return a new lake with the first nights of a world."""
    lake = Lake.open(folder)
    lake.append_rows("prices", list(prices()))
    traffic.nights(0, nights).write(lake)
    return lake
