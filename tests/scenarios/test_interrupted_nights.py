"""A night whose keeper is stopped or killed: its training ends, none begins beside it, it goes on later."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from headrace.schedule.scheduler import NightHistory
from tests.headrace.nights import written
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of
from tests.trajectory.test_child_process import ended, until
from train.registry.versions import ModelRegistry
from trajectory.files import locked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

EVALUATOR = """\
#!/bin/sh
echo $PPID > "{home}/trainer.new" && mv "{home}/trainer.new" "{home}/trainer"
until [ -e "{home}/go-on" ]; do sleep 0.1; done
exec {python} -m tests.train.evaluator "$@"
"""


def home_with_night(home: Path, **more: Any) -> str:
    """Make a home whose night stands still in its evaluation until somebody lets it go on."""
    lake_of(home / "lake", *(Session(n) for n in range(24)))
    assert run(["train", "adopt", str(make_model(home / "base")), "--model", "shop"]) == 0
    evaluator = home / "evaluator.sh"
    evaluator.write_text(EVALUATOR.format(home=home, python=sys.executable))
    evaluator.chmod(0o700)
    substrate = {
        "purposes": ["train_sft"],
        "reward": {"signals": {"success": 1.0}},
        "split": {"holdout": 0.0},
    }
    recipe = {
        "recipe": "sft",
        "training": {
            "threads": 1,
            "maximum_steps": 6,
            "batch_size": 4,
            "learning_rate": 0.01,
            "save_steps": 3,
            "reporters": [],
        },
        "evaluation": {"command": [str(evaluator)], "tasks": 40},
    }
    written(home, "Substrate", "all", substrate)
    written(home, "Recipe", "plain", recipe)
    spec = {
        "cron": "0 2 * * *",
        "substrate": "all.yaml",
        "recipes": ["plain.yaml"],
        "model": "shop",
        "retries": {"attempts": 2, "wait_minutes": 0},
        **more,
    }
    return written(home, "Schedule", "nightly", spec)


def keeper(night: str, *options: str) -> "subprocess.Popen[bytes]":
    command = headrace_command(["schedule", "run", night, *options, "--json"])
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def outcomes(home: Path) -> list[Any]:
    return [
        night["outcome"] for night in NightHistory(home / "state" / "schedules", "nightly").nights()
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_night_that_was_broken_off_leaves_nothing_behind_and_goes_on_later(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    night = home_with_night(tmp_path)
    first = keeper(night)
    until(lambda: (tmp_path / "trainer").exists() or first.poll() is not None)
    assert outcomes(tmp_path) == ["begun"]
    trainer = parent(int((tmp_path / "trainer").read_text()))  # the evaluator has a guard above it
    if number == signal.SIGKILL:
        os.kill(trainer, signal.SIGSTOP)  # it takes its time to end
        first.send_signal(number)
        first.communicate(timeout=60)
        said, _ = keeper(night).communicate(timeout=120)
        assert json.loads(said)["reasons"] == ["another night of this model still runs"]
        assert not ended(trainer)
        os.kill(trainer, signal.SIGCONT)
    else:
        first.send_signal(number)
        first.communicate(timeout=120)
        assert (first.returncode, outcomes(tmp_path)) == (130, ["interrupted"])
    until(lambda: ended(trainer))
    (begun,) = (tmp_path / "runs").iterdir()
    assert (begun / "checkpoints" / "checkpoint-6").is_dir()

    (tmp_path / "go-on").touch()
    second = keeper(night)
    said, words = second.communicate(timeout=300)
    assert second.returncode == 0, words
    assert json.loads(said)["models"] == ["shop@0002"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [begun.name]
    manifest = json.loads((tmp_path / "models" / "shop" / "0002" / "manifest.json").read_bytes())
    assert manifest["run_id"] == begun.name
    assert outcomes(tmp_path)[-1] == "trained"


def children(pid: int) -> dict[int, list[str]]:
    """Return the processes below one, with their command lines."""
    found: dict[int, list[str]] = {}
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if parent(int(one.name)) in (pid, *found):
                words = (one / "cmdline").read_bytes().decode().split("\0")
                found[int(one.name)] = words
        except OSError:
            continue  # it ended meanwhile
    return found


def promoting(pid: int) -> int | None:
    """Return the process below one that promotes a version, if it runs."""
    return next((own for own, words in children(pid).items() if "promote" in words), None)


def test_a_night_that_was_killed_before_it_promoted_promotes_when_it_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    night = home_with_night(tmp_path, promote=True, conditions={"minimum_new_items": 0})
    (tmp_path / "go-on").touch()
    # Every promotion is audited first, so the candidate waits here.
    with locked(tmp_path / "audit" / "audit.jsonl", wait=True):
        first = keeper(night)
        until(lambda: promoting(first.pid) is not None or first.poll() is not None)
        promotes = promoting(first.pid)
        assert promotes is not None, first.communicate()
        first.kill()
        first.communicate(timeout=60)
        until(lambda: ended(promotes))
    models = ModelRegistry(tmp_path / "models")
    assert [one.status for one in models.versions("shop")] == ["live", "candidate"]

    said, words = keeper(night).communicate(timeout=300)
    told = json.loads(said)
    assert (told["outcome"], told["models"]) == ("trained", ["shop@0002"]), words
    assert told["promoted"] == ["shop@0002"]
    assert [one.status for one in models.versions("shop")] == ["retired", "live"]

    # What a person takes back is not promoted again.
    models.rollback("shop", actor="ann", reason="worse")
    said, words = keeper(night).communicate(timeout=300)
    assert json.loads(said)["promoted"] == [], words
    assert [one.status for one in models.versions("shop")] == ["live", "retired"]
