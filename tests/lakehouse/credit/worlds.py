"""Small worlds of attempts at tasks, drawn with every degenerate case, and a session that holds them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from lakehouse.read.session import Session, Snapshot
from lakehouse.schema.tables import TABLES
from lakehouse.write.rows import to_arrow
from tests.lakehouse import make
from trajectory.step import Signal, Step, ToolCall


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of an attempt."""

    step_id: str
    state: str | None
    reward: float = 0.0
    """Value of the signal ``progress`` on this step; 0 for none."""
    action: str = ""
    """The tool that it called; none where it only spoke."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task."""

    trajectory_id: str
    tenant: str
    task: str | None
    app: str
    outcome: float | None
    """Value of the signal ``success``; None when nobody judged it."""
    decisions: tuple[Decision, ...]

    @property
    def group(self) -> tuple[str, str]:
        return self.tenant, self.task or self.trajectory_id

    def rewards(self) -> list[float]:
        """What each decision earned, the outcome at the end."""
        earned = [decision.reward for decision in self.decisions]
        earned[-1] += self.outcome or 0.0
        return earned


def draw_world(seed: int, *, longest: int = 6) -> list[Attempt]:
    """Return attempts: tasks of one or many, without variance, unjudged, of unequal length, without state."""
    draw, act = random.Random(seed), random.Random(f"act {seed}")  # noqa: S311 (no secret)
    attempts = []
    for number in range(draw.randint(1, 14)):
        kind = draw.choice(["mixed", "mixed", "same", "stateless"])
        task = draw.choice([None, "a", "a", "b", "b", "c"])
        name = f"w{seed}-t{number:02d}"
        decisions = tuple(
            Decision(
                f"{name}-s{place}",
                None if kind == "stateless" or draw.random() < 0.1 else draw.choice("xyz"),
                draw.choice([0.0, 0.0, 0.5, -0.25]) if kind != "same" else 0.0,
                act.choice(["find", "find", "pay", ""]),
            )
            for place in range(draw.randint(1, longest))
        )
        outcome = draw.choice([0.0, 1.0, 1.0, draw.uniform(-3, 3), None])
        outcome = 1.0 if kind == "same" else outcome
        tenant = f"{draw.choice(['acme', 'acme', 'beta'])}-{seed}"
        app = draw.choice(["shop", "desk"])
        attempts.append(Attempt(name, tenant, task, app, outcome, decisions))
    return attempts


def called(decision: Decision) -> tuple[ToolCall, ...]:
    """Return the step's tool call; its id is another one at each step."""
    return (ToolCall(f"call-{decision.step_id}", decision.action, "{}"),) if decision.action else ()


def session_of(attempts: Sequence[Attempt]) -> Session:
    """Return a session whose tables hold the attempts; no files are written."""
    steps: list[Step] = []
    signals: list[Signal] = []
    for number, attempt in enumerate(attempts):
        start = make.NOON + timedelta(minutes=number)
        for place, decision in enumerate(attempt.decisions):
            one = make.step(attempt.trajectory_id, place)
            steps.append(replace(
                one, tenant_id=attempt.tenant, app_id=attempt.app, group_id=attempt.task,
                state_hash=decision.state, started_at=start + timedelta(seconds=place),
                tool_calls=called(decision), output_message_id=f"said-{decision.step_id}",
            ))  # fmt: skip
            if decision.reward:
                signals.append(make.signal(
                    attempt.trajectory_id, decision.reward, tenant_id=attempt.tenant,
                    name="progress", target_kind="step", target_id=decision.step_id,
                    step_id=decision.step_id, signal_id=f"p-{decision.step_id}",
                ))  # fmt: skip
        if attempt.outcome is not None:
            signals.append(make.signal(
                attempt.trajectory_id, attempt.outcome, tenant_id=attempt.tenant,
                signal_id=f"o-{attempt.trajectory_id}",
            ))  # fmt: skip
        # What is no decision takes no credit and does not count as one.
        tool = make.tool_step(attempt.trajectory_id, 90)
        failed = make.step(attempt.trajectory_id, 91, role_in_graph="discarded")
        steps.extend(replace(extra, tenant_id=attempt.tenant) for extra in (tool, failed))
    governance = [make.governed(one, purposes=("train_rl",)) for one in steps]
    return bound(steps=steps, signals=signals, governance=governance)


def bound(**rows: Sequence[Any]) -> Session:
    """Return a session whose tables hold these rows."""
    session = Session(Snapshot(dict.fromkeys(TABLES, ())))
    connection = session._connection  # the property would bind every view
    for name, held in rows.items():
        connection.register(f"{name}_rows", to_arrow(TABLES[name], held))
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM {name}_rows")
        session._make_room(name, empty=not held)
    return session
