"""Reporters stay in the run's folder, and one that is not installed is named before training."""

from pathlib import Path

import pytest

from train.runs.reporters import reporter_variables, require_reporters
from trajectory.errors import ConfigurationError


def test_a_missing_reporter_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "tensorboard" or None)
    require_reporters(["tensorboard"])
    with pytest.raises(ConfigurationError, match=r"mlflow, wandb is not .* install mlflow wandb`"):
        require_reporters(["tensorboard", "mlflow", "wandb"])


def test_curves_stay_in_the_runs_folder_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_DIR", "TRACKIO_DIR"):
        monkeypatch.delenv(name, raising=False)
    found = reporter_variables(["mlflow", "wandb", "trackio"], tmp_path)
    assert found["WANDB_MODE"] == "offline"
    assert str(tmp_path) in found["MLFLOW_TRACKING_URI"]
    assert found["TRACKIO_DIR"] == str(tmp_path / "trackio")
    assert "TENSORBOARD_LOGGING_DIR" not in found
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.internal:5000")
    asked = reporter_variables(["mlflow"], tmp_path)
    assert asked["MLFLOW_TRACKING_URI"] == "http://mlflow.internal:5000"
