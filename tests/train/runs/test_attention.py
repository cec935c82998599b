"""The attention that was asked for is the one that every recipe's model is loaded with."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import utils

from tests.train.runs.test_fit import rows, spec
from train.recipes.settings import RECIPES, TrainingSettings, shipped_recipe
from train.runs.attention import attention_options
from train.runs.fit import fit, load_base_model
from trajectory.errors import ConfigurationError


def training(**settings: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(settings)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that pretends to be a machine."""

    def pretend(*, gpu: bool = True, bfloat16: bool = True, installed: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bfloat16)
        monkeypatch.setattr(utils, "is_flash_attn_2_available", lambda: installed)

    return pretend


def test_auto_takes_flash_attention_where_it_can_work(machine: Any, tiny_model: Path) -> None:
    machine()
    assert attention_options(training()) == {"attn_implementation": "flash_attention_2"}
    assert attention_options(training(precision="float32")) == {}
    assert attention_options(training(), tiny_model) == attention_options(training())
    assert attention_options(training(), tiny_model.parent) == {}, "no model to do it"
    for lack in ({"gpu": False}, {"bfloat16": False}, {"installed": False}):
        machine(**lack)
        assert attention_options(training()) == {}


@pytest.mark.parametrize(
    ("lack", "settings", "text"),
    [
        ({"gpu": False}, {}, "needs a GPU"),
        ({"bfloat16": False}, {}, "bfloat16 only"),
        ({}, {"precision": "float32"}, "set precision: auto"),
        ({"installed": False}, {}, "uv pip install flash-attn"),
    ],
)
def test_what_was_asked_for_and_cannot_work_says_why(
    machine: Any, lack: dict[str, bool], settings: dict[str, str], text: str
) -> None:
    machine(**lack)
    with pytest.raises(ConfigurationError, match=text):
        attention_options(training(attention="flash_attention_2", **settings))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_is_said_before_any_row_is_made(tiny_model: Path, tmp_path: Path) -> None:
    def too_late(_: Any) -> Any:
        raise AssertionError("rows were made")

    out = tmp_path / "run"
    with pytest.raises(ConfigurationError, match=r"training.attention: flash_attention_2 needs a"):
        fit(spec(attention="flash_attention_2"), base=tiny_model, make_rows=too_late, out=out)
    assert not out.exists()


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_loads_its_model_with_it(recipe: str, tiny_model: Path) -> None:
    shipped = shipped_recipe(recipe).spec
    for name in ("eager", "sdpa"):
        changed = shipped.training.model_copy(update={"attention": name})
        model = load_base_model(shipped.model_copy(update={"training": changed}), tiny_model)
        assert model.config._attn_implementation == name
    assert load_base_model(shipped, tiny_model).config._attn_implementation == "sdpa"


@pytest.mark.filterwarnings("ignore")
def test_eager_and_sdpa_learn_the_same(tiny_model: Path, tmp_path: Path) -> None:
    losses = [
        fit(spec(attention=name), base=tiny_model, make_rows=rows, out=tmp_path / name).final_loss
        for name in ("eager", "sdpa")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
