"""A run that is stopped or killed leaves nothing that was said on the disk, and no program behind."""

import signal
import subprocess
from pathlib import Path

import pytest

from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from lakehouse.lake import Lake
from tests.headrace.nights import written
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of
from tests.trajectory.test_child_process import ended, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

VERIFIER = """\
#!/bin/sh
sleep 1000 &
echo $! $$ > "{pids}.new" && mv "{pids}.new" "{pids}"
wait
"""
"""Reads what was said and takes its time, as does a program that it started."""


def home_with_recipe(home: Path, pids: Path) -> str:
    """Make a home with a lake, a base and a recipe whose verifier never ends; return the recipe."""
    lake_of(
        home / "lake",
        *(Session(n, question=f"Ida Novak asks for {n} lamps, please.") for n in range(24)),
    )
    assert run(["train", "adopt", str(make_model(home / "base")), "--model", "shop"]) == 0
    verifier = home / "verifier.sh"
    verifier.write_text(VERIFIER.format(pids=pids))
    verifier.chmod(0o700)
    spec = {
        "purposes": ["train_sft"],
        "reward": {"signals": {"success": 1.0}},
        "split": {"holdout": 0.3},
    }
    assert run(["substrate", "build", written(home, "Substrate", "all", spec)]) == 0
    recipe = {
        "recipe": "sft",
        "training": {"threads": 1, "maximum_steps": 2, "reporters": [], "save_steps": 1},
        "evaluation": {
            "tasks": 3,
            "replay": {"verifier": [str(verifier)], "completion_tokens": 4},
        },
    }
    return written(home, "Recipe", "watched", recipe)


def said(home: Path) -> list[str]:
    """Return the files of all runs in which somebody's words stand."""
    files = [path for path in (home / "runs").rglob("*") if path.is_file()]
    return [path.name for path in files if b"Ida Novak" in path.read_bytes()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_said_and_who_read_it_end_with_the_run(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    pids = tmp_path / "pids"
    recipe = home_with_recipe(tmp_path, pids)
    training = subprocess.Popen(
        headrace_command(["train", "run", recipe, "--model", "shop"]), stderr=subprocess.PIPE
    )
    until(lambda: pids.exists() or training.poll() is not None)
    assert said(tmp_path) == ["base.episodes"]
    training.send_signal(number)
    _, words = training.communicate(timeout=120)
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: ended(pid), 60)  # type: ignore[misc]
    if number == signal.SIGTERM:
        assert training.returncode == 130, words
    else:
        assert run(["lake", "maintain"]) == 0
    assert said(tmp_path) == []
    assert not list((tmp_path / "runs").rglob("scratch"))
    rows = Lake.open(str(tmp_path / "lake")).query("SELECT status, ended_at FROM runs_latest")
    ((status, at),) = [row.values() for row in rows.to_pylist()]
    assert (status, at is None) == ("interrupted", False)
    assert list((tmp_path / "runs").glob("*/checkpoints/checkpoint-2"))


def test_the_next_run_deletes_what_a_killed_one_left_and_leaves_one_at_work_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train.runs.folders import run_lock

    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    home_with_recipe(tmp_path, tmp_path / "pids")
    for name in ("killed", "working"):
        for rest in ("scratch/order.pickle", "evaluation/base.episodes", "evaluation/scratch/rows"):
            path = tmp_path / "runs" / name / rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("Ida Novak")
    spec = {"recipe": "sft", "data": {"minimum_items": 1000}}  # more than there are: it ends early
    with run_lock(tmp_path / "runs" / "working"):
        many = written(tmp_path, "Recipe", "many", spec)
        assert run(["train", "run", many, "--model", "shop"]) == 3
    left = {path.parent.parent.name for path in (tmp_path / "runs").rglob("base.episodes")}
    assert left == {"working"}
    assert len(said(tmp_path)) == 3
    assert {path.name for path in (tmp_path / "runs" / "killed").iterdir()} == {
        "evaluation",
        "lock",
    }
