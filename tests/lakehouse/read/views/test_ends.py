"""How a trajectory ended, who answered it, and what is left out of comparisons."""

from datetime import timedelta
from typing import Any

import pytest

from lakehouse.read.session import Session
from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from trajectory.step import Signal, Step


def ends(steps: list[Step], signals: list[Signal] | None = None) -> dict[str, Any]:
    found = bound(steps=steps, signals=signals or []).query(
        "SELECT ended_as, is_truncated, agents, versions_served, agent_role, harness_version "
        "FROM trajectory_ends"
    )
    (row,) = found.to_pylist()
    return dict(row)


def last(**changes: Any) -> list[Step]:
    return [make.step("t", 0), make.step("t", 1, **changes)]


ABANDONED = make.signal(
    "t", 1.0, name="abandoned", target_kind="step", target_id="t-s1", step_id="t-s1"
)


@pytest.mark.parametrize(
    ("changes", "signals", "ended_as", "is_truncated"),
    [
        ({}, [], "open", None),
        ({"finish_reason": "tool_calls"}, [], "open", None),
        ({"finish_reason": "length"}, [], "limit", True),
        ({"finish_reason": "MAX_TOKENS"}, [], "limit", True),
        ({"role_in_graph": "discarded", "finish_reason": None}, [], "interrupted", True),
        ({"role_in_graph": "discarded", "finish_reason": None, "http_status": 529}, [], "error", False),
        ({"role_in_graph": "discarded", "finish_reason": None, "error": "overloaded"}, [], "error", False),
        ({"role_in_graph": "discarded", "finish_reason": None}, [ABANDONED], "abandoned", True),
        ({}, [make.signal("t", 1.0)], "goal_reached", False),
        ({}, [make.signal("t", 0.0)], "error", False),
        ({"finish_reason": "length"}, [make.signal("t", 0.0)], "limit", True),
        ({"finish_reason": "length"}, [make.signal("t", 1.0)], "goal_reached", False),
    ],
)  # fmt: skip
def test_a_judgement_says_more_than_the_last_call(
    changes: dict[str, Any], signals: list[Signal], ended_as: str, is_truncated: bool | None
) -> None:
    found = ends(last(**changes), signals)
    assert (found["ended_as"], found["is_truncated"]) == (ended_as, is_truncated)


def test_an_attempt_that_was_repeated_ends_nothing() -> None:
    steps = [*last(role_in_graph="discarded", http_status=500), make.step("t", 2)]
    assert ends(steps)["ended_as"] == "open"


def agent(index: int, role: str, version: int, model: str = "m@1") -> Step:
    return make.step(
        "t", index, agent_role=role, harness_name=role, harness_version=version, model_served=model,
        harness_id=f"h-{role}-{version}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "agents", "versions"),
    [
        ([agent(0, "a", 1), agent(1, "a", 1)], 1, 1),
        ([agent(0, "a", 1), agent(1, "b", 4, "m@2")], 2, 1),
        ([agent(0, "a", 1), agent(1, "a", 2), agent(2, "a", 1)], 1, 2),
        ([agent(0, "a", 1), agent(1, "b", 1, "m@1"), agent(2, "b", 1, "m@2")], 2, 2),
    ],
)
def test_several_agents_are_no_mixture_and_several_versions_of_one_are(
    steps: list[Step], agents: int, versions: int
) -> None:
    found = ends(steps)
    assert (found["agents"], found["versions_served"]) == (agents, versions)
    assert (found["agent_role"], found["harness_version"]) == (
        steps[-1].agent_role, steps[-1].harness_version,
    )  # fmt: skip


def cuts(session: Session) -> set[tuple[str, str]]:
    rows = session.query("SELECT dimension, value FROM reliability").to_pylist()
    return {(row["dimension"], row["value"]) for row in rows}


def test_what_several_versions_answered_stays_out_of_comparisons() -> None:
    mixed = [agent(0, "a", 1), agent(1, "a", 2)]
    assert cuts(bound(steps=mixed, signals=[])) == {("tenant", "acme"), ("workload", "shop/test")}
    pure = [agent(0, "a", 1), agent(1, "a", 1)]
    assert cuts(bound(steps=pure, signals=[])) >= {("harness", "a@1"), ("model", "m@1")}


def test_a_hand_off_is_filed_under_the_agent_that_answered_last() -> None:
    handed = [agent(0, "triage", 1), agent(1, "refund", 3)]
    later = make.NOON + timedelta(minutes=5)
    aside = make.step("t", 2, role_in_graph="auxiliary", started_at=later, harness_id="a-title")
    session = bound(steps=[*handed, aside], signals=[])
    assert ("harness", "refund@3") in cuts(session)
    (row,) = session.query(
        "SELECT harness_id, harness_name, harness_version FROM trajectories"
    ).to_pylist()
    assert tuple(row.values()) == ("h-refund-3", "refund", 3)
