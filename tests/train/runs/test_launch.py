"""Several processes learn what one learns from the same rows; what stops one of them is told."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.train.runs.test_fit import rows, spec, tensors
from train.errors import TrainingError
from train.recipes.settings import LaunchSettings, RecipeSpec
from train.runs.fit import fit
from train.runs.launch import join, read_outcome, write_outcome
from trajectory.documents.document import merge
from trajectory.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN = {
    "group_by_length": False,
    "epochs": 1,
    "schedule": "constant",
    "learning_rate": 0.001,
    "reporters": [],
    "save_steps": None,
}


def launched(port: int | None = None, **training: Any) -> RecipeSpec:
    """Two processes, on one machine or on two."""
    machines = {} if port is None else {"machines": 2, "address": f"127.0.0.1:{port}"}
    document = spec(**{**PLAIN, **training}).model_dump(mode="json")
    return RecipeSpec.model_validate(merge(document, {"launch": {"processes": 2, **machines}}))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_machines_with_half_the_batch_learn_what_one_process_learns(
    tiny_model: Path, tmp_path: Path, unused_port: int
) -> None:
    import torch

    alone = fit(
        spec(batch_size=4, **PLAIN), base=tiny_model, make_rows=rows, out=tmp_path / "alone"
    )
    out = tmp_path / "together"
    waiting = {"seconds": 300, "pause": 0.05}
    other = threading.Thread(target=join, args=(tmp_path, 1), kwargs=waiting, daemon=True)
    other.start()
    used = launched(unused_port, batch_size=2)
    together = fit(used, base=tiny_model, make_rows=rows, out=out)
    other.join()
    assert (together.steps, together.tokens) == (alone.steps, alone.tokens) == (2, alone.tokens)
    for name, tensor in tensors(alone.model).items():
        torch.testing.assert_close(tensor, tensors(together.model)[name], atol=2e-5, rtol=1e-4)
    assert not (out / "scratch").exists()
    assert (out / "metrics.jsonl").read_text().count('"loss"') == 2


def test_what_stopped_a_process_is_told_by_the_run(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    write_outcome(tmp_path, {"error": "TrainingError", "text": "out of memory: lower …"})
    with pytest.raises(TrainingError, match="out of memory"):
        read_outcome(tmp_path)
    write_outcome(tmp_path, {"steps": 3})
    assert read_outcome(tmp_path) == {"steps": 3}


def test_a_machine_that_nobody_waits_for_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no run with several machines began within 0 s"):
        join(tmp_path, 1, seconds=0)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"processes": 3, "machines": 2, "address": "a:1"}, "multiple of machines"),
        ({"processes": 2, "machines": 2}, "need the address"),
        ({"processes": 2, "address": "here"}, "host:port"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        LaunchSettings.model_validate(settings)
