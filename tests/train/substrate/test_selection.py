"""Signals become one reward per item, as the document says."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from tests.train.lakes import START, Session, lake_of
from tests.train.substrate.test_build import build
from train.substrate.manifest import load_items
from trajectory.step import Signal


def add(lake: Lake, name: str, value: float, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "tenant_id": "acme",
        "signal_id": f"{name}-{value}-{changes}",
        "target_kind": "trajectory",
        "target_id": "t00001",
        "trajectory_id": "t00001",
        "step_id": None,
        "name": name,
        "value": value,
        "label": None,
        "rationale": None,
        "source_kind": "judge",
        "source": "test",
        "source_version": None,
        "confidence": None,
        "observed_at": START,
        "recorded_at": START,
    }
    lake.append_rows("signals", [Signal(**{**fields, **changes})])


def reward(lake: Lake, out: Path, **spec: Any) -> float:
    (entry,) = load_items(build(lake, out, reward=spec))
    return entry.reward


def test_weighted_sum_of_signals(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1, reward=1.0))
    add(lake, "style", 0.5)
    assert reward(lake, tmp_path / "o", signals={"success": 2.0, "style": -1.0}) == 1.5


def test_missing_signal_leaves_out_or_counts_as_zero(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1, reward=1.0))
    weights = {"success": 1.0, "style": 1.0}
    left_out = build(lake, tmp_path / "o", reward={"signals": weights})
    assert left_out.left_out_items == {"no_reward": 1}
    assert reward(lake, tmp_path / "o", signals=weights, missing="zero") == 1.0


@pytest.mark.parametrize(("combine", "expected"), [("mean", 0.5), ("minimum", 0.0), ("sum", 1.0)])
def test_several_signals_of_one_name_combine(tmp_path: Path, combine: str, expected: float) -> None:
    lake = lake_of(tmp_path / "lake", Session(1, reward=1.0))
    add(lake, "success", 0.0, step_id="t00001-0", target_kind="step", target_id="t00001-0")
    assert reward(lake, tmp_path / "o", signals={"success": 1.0}, combine=combine) == expected


def test_late_reward_makes_a_new_version_of_the_substrate(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1, reward=None))
    before = build(lake, tmp_path / "o")
    add(lake, "success", 1.0)
    after = build(lake, tmp_path / "o")
    assert (before.counts["items"], after.counts["items"]) == (0, 1)
    assert before.version != after.version


def test_signal_about_a_step_of_another_branch_does_not_count(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1, reward=None))
    add(lake, "success", 1.0, step_id="elsewhere", target_kind="step", target_id="elsewhere")
    assert build(lake, tmp_path / "o").left_out_items == {"no_reward": 1}
