"""Loading models: several threads may, and every model comes whole."""

import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from train.evaluation.reward_models import load_scoring_model
from train.registry.versions import ModelRegistry
from train.runs.fit import load_model, load_tokenizer
from trajectory.errors import ConfigurationError


def test_models_loaded_by_several_threads_keep_their_tied_weights(tiny_model: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        models = [*pool.map(load_model, [tiny_model] * 12), load_model(tiny_model)]
    for model in models:
        assert model.lm_head.weight is model.model.embed_tokens.weight


class Program:
    """Writes a file when it is read as weights."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.place,)


def test_weights_that_may_be_programs_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    for weights in folder.glob("*.safetensors*"):
        weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Program(tmp_path / "ran")))
    for load in (load_model, load_scoring_model):
        with pytest.raises(ConfigurationError, match="safetensors"):
            load(folder)
    with pytest.raises(ConfigurationError, match=r"holds no \*\.safetensors"):
        ModelRegistry(tmp_path / "models").adopt("shop", folder, actor="ann", reason="ours")
    assert not (tmp_path / "ran").exists()


def test_programs_beside_a_model_are_not_run_and_nobody_is_asked(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    own = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    own |= {"AutoModelForSequenceClassification": "own.M"}
    for name, more in (
        ("config.json", {"model_type": "own", "auto_map": own}),
        (
            "tokenizer_config.json",
            {"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["own.T"] * 2}},
        ),
    ):
        before = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(before | more))
    for load in (load_model, load_scoring_model, load_tokenizer):
        with pytest.raises(ConfigurationError, match="can be loaded"):
            load(folder)
    assert "[y/N]" not in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()
