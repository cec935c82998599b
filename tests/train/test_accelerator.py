"""The measurement for machines with a GPU, tried in small on the CPU; without a GPU its script says so."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from benchmarks import accelerator
from benchmarks.accelerator import PASSES, SHAPES, main, make_rows, measure

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_recipes_are_measured_with_all_weights_and_with_an_adapter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--parameters", "tiny", "--quick", "--recipes", "sft", "grpo_replay"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["multiply_peak_tflops"] > 0
    assert found["attention"] in ("sdpa", "flash_attention_2")
    for recipe in ("sft", "grpo_replay"):
        for kind in ("full", "lora"):
            figures = found[f"{recipe}_{kind}"]
            assert figures["tokens_per_second"] > 0
            assert figures["peak_memory_mib"] > 0
            assert figures["mfu"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError(), "out of memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no space left"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "no space left"),
    ],
    ids=["memory", "disk", "weights"],
)
def test_a_recipe_that_runs_out_of_memory_or_disk_costs_its_own_row_and_no_run_stays_on_the_disk(
    error: Exception,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trl import SFTTrainer

    def step(*_given: Any) -> Any:
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SFTTrainer, "training_step", step)
    weights: list[int] = []

    def counted(*given: Any, **options: Any) -> dict[str, float]:
        weights.append(len(list(tmp_path.rglob("model.safetensors"))))
        return measure(*given, **options)

    monkeypatch.setattr(accelerator, "measure", counted)
    main(["--parameters", "tiny", "--quick", "--recipes", "sft", "kto"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = {name: figures for line in lines[:-1] for name, figures in line.items()}
    assert rows["sft_full"] == rows["sft_lora"] == {"error": told}
    assert rows["kto_full"]["tokens_per_second"] > 0
    assert {name: lines[-1][name] for name in rows} == rows
    assert weights == [1] * 4, "the base's alone"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", PASSES)
def test_rows_are_as_long_as_they_are_counted(recipe: str) -> None:
    rows = make_rows(recipe, 3, 32, 100)
    assert len(rows) == 3
    if recipe != "grpo_replay":
        sequences = rows.tokens / 3 / 32
        assert sequences == {"dpo": 1.5, "kto": 1.5}.get(recipe, PASSES[recipe][2])


def test_operations_are_those_of_the_textbook() -> None:
    shape = SHAPES["1.5"]
    assert 1.3e9 < shape.matrices < 1.5e9
    full = shape.operations("awr", 2048, adapter=False)
    assert full == pytest.approx(6 * shape.matrices, rel=0.1)
    assert shape.operations("awr", 2048, adapter=True) < 0.7 * full
    head = 6 * shape.hidden * shape.vocabulary
    assert shape.operations("sft", 2048, adapter=False) == full - head / 2, "half is scored"
    assert shape.operations("reward_model", 2048, adapter=False) == full - head, "it has none"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_script_says_so() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(
        [bash, str(SCRIPT)], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no GPU with bfloat16" in done.stderr
