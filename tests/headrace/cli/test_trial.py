"""``headrace trial`` begins, shows, steps, asks and ends; a policy that is no ladder is refused by line."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evolve.policy import SHIPPED
from headrace.cli import run
from train.registry.versions import ModelRegistry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    models = ModelRegistry(tmp_path / "models")
    for weights in ("one", "two"):
        folder = tmp_path / weights
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(weights.encode())
        models.register("shop", folder, {"origin": "adopted"}, passed=True)
    models.promote("shop", "0001", actor="ann")
    return tmp_path


def policy(home: Path, **ladder: Any) -> str:
    said = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    said["spec"]["promotion"]["ladder"] = ladder
    path = home / "evolution.yaml"
    path.write_text(yaml.safe_dump(said), encoding="utf-8")
    return str(path)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run(["trial", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_trial_from_its_beginning_to_its_end(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = policy(home, rungs=["gate", "canary", "live"], ask=["canary"])
    assert told(capsys, "begin", "shop", "0002", "--policy", mine)["rung"] == "gate"
    (moved,) = told(capsys, "step")
    assert (moved["rung"], moved["asks"]) == ("gate", "canary")
    assert told(capsys, "step") == []
    assert told(capsys, "approve", "shop", "--reason", "fine")["rung"] == "canary"
    assert run(["trial", "reject", "shop"]) == 2
    assert run(["trial", "begin", "shop", "0002"]) == 2
    assert "one change is tried at a time" in capsys.readouterr().err
    (listed,) = told(capsys, "list")
    assert (listed["candidate"], listed["rung"], listed["outcome"]) == ("shop@0002", "canary", None)
    assert told(capsys, "end", "shop", "--reason", "enough")["outcome"] == "ended"
    assert told(capsys, "show", "shop@0002")["reasons"] == ["enough"]
    assert ModelRegistry(home / "models").trials("shop") == {}
    log = (home / "audit" / "audit.jsonl").read_text()
    for action in ("trial.begun", "trial.asked", "trial.approved", "trial.moved", "trial.ended"):
        assert f'"{action}"' in log


def test_who_rejects_a_trial_ends_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = policy(home, ask=["replay"])
    told(capsys, "begin", "shop", "0002", "--policy", mine)
    assert told(capsys, "reject", "shop")["outcome"] == "rejected"


def test_a_policy_that_is_no_ladder_is_refused_by_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ladder, said in (
        ({"rungs": ["gate", "live"]}, "rungs lacks canary"),
        ({"rungs": ["canary", "gate", "live"]}, "rungs go in this order"),
        ({"canary": 0.9}, "less than or equal to 0.5"),
        ({"slices": [{}]}, "a slice names at least one of"),
        ({"rungs": ["gate", "canary", "live"], "ask": ["shadow"]}, "which is no rung"),
    ):
        path = policy(home, **ladder)
        assert run(["policy", "check", path]) == 2
        told = capsys.readouterr().err
        assert said in told
        assert "evolution.yaml:" in told


def test_a_name_that_nothing_has_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trial", "begin", "nobody", "0001"]) == 2
    assert "is neither's" in capsys.readouterr().err
