"""Lineage both ways: a version names its trajectories, and a trajectory its versions and decisions."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.services.lineage import TrajectoryShare, VersionLineage, lineage_of
from tests.headrace.console.conftest import artifact_of, decision
from tests.train.lakes import PURPOSES, Session, lake_of
from tests.train.registry.test_lineage import learned
from tests.train.substrate.test_build import build
from train.registry.versions import ModelRegistry
from trajectory.errors import ConfigurationError


@pytest.fixture
def app(tmp_path: Path) -> AppContext:
    """An installation with two trajectories, a model that learned from both, and a skill drawn from one."""
    made = AppContext(tmp_path / "home", debug=False)
    made.home.create()
    purposes = (*PURPOSES, "evolve")
    sessions = (Session(number, purposes=purposes) for number in (1, 2))
    lake_of(made.home.lake, *sessions)
    substrate = build(made.lake, made.home.substrates, split={"holdout": 0.0})
    models = ModelRegistry(made.home.models, source=made.lake)
    learned(models, made.lake, tmp_path, substrate, "elsewhere", "r1")
    artifact_of(made, "Ask for the order.", name="orders", tenant="acme", evidence=["t00001-0"])
    made.lake.append_rows("decisions", [decision("d0001")])
    return made


def test_a_version_names_what_it_came_from(app: AppContext) -> None:
    model, artifact = lineage_of(app, "shop@0001"), lineage_of(app, "orders@0001")
    assert isinstance(model, VersionLineage)
    assert isinstance(artifact, VersionLineage)
    assert (model.kind, model.run_id, model.ancestors) == ("model", "r1", ())
    assert [one.trajectory_id for one in model.trajectories] == ["t00001", "t00002"]
    assert model.steps == sum(one.steps for one in model.trajectories)
    assert artifact.trajectories == (TrajectoryShare("acme", "t00001", 1),)


@pytest.mark.parametrize("what", ["t00001", "t00001-0", "t00001-e0"])
def test_a_trajectory_names_what_came_of_it(app: AppContext, what: str) -> None:
    found = lineage_of(app, what)
    assert not isinstance(found, VersionLineage)
    assert [(one.model, one.version, one.learned) for one in found.models] == [
        ("shop", "0001", True)
    ]
    assert [(one.artifact, one.version, one.steps) for one in found.artifacts] == [
        ("orders", "0001", 1)
    ]
    assert [one.split for one in found.substrates] == ["train"]
    assert found.decisions == ("d0001",)


def test_an_adopted_model_came_from_elsewhere(
    app: AppContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bought"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    models = ModelRegistry(app.home.models, source=app.lake)
    version = models.adopt("bought", folder, actor="ida", reason="from a provider").version
    found = lineage_of(app, f"bought@{version}")
    assert isinstance(found, VersionLineage)
    assert (found.kind, found.run_id, found.trajectories) == ("model", None, ())
    assert run(["--home", str(app.home.root), "lineage", f"bought@{version}"]) == 0
    assert f"bought@{version}" in capsys.readouterr().out


def test_what_is_not_there_is_said_with_what_is_meant(app: AppContext) -> None:
    with pytest.raises(ConfigurationError, match="NAME@VERSION"):
        lineage_of(app, "none")
    with pytest.raises(ConfigurationError, match="headrace train list"):
        lineage_of(app, "none@0001")


def test_the_command_tells_of_artefacts_and_trajectories(
    app: AppContext, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(what: str) -> Any:
        capsys.readouterr()
        assert run(["--home", str(app.home.root), "lineage", what, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert told("orders@0001")["trajectories"][0]["trajectory_id"] == "t00001"
    assert told("t00002")["models"][0]["model"] == "shop"
