"""Nights whose commands run in the test's own process, for tests that train."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli import run
from headrace.schedule.runner import CommandOutcome, Night, run_night
from train.schedule import Schedule


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a document of one kind."""
    return {"apiVersion": "headrace/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def written(folder: Path, kind: str, name: str, spec: dict[str, Any]) -> str:
    """Write a document and return its path."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document(kind, name, spec)))
    return str(path)


def night(capsys: pytest.CaptureFixture[str], substrate: str, *recipes: str) -> Night:
    """Run a night that promotes what passes."""

    def command(arguments: Sequence[str], _seconds: float) -> CommandOutcome:
        capsys.readouterr()
        plain = list(arguments) if arguments[1] == "promote" else [*arguments, "--json"]
        code = run(plain)
        said = capsys.readouterr()
        output = {} if arguments[1] == "promote" or code > 1 else json.loads(said.out)
        return CommandOutcome(code, output, said.err.strip()[-200:])

    spec = {
        "cron": "0 2 * * *",
        "substrate": substrate,
        "model": "shop",
        "recipes": list(recipes),
        "promote": True,
        "retries": {"attempts": 1},
    }
    return run_night(Schedule.model_validate(document("Schedule", "nightly", spec)), command)
