"""Training is reproducible, counts its rows, and leaves nothing behind but its results."""

import gc
import json
import resource
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.lakehouse.power import Power
from tests.train.conftest import make_model
from tests.train.test_chat_templates import tokenizer_of
from train.errors import TrainingError
from train.model_folder import end_tokens, load_model, load_tokenizer
from train.recipes.base import Rows
from train.recipes.settings import Recipe, RecipeSpec, shipped_recipe
from train.runs.curves import read_metrics
from train.runs.fit import FitResult, fit
from train.runs.rows import Masker
from trajectory.documents.document import merge
from trajectory.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore")


def spec(**training: Any) -> RecipeSpec:
    """The shipped sft recipe with small settings."""
    small = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "threads": 1, "log_steps": 1}
    document = shipped_recipe("sft").model_dump(mode="json")
    changed = merge(document, {"spec": {"training": {**small, **training}}})
    return Recipe.model_validate(changed).spec


def rows(tokenizer: Any, count: int = 8) -> Rows:
    columns: dict[str, list[Any]] = {"input_ids": [], "labels": []}
    for number in range(count):
        ask = {"role": "user", "content": f"Say {number}{'!' * number}"}
        answer = {"role": "assistant", "content": f"{number}"}
        (row,) = Masker(tokenizer).mask([ask, answer], [1]).rows
        columns["input_ids"].append(row.input_ids)
        columns["labels"].append(row.labels)
    return Rows(columns, Counter(), tuple(f"i{number}" for number in range(count)))


def weights(result: FitResult) -> bytes:
    return (result.model / "model.safetensors").read_bytes()


def tensors(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(model / "model.safetensors"))


def test_same_seed_same_weights_and_another_seed_others(tiny_model: Path, tmp_path: Path) -> None:
    results = [
        fit(spec(seed=seed), base=tiny_model, make_rows=rows, out=tmp_path / str(number))
        for number, seed in enumerate((3, 3, 4))
    ]
    assert weights(results[0]) == weights(results[1])
    assert weights(results[0]) != weights(results[2])


@pytest.mark.slow
def test_one_by_four_accumulated_equals_four_at_once(tiny_model: Path, tmp_path: Path) -> None:
    import torch

    plain = {"group_by_length": False, "epochs": 1, "schedule": "constant", "learning_rate": 0.001}
    at_once = fit(
        spec(batch_size=4, accumulation=1, **plain),
        base=tiny_model,
        make_rows=rows,
        out=tmp_path / "a",
    )
    accumulated = fit(
        spec(batch_size=1, accumulation=4, **plain),
        base=tiny_model,
        make_rows=rows,
        out=tmp_path / "b",
    )
    assert at_once.steps == accumulated.steps == 2
    for name, tensor in tensors(at_once.model).items():
        torch.testing.assert_close(tensor, tensors(accumulated.model)[name], atol=2e-5, rtol=1e-4)


def test_resume_in_the_middle_of_an_epoch_gives_what_no_interruption_gives(
    tiny_model: Path, tmp_path: Path
) -> None:
    used = spec(save_steps=3)  # of 4: the second epoch is under way
    whole = fit(used, base=tiny_model, make_rows=rows, out=tmp_path / "whole")
    # What a kill after step 3 leaves: the checkpoint, no later one and no model.
    kept = Path("checkpoints") / "checkpoint-3"
    shutil.copytree(tmp_path / "whole" / kept, tmp_path / "cut" / kept)
    told = (
        '{"step": 3, "loss": 1.0, "seconds": 100.0}\n{"step": 4, "loss": 1.0, "seconds": 900.0}\n'
    )
    (tmp_path / "cut" / "metrics.jsonl").write_text(told)
    resumed = fit(used, base=tiny_model, make_rows=rows, out=tmp_path / "cut", resume=True)
    assert (resumed.steps, weights(resumed)) == (whole.steps, weights(whole))
    assert 100 < resumed.seconds < 900, "with what it took up to the checkpoint"
    assert 100 < read_metrics(tmp_path / "cut" / "metrics.jsonl")[-1]["seconds"] < 900


def test_resume_passes_over_a_checkpoint_that_was_cut_off(tiny_model: Path, tmp_path: Path) -> None:
    used = spec(save_steps=2)
    whole = fit(used, base=tiny_model, make_rows=rows, out=tmp_path / "whole")
    kept, torn = (tmp_path / "cut" / "checkpoints" / f"checkpoint-{step}" for step in (2, 3))
    shutil.copytree(tmp_path / "whole" / "checkpoints" / kept.name, kept)
    torn.mkdir()
    (torn / "model.safetensors").write_bytes((kept / "model.safetensors").read_bytes()[:99])
    shutil.copy(
        kept / "trainer_state.json", torn
    )  # after a power cut the last one written may be whole
    resumed = fit(used, base=tiny_model, make_rows=rows, out=tmp_path / "cut", resume=True)
    assert (resumed.steps, weights(resumed)) == (whole.steps, weights(whole))


def test_after_a_power_cut_training_goes_on_from_its_last_checkpoint(
    tiny_model: Path, tmp_path: Path
) -> None:
    used = spec(save_steps=3)
    whole = fit(used, base=tiny_model, make_rows=rows, out=tmp_path / "whole")
    (tmp_path / "home").mkdir()
    with Power(tmp_path / "home") as power:
        fit(used, base=tiny_model, make_rows=rows, out=tmp_path / "home" / "run")
    power.cut()
    out = tmp_path / "home" / "run"
    assert {path.name for path in (out / "checkpoints").iterdir()} >= {"checkpoint-3"}
    assert not (out / "model").exists()
    resumed = fit(used, base=tiny_model, make_rows=rows, out=out, resume=True)
    assert (resumed.steps, weights(resumed)) == (whole.steps, weights(whole))


def test_a_checkpoint_that_cannot_be_written_is_no_fault_of_ours(
    tiny_model: Path, tmp_path: Path
) -> None:
    """A disk that is full says so in the same way as one that takes no large file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(TrainingError, match="check disk space"):
            fit(spec(save_steps=2), base=tiny_model, make_rows=rows, out=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_run_leaves_curves_and_model_but_no_rows(tiny_model: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    result = fit(
        spec(),
        base=tiny_model,
        make_rows=rows,
        out=tmp_path,
        progress=lambda stage, done, total: stages.append(stage),
    )
    assert {path.name for path in tmp_path.iterdir()} <= {
        "model",
        "metrics.jsonl",
        "tensorboard",
        "checkpoints",
    }
    assert (tmp_path / "metrics.jsonl").read_text().count("loss") >= 4
    assert list((tmp_path / "tensorboard").iterdir())
    assert result.steps == 4
    assert result.tokens == 2 * result.rows.tokens
    assert {"rows", "train", "save"} <= set(stages)


@pytest.mark.slow
def test_adapter_is_merged_and_kept(tiny_model: Path, tmp_path: Path) -> None:
    lora = RecipeSpec.model_validate({**spec().model_dump(), "adapter": {"rank": 2, "alpha": 4}})
    result = fit(lora, base=tiny_model, make_rows=rows, out=tmp_path)
    assert (result.model / "adapter" / "adapter_model.safetensors").exists()
    assert set(tensors(result.model)) == set(tensors(tiny_model))


def test_loss_that_is_not_finite_ends_with_an_error(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the loss became .*lower the learning rate"):
        fit(
            spec(learning_rate=1e30, gradient_norm=1e30, warmup_share=0, schedule="constant"),
            base=tiny_model,
            make_rows=rows,
            out=tmp_path,
        )


def test_memory_that_runs_out_leaves_a_checkpoint_that_goes_on_to_the_same_weights(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from trl import SFTTrainer

    whole = fit(spec(), base=tiny_model, make_rows=rows, out=tmp_path / "whole")

    def step(self: Any, *given: Any) -> Any:
        if self.state.global_step == 3:
            raise torch.OutOfMemoryError
        return plain(self, *given)

    plain = SFTTrainer.training_step
    with monkeypatch.context() as patch:
        patch.setattr(SFTTrainer, "training_step", step)
        with pytest.raises(TrainingError, match=r"lower training.batch_size .*/checkpoint-3"):
            fit(spec(), base=tiny_model, make_rows=rows, out=tmp_path / "cut")
    resumed = fit(spec(), base=tiny_model, make_rows=rows, out=tmp_path / "cut", resume=True)
    assert weights(resumed) == weights(whole)


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="it can do it")
def test_four_bits_without_their_library_say_what_to_install(
    tiny_model: Path, tmp_path: Path
) -> None:
    used = RecipeSpec.model_validate({**spec().model_dump(), "adapter": {"four_bit": True}})
    with pytest.raises(
        ConfigurationError, match=r"adapter.four_bit: bitsandbytes is not installed"
    ):
        fit(used, base=tiny_model, make_rows=rows, out=tmp_path)


@pytest.mark.parametrize("recipe", ["sft", "dpo"])
def test_a_model_that_was_trained_holds_no_memory_while_it_is_evaluated(
    recipe: str, tiny_model: Path, tmp_path: Path
) -> None:
    from transformers import PreTrainedModel

    from benchmarks.accelerator import make_rows, spec_of

    gc.collect()
    before = sum(issubclass(type(thing), PreTrainedModel) for thing in gc.get_objects())
    made = make_rows(recipe, 8, 64, 300)
    fit(spec_of(recipe, 8, adapter=False), base=tiny_model, make_rows=lambda _: made, out=tmp_path)
    models = [thing for thing in gc.get_objects() if issubclass(type(thing), PreTrainedModel)]
    assert len(models) == before


def test_several_gpus_of_which_none_could_be_chosen_are_an_error_with_its_remedy(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigurationError, match=r"2 GPUs .* CUDA_VISIBLE_DEVICES"):
        fit(spec(), base=tiny_model, make_rows=rows, out=tmp_path)


def test_base_without_chat_template_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(tiny_model, bare)
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(ConfigurationError, match="no chat template"):
        fit(spec(), base=bare, make_rows=rows, out=tmp_path / "run")


def test_a_base_whose_answers_end_in_no_token_is_refused_before_any_row(
    tiny_model: Path, tmp_path: Path
) -> None:
    base = tmp_path / "endless"
    shutil.copytree(tiny_model, base)
    for path in [base / "chat_template.jinja", base / "tokenizer_config.json"]:
        if path.exists():
            path.write_text(path.read_text().replace("<|im_end|>\n{% endfor", "\n{% endfor"))

    def never(_: Any) -> Rows:
        raise AssertionError("rows were made")

    with pytest.raises(ConfigurationError, match=r"endless.*never learn to stop"):
        fit(spec(), base=base, make_rows=never, out=tmp_path / "run")


def test_a_version_is_stored_in_the_numbers_of_its_base(tiny_model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    base = tmp_path / "half"
    shutil.copytree(tiny_model, base)
    AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).save_pretrained(base)
    adapter = {"rank": 2, "alpha": 4}
    for name, adapted in (("whole", None), ("adapted", adapter)):
        used = merge(shipped_recipe("sft").model_dump(mode="json"), {"spec": {"adapter": adapted}})
        few = {"spec": {"training": {"maximum_steps": 1, "threads": 1}}}
        found = Recipe.model_validate(merge(used, few)).spec
        made = fit(found, base=base, make_rows=rows, out=tmp_path / name)
        assert {tensor.dtype for tensor in tensors(made.model).values()} == {torch.bfloat16}
        size = (made.model / "model.safetensors").stat().st_size
        assert size < 1.1 * (base / "model.safetensors").stat().st_size


def test_a_version_stops_where_it_learned_to(tiny_model: Path, tmp_path: Path) -> None:
    """Of a base whose end of a text is another token than the end of an answer, as Qwen's bases are."""
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    tokenizer = load_tokenizer(base)
    text, answer = tokenizer.pad_token_id, tokenizer.eos_token_id
    for name, field in (("config", "eos_token_id"), ("generation_config", "eos_token_id")):
        path = base / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), field: text}))
    tokenizer.eos_token = tokenizer.pad_token
    tokenizer.save_pretrained(base)
    assert end_tokens(load_model(base), load_tokenizer(base)) == {text, answer}
    made = fit(spec(maximum_steps=1), base=base, make_rows=rows, out=tmp_path / "run")
    stops = json.loads((made.model / "generation_config.json").read_text())["eos_token_id"]
    assert stops == sorted([text, answer])


def test_a_saved_version_knows_how_its_tool_calls_are_read(tmp_path: Path) -> None:
    """Of a base that does not say: served with any program, the version says it itself."""
    base = make_model(tmp_path / "base", tokenizer=tokenizer_of("qwen2_5"))
    made = fit(spec(maximum_steps=1), base=base, make_rows=rows, out=tmp_path / "run")
    config = json.loads((made.model / "tokenizer_config.json").read_text())
    assert "tool_calls" in config["response_template"]["fields"]
