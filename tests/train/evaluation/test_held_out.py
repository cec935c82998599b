"""Held-out tasks are chosen by the seed; what cannot be tried again is counted by reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build
from train.errors import EmptyRunError
from train.evaluation.environment import MissedCallError
from train.evaluation.held_out import HeldOutTasks, held_out_tasks
from train.recipes.settings import EvaluationSettings
from train.substrate.manifest import load_items
from train.types import ScoredItem

NEXT_DAY = 720
"""Sessions from this number on begin on the second day, which is held out."""
SPLIT = {"holdout": 0.0, "holdout_from": "2026-11-02"}


def suite(*, tasks: int = 50, seed: int = 0, **replay: Any) -> EvaluationSettings:
    return EvaluationSettings.model_validate({"replay": replay, "tasks": tasks, "seed": seed})


def sessions(count: int = 6) -> list[Session]:
    """Two attempts at each task of the second day, the second one wrong; and a first day."""
    held = [
        Session(
            NEXT_DAY + n,
            reward=float(n % 2 == 0),
            group=f"g{n // 2}",
            question=f"What do {n // 2} lamps cost?",
            lamps=n // 2,
        )
        for n in range(2 * count)
    ]
    return [Session(n, lamps=100 + n) for n in range(8)] + held


def entries_of(lake: Lake, out: Path) -> list[ScoredItem]:
    return load_items(build(lake, out, split=SPLIT))


def found(lake: Lake, out: Path, settings: EvaluationSettings) -> HeldOutTasks:
    return held_out_tasks(lake, entries_of(lake, out), settings)


def test_attempts_at_one_task_are_one_task_with_their_paths(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *sessions())
    tasks = found(lake, tmp_path / "out", suite()).tasks
    assert len(tasks) == 6
    assert [[path.rewarded for path in task.paths].count(True) for task in tasks] == [1] * 6
    for task in tasks:
        assert [message["role"] for message in task.prompt] == ["system", "user"]
        assert {tool["function"]["name"] for tool in task.tools} == {"price"}
        assert all(len(path.turns) == 1 and path.answer for path in task.paths)


def test_the_seed_chooses_and_the_rest_is_counted(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *sessions())
    entries = entries_of(lake, tmp_path / "out")
    chosen = [held_out_tasks(lake, entries, suite(tasks=3, seed=seed)) for seed in (0, 0, 1, 2)]
    assert chosen[0].fallen == {"over_tasks": 3}
    ids = [[task.task_id for task in one.tasks] for one in chosen]
    assert ids[0] == ids[1]
    assert len({tuple(sorted(one)) for one in ids}) > 1


def test_a_task_that_the_examined_was_drawn_from_is_left_out(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *sessions())
    entries = entries_of(lake, tmp_path / "out")
    everything = held_out_tasks(lake, entries, suite()).tasks
    wrong = next(one for one in entries if one.split != "train" and not one.rewarded)
    asked = lake.query(
        "SELECT min(step_id) AS step_id FROM steps WHERE trajectory_id = ?",
        [wrong.item.trajectory_id],
    )
    left = held_out_tasks(lake, entries, suite(), evidence=asked["step_id"].to_pylist())
    assert left.fallen == {"evidence": 1}
    gone = {one.task_id for one in everything} - {one.task_id for one in left.tasks}
    (known,) = (one for one in everything if one.task_id in gone)
    assert wrong.item.trajectory_id in known.trajectories
    trained = [step for one in entries if one.split == "train" for step in one.item.step_ids]
    assert held_out_tasks(lake, entries, suite(), evidence=trained).tasks == everything


def test_answers_come_from_the_tenant_or_from_the_task_alone(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *sessions(), Session(900, tenant="umbra", lamps=77))
    everything = found(lake, tmp_path / "out", suite()).recorded
    assert everything.answer("acme", "price", {"lamps": 107}) == '{"total": 214}'
    with pytest.raises(MissedCallError):
        everything.answer("acme", "price", {"lamps": 77})
    assert len(found(lake, tmp_path / "more", suite(answers="task")).recorded) == 0


def test_a_task_that_nobody_solved_has_no_outcome_to_expect(tmp_path: Path) -> None:
    wrong = [Session(NEXT_DAY + n, reward=0.0, group=f"g{n}") for n in range(4)]
    lake = lake_of(tmp_path / "lake", *wrong)
    entries = entries_of(lake, tmp_path / "out")
    by_record = held_out_tasks(lake, entries, suite())
    assert (by_record.tasks, by_record.fallen) == ((), {"no_expected_outcome": 4})
    with pytest.raises(EmptyRunError, match=r"no environment replays: 0 .*no_expected_outcome 4"):
        by_record.require("evaluation")
    by_reward = held_out_tasks(lake, entries, suite(reward="tests.train.test_rewards:brevity"))
    assert len(by_reward.tasks) == 4


def test_a_call_that_was_never_answered_replays_nothing(tmp_path: Path) -> None:
    session = Session(NEXT_DAY, group="g0")
    ended = replace(session.step(0), output_message_id=session.message_ids()[2])
    lake = Lake.open(str(tmp_path / "lake"))
    from tests.train.lakes import batch

    whole = batch(session)
    lake.append(
        replace(
            whole,
            steps=(ended,),
            exchanges=whole.exchanges[:1],
            governance=whole.governance[:1],
            signals=tuple(replace(s, step_id=ended.step_id) for s in whole.signals),
        ),
        app_id="test",
        version=0,
    )
    tasks = found(lake, tmp_path / "out", suite())
    assert (tasks.tasks, tasks.fallen) == ((), {"no_recorded_answer": 1})


def test_nothing_held_out_says_what_to_change(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1), Session(2))
    tasks = found(lake, tmp_path / "out", suite())
    assert "raise split.holdout" in str(tasks.obstacle("evaluation"))
