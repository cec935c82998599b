"""Loading models: several threads may, and every model comes whole."""

import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from train.model_folder import load_model, load_scoring_model, load_tokenizer, require_loadable
from train.registry.versions import ModelRegistry
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("inside", [True, False])
def test_layers_that_no_weights_stand_for_are_not_built(
    tiny_model: Path, tmp_path: Path, inside: bool
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    settings = json.loads((folder / "config.json").read_text())
    many = {"num_hidden_layers": 50_000_000}
    (folder / "config.json").write_text(
        json.dumps(settings | ({"text_config": many} if inside else many))
    )
    for load in (load_model, load_scoring_model, require_loadable):
        with pytest.raises(ConfigurationError, match="names 50,000,000 layers"):
            load(folder)


def test_an_index_that_names_other_weights_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (tmp_path / "weights.bin").write_bytes(pickle.dumps(Program(tmp_path / "ran")))
    for named in ("../weights.bin", "weights.bin", 5):
        index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": named}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for load in (load_model, load_scoring_model, require_loadable):
            with pytest.raises(ConfigurationError, match="may be programs"):
                load(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
        ("model.safetensors", b"\xff" * 7 + b"\x7f{}"),
        ("config.json", b"[]"),
        ("config.json", b"[" * 200_000),
        ("config.json", b'{"model_type": "llama", "num_attention_heads": 0}'),
        ("config.json", b'{"model_type": "llama", "hidden_size": "x"}'),
        ("config.json", b'{"model_type": "../../x"}'),
        ("tokenizer.json", b"[" * 200_000),
    ],
)
def test_broken_files_of_a_model_are_named_and_never_adopted(
    tiny_model: Path, tmp_path: Path, file: str, content: bytes
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    require_loadable(folder)
    (folder / file).write_bytes(content)
    with pytest.raises(ConfigurationError, match="can be loaded"):
        require_loadable(folder)


def test_what_is_no_file_is_not_adopted(tiny_model: Path, tmp_path: Path) -> None:
    """A device would be copied for ever, a folder that leads to itself too."""
    registry = ModelRegistry(tmp_path / "models")
    for name, place in (("a.safetensors", "/dev/zero"), ("inner", "."), ("b", "/nosuch")):
        folder = tmp_path / name
        shutil.copytree(tiny_model, folder)
        (folder / name).symlink_to(place)
        with pytest.raises(ConfigurationError, match="is no file"):
            registry.adopt("shop", folder, actor="ann", reason="ours")
