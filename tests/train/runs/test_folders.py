"""What a run has learned from somebody goes when it may no longer be learned from."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakehouse.lake import Lake
from tests.lakehouse.power import Power
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build, withdraw
from train.runs.folders import (
    conversations_folder,
    delete_conversations,
    delete_learned,
    run_lock,
    sweep,
)
from train.substrate.manifest import SubstrateManifest, mark_stale
from trajectory.errors import ConfigurationError

NOW = datetime(2026, 11, 2, tzinfo=UTC)
LEFT = {"checkpoints", "model", "training.words", "lock"}


def begun(lake: Lake, folder: Path, substrate: SubstrateManifest, status: str) -> None:
    """Note a run of a substrate, and give it a checkpoint and a model."""
    row = {
        "run_id": folder.name,
        "recorded_at": NOW,
        "recipe": "sft",
        "substrate": substrate.name,
        "substrate_version": substrate.version,
        "base_model": "base",
        "started_at": NOW,
        "ended_at": None,
        "status": status,
        "seed": 0,
        "metrics": "{}",
        "manifest": "{}",
    }
    lake.append_rows("runs", [row])
    for name in ("checkpoints/checkpoint-1", "model", "scratch"):
        (folder / name).mkdir(parents=True)
        (folder / name / "weights").write_text("learned")
    (folder / "training.words").write_text("the last words of a program that failed")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_weights_of_a_stale_substrate_go_and_a_run_at_work_is_left_alone(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n) for n in range(12)))
    substrate = build(lake, tmp_path / "substrates")
    runs = tmp_path / "runs"
    begun(lake, runs / "failed", substrate, "failed")
    begun(lake, runs / "killed", substrate, "running")
    begun(lake, runs / "working", substrate, "running")
    with run_lock(runs / "working"):
        with pytest.raises(ConfigurationError, match="working is under way"):
            run_lock(runs / "working").__enter__()
        sweep(lake, runs)
        assert names(runs / "failed") == LEFT
        assert names(runs / "working") == {*LEFT, "scratch"}
        withdraw(lake, "b2:subject-1")
        assert mark_stale(lake, substrate)
        sweep(lake, runs)
        assert names(runs / "working") == {*LEFT, "scratch"}
    assert names(runs / "failed") == names(runs / "killed") == {"lock"}
    states = lake.query("SELECT run_id, status FROM runs_latest ORDER BY run_id").to_pylist()
    assert [row["status"] for row in states] == ["failed", "interrupted", "running"]
    sweep(lake, runs)
    assert names(runs / "working") == {"lock"}


def test_checkpoints_of_a_run_that_was_killed_after_its_end_go(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n) for n in range(12)))
    substrate = build(lake, tmp_path / "substrates")
    for name, status in (("ended", "done"), ("failed", "failed")):
        begun(lake, tmp_path / "runs" / name, substrate, status)
    (tmp_path / "runs" / "ended" / "manifest.json").write_text("{}")
    sweep(lake, tmp_path / "runs")
    assert names(tmp_path / "runs" / "ended") == {*LEFT, "manifest.json"} - {"checkpoints"}
    assert names(tmp_path / "runs" / "failed") == LEFT


def test_what_went_does_not_come_back_with_the_power(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "killed"
    for rest in ("scratch/rows", "evaluation/base.episodes", "checkpoints/weights"):
        (folder / rest).parent.mkdir(parents=True)
        (folder / rest).write_text("Ida Novak")
    (folder / "training.words").write_text("Ida Novak")
    with Power(tmp_path / "runs") as power:
        delete_conversations(tmp_path / "runs")
        delete_learned(folder)
    power.cut()
    assert not [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


def test_conversations_go_without_a_lake_where_no_run_is_at_work(tmp_path: Path) -> None:
    for name in ("killed", "working"):
        for rest in ("scratch/rows", "evaluation/base.episodes", "checkpoints/weights"):
            (tmp_path / name / rest).parent.mkdir(parents=True)
            (tmp_path / name / rest).write_text("Ida Novak")
    with run_lock(tmp_path / "working"):
        delete_conversations(tmp_path)
    assert names(tmp_path / "killed") == {"evaluation", "checkpoints", "lock"}
    assert not names(tmp_path / "killed" / "evaluation")
    assert names(tmp_path / "working") == {"scratch", "evaluation", "checkpoints", "lock"}


def test_what_is_said_in_work_that_is_no_run_goes_with_it_or_with_who_comes_next(
    tmp_path: Path,
) -> None:
    with conversations_folder(tmp_path) as place:
        (place / "base.episodes").write_text("Ida Novak")
        delete_conversations(tmp_path)
        assert (place / "base.episodes").exists()  # it is at work
    assert not [*tmp_path.iterdir()]
    child = os.fork()
    if not child:
        with conversations_folder(tmp_path) as place:
            (place / "base.episodes").write_text("Ida Novak")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert [*tmp_path.rglob("*.episodes")]
    delete_conversations(tmp_path)
    assert not [*tmp_path.rglob("*.episodes")]
