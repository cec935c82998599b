"""Credits are computed over a lake, appended with everything that names them, and go with an erasure."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.credit.algorithms import algorithm_named
from lakehouse.credit.compute import Scope, compute_credits
from lakehouse.erasure.removal import remove_trajectories
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from lakehouse.rewards import RewardWeights
from tests.lakehouse import make

WEIGHTS = RewardWeights({"success": 1.0})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.open(str(tmp_path))
    for number, reward in enumerate((1.0, 0.0, None)):
        one = make.batch(f"t{number}", steps=2, reward=reward)
        shared = tuple(replace(step, group_id="task") for step in one.steps)
        allowed = tuple(replace(each, purposes=("train_rl",)) for each in one.governance)
        made.append(replace(one, steps=shared, governance=allowed), app_id="t", version=number)
    return made


def test_rows_keep_algorithm_version_parameters_and_weights(lake: Lake) -> None:
    report = compute_credits(lake, algorithm_named("gigpo"), {"weight": 0.5}, WEIGHTS, Scope())
    assert (report.trajectories, report.steps) == (2, 4)
    rows = lake.query("SELECT * FROM credits ORDER BY step_id").to_pylist()
    assert {row["step_id"] for row in rows} == {"t0-s0", "t0-s1", "t1-s0", "t1-s1"}
    for row in rows:
        assert (row["algorithm"], row["algorithm_version"]) == ("gigpo", "1")
        assert json.loads(row["parameters"]) == {"gamma": 0.95, "scale": "std", "weight": 0.5}
        assert row["weights_hash"] == WEIGHTS.weights_hash
        assert row["group_id"] == "task"
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 0.0]
    assert rows[0]["advantage"] > 0 > rows[2]["advantage"]


def test_late_rewards_outdate_credits_and_change_none(lake: Lake) -> None:
    grpo = algorithm_named("grpo")
    compute_credits(lake, grpo, {}, WEIGHTS, Scope())
    lake.append_rows("signals", [make.signal("t2", 1.0)])
    compute_credits(lake, grpo, {}, WEIGHTS, Scope())
    compute_credits(lake, grpo, {"scale": "none"}, WEIGHTS, Scope())
    assert lake.query("SELECT count(*) AS n FROM credits").to_pylist() == [{"n": 4 + 6 + 6}]
    latest = lake.query("SELECT parameters, count(*) AS n FROM credits_latest GROUP BY ALL")
    assert {row["n"] for row in latest.to_pylist()} == {6}
    assert latest.num_rows == 2


@pytest.mark.parametrize("change", [{"decision": "drop"}, {"purposes": ("train_sft",)}])
def test_an_attempt_that_may_not_be_learned_from_is_compared_with_nothing(
    lake: Lake, change: dict[str, Any]
) -> None:
    later = make.NOON + timedelta(hours=1)
    values = {"purposes": ("train_rl",), "decided_at": later, **change}
    lake.append_rows("governance", [make.governed(make.step("t0", 1), **values)])
    report = compute_credits(lake, algorithm_named("grpo"), {}, WEIGHTS, Scope())
    assert (report.trajectories, report.alone) == (1, 2)


def test_credits_go_with_their_trajectory(lake: Lake) -> None:
    compute_credits(lake, algorithm_named("leave_one_out"), {}, WEIGHTS, Scope())
    removed = remove_trajectories(lake, "acme", ["t0"], reason="erasure-1")
    assert removed["credits"] == 2
    left = lake.query("SELECT DISTINCT trajectory_id FROM credits").to_pylist()
    assert left == [{"trajectory_id": "t1"}]
    assert verify(lake).ok


def test_nothing_judged_is_nothing_computed(tmp_path: Path) -> None:
    empty = Lake.open(str(tmp_path / "empty"))
    report = compute_credits(empty, algorithm_named("hgpo"), {}, WEIGHTS, Scope())
    assert (report.steps, report.mean) == (0, None)


def test_the_same_weights_have_the_same_name_in_any_order() -> None:
    one = RewardWeights({"a": 1.0, "b": 2.0})
    assert one.weights_hash == RewardWeights({"b": 2.0, "a": 1.0}).weights_hash
    assert one.weights_hash != RewardWeights({"a": 1.0, "b": 2.5}).weights_hash
