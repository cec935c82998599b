"""Rewards by the weights of a substrate: weighing otherwise rewrites nothing."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakehouse.read.session import Session
from lakehouse.rewards import RewardUnit, RewardWeights, rewards_of
from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from trajectory.step import Signal

SIGNALS: list[Signal] = [
    make.signal("t1", 1.0),
    make.signal("t1", 0.5, name="style", signal_id="style"),
    make.signal("t1", -1.0, name="tool_error", signal_id="e0", target_kind="step",
                target_id="t1-s0", step_id="t1-s0"),
    make.signal("t1", -3.0, name="tool_error", signal_id="e1", target_kind="step",
                target_id="t1-s1", step_id="t1-s1",
                recorded_at=make.NOON + timedelta(hours=1)),
    make.signal("t2", 0.0),
]  # fmt: skip


def substrate(name: str, version: str, **reward: Any) -> dict[str, Any]:
    spec = {"minimum": None, "combine": "last", "missing": "leave_out", **reward}
    return {
        "name": name, "version": version, "built_at": make.NOON, "recorded_at": make.NOON,
        "items": 0, "content_hash": "b2:x", "stale": False,
        "manifest": json.dumps({"document": {"spec": {"reward": spec}}}),
    }  # fmt: skip


def held(*substrates: dict[str, Any], signals: list[Signal] | None = None) -> Session:
    steps = [make.step(name, index) for name in ("t1", "t2", "t3") for index in (0, 1)]
    return bound(steps=steps, signals=signals or SIGNALS, substrates=substrates)


def rewards(session: Session, name: str) -> dict[str, tuple[float | None, bool | None]]:
    rows = session.query(
        "SELECT trajectory_id, reward, rewarded FROM weighted_rewards WHERE substrate = ?", [name]
    ).to_pylist()
    return {row["trajectory_id"]: (row["reward"], row["rewarded"]) for row in rows}


def test_each_substrate_weighs_the_same_signals_its_own_way() -> None:
    session = held(
        substrate("plain", "1", signals={"success": 1.0}),
        substrate("fine", "1", signals={"success": 2.0, "style": 1.0}, missing="zero", minimum=2.0),
        substrate("whole", "1", signals={"success": 1.0, "style": 1.0}),
    )
    assert rewards(session, "plain") == {"t1": (1.0, True), "t2": (0.0, False), "t3": (None, None)}
    assert rewards(session, "fine") == {"t1": (2.5, True), "t2": (0.0, False), "t3": (0.0, False)}
    assert rewards(session, "whole") == {"t1": (1.5, True), "t2": (None, None), "t3": (None, None)}


@pytest.mark.parametrize(
    ("combine", "value"), [("last", -3.0), ("mean", -2.0), ("minimum", -3.0), ("sum", -4.0)]
)
def test_the_view_and_training_share_one_definition(combine: str, value: float) -> None:
    session = held(substrate("s", "1", signals={"tool_error": 1.0}, combine=combine))
    assert rewards(session, "s")["t1"][0] == pytest.approx(value)
    weights = RewardWeights({"tool_error": 1.0}, combine)
    found = rewards_of(
        lambda sql, values: session.query(sql, values),
        [RewardUnit("whole", "acme", "t1", ("t1-s0", "t1-s1")), RewardUnit("first", "acme", "t1", ("t1-s0",)),
         RewardUnit("none", "acme", "t3", ("t3-s0",))],
        weights,
    )  # fmt: skip
    assert found["whole"].value == pytest.approx(value)
    assert found["first"].value == -1.0
    assert found["none"].value is None


def test_the_trajectorys_own_signal_goes_before_its_steps_and_its_groups() -> None:
    later = make.NOON + timedelta(hours=3)
    signals = [
        make.signal("t1", 1.0),
        make.signal("t1", 0.0, signal_id="step", target_kind="step", target_id="t1-s1",
                    step_id="t1-s1", recorded_at=later),
        make.signal("t1", 0.2, signal_id="group", target_kind="group", target_id="g-t2",
                    trajectory_id=None, recorded_at=later),
    ]  # fmt: skip
    session = held(substrate("s", "1", signals={"success": 1.0}), signals=signals)
    assert rewards(session, "s") == {"t1": (1.0, True), "t2": (0.2, True), "t3": (None, None)}
    summed = held(substrate("s", "1", signals={"success": 1.0}, combine="sum"), signals=signals)
    assert rewards(summed, "s")["t1"][0] == 1.0


def test_what_a_later_signal_supersedes_counts_no_more() -> None:
    correction = make.signal("t1", 0.25, signal_id="c", supersedes="sig-t1-1.0",
                             recorded_at=make.NOON)  # fmt: skip
    session = held(
        substrate("s", "1", signals={"success": 1.0}), signals=[make.signal("t1", 1.0), correction]
    )
    assert rewards(session, "s")["t1"][0] == 0.25


def test_decisions_are_what_the_agent_itself_said_in_order() -> None:
    steps = [
        make.step("t1", 0), make.tool_step("t1", 1), make.step("t1", 2),
        make.step("t1", 3, role_in_graph="discarded"),
    ]  # fmt: skip
    rows = bound(steps=steps).query(
        "SELECT step_id, position, decisions, group_id FROM agent_steps ORDER BY position"
    )
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("t1-s0", 0, 2, "g-t1"), ("t1-s2", 1, 2, "g-t1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gate", "t1", "t2"),
    [
        (None, -3.0, -2.0),  # 1 - 4 and 0 - 2
        ({"signal": "success", "at_least": 0.5}, -3.0, 0.0),
        ({"signal": "success", "at_least": 1.5}, 1.0, 0.0),
        ({"signal": "style", "at_least": 0.5}, -3.0, 0.0),  # nobody judged the style of t2
        ({"signal": "verdict", "at_least": 0.5}, -3.0, 0.0),  # a label is a judgement too
    ],
)
def test_a_gate_lets_steps_earn_only_where_the_outcome_passed(
    gate: dict[str, Any] | None, t1: float, t2: float
) -> None:
    told = [
        *SIGNALS,
        make.signal("t2", -2.0, name="tool_error", signal_id="e2", target_kind="step",
                    target_id="t2-s0", step_id="t2-s0"),
        replace(make.signal("t1", 0.0, name="verdict", signal_id="v1"), value=None, label="Pass"),
        replace(make.signal("t2", 0.0, name="verdict", signal_id="v2"), value=None, label="fail"),
    ]  # fmt: skip
    weights = {"success": 1.0, "tool_error": 1.0}
    reward: dict[str, Any] = {"signals": weights, "combine": "sum", "missing": "zero"}
    session = held(substrate("s", "1", **reward, gate=gate), signals=told)
    found = rewards(session, "s")
    assert (found["t1"][0], found["t2"][0]) == pytest.approx((t1, t2))
    given = (
        RewardWeights(weights, "sum", "zero")
        if gate is None
        else RewardWeights(weights, "sum", "zero", gate["signal"], gate["at_least"])
    )
    units = [RewardUnit(name, "acme", name, (f"{name}-s0", f"{name}-s1")) for name in ("t1", "t2")]
    shared = rewards_of(lambda sql, values: session.query(sql, values), units, given)
    assert (shared["t1"].value, shared["t2"].value) == pytest.approx((t1, t2))
