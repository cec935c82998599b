"""Reporters of training curves. They write into the run's folder unless the user names a server.

What the user's environment says (a tracking server, an online mode) goes before.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from trajectory.errors import ConfigurationError

_PACKAGES = {
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "trackio": "trackio",
}


def require_reporters(reporters: Sequence[str]) -> None:
    """Refuse reporters whose package is not installed, before anything is trained.

    Raises:
        ConfigurationError: naming what to install.
    """
    missing = [name for name in reporters if importlib.util.find_spec(_PACKAGES[name]) is None]
    if missing:
        packages = " ".join(_PACKAGES[name] for name in missing)
        raise ConfigurationError(
            f"training.reporters: {', '.join(missing)} is not installed; run `uv pip install "
            f"{packages}`, or leave it out"
        )


def reporter_variables(reporters: Sequence[str], out: Path) -> dict[str, str]:
    """Return the environment that keeps reporters inside a run's folder."""
    wanted = {
        "tensorboard": {"TENSORBOARD_LOGGING_DIR": str(out / "tensorboard")},
        "mlflow": {
            "MLFLOW_TRACKING_URI": f"sqlite:///{(out / 'mlflow.db').absolute()}",
            "MLFLOW_EXPERIMENT_NAME": "headrace",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        "wandb": {
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(out),
            "WANDB_PROJECT": "headrace",
            "WANDB_SILENT": "true",
            "WANDB_ERROR_REPORTING": "false",
        },
        "trackio": {"TRACKIO_DIR": str((out / "trackio").absolute())},
    }
    found = {name: value for reporter in reporters for name, value in wanted[reporter].items()}
    return {name: os.environ.get(name, value) for name, value in found.items()}
