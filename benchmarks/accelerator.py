"""Measures recipes on a model built from its configuration; the last line is one JSON object.

``benchmarks/gpu.sh`` runs it where there is a GPU. For each recipe, with all weights and with LoRA:
tokens per second of training after its first step, peak memory, and ``mfu``, the model's floating-point
operations per second as a share of what a bfloat16 matrix multiplication reached on the same device.
Operations per token: 2 per parameter and forward pass, 4 per parameter and backward pass (2 with LoRA,
whose base needs no gradients of its own), and causal attention; the head counts where it is computed.
Each row is printed as it comes, and nothing but the base stays on the disk meanwhile.
"""

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from train.errors import TrainingError
from train.recipes.base import RowBuilder, Rows
from train.recipes.settings import Recipe, RecipeSpec, shipped_recipe
from train.runs.attention import attention_options
from train.runs.hardware import choose_gpus
from trajectory.documents.document import merge

VOCABULARY = 32_000
PASSES = {
    # forward passes, backward passes, sequences per row
    "sft": (1, 1, 1),
    "awr": (1, 1, 1),
    "reward_model": (1, 1, 2),
    "dpo": (2, 1, 2),
    "kto": (2, 1, 1),
    "grpo_replay": (1, 1, 4),
}
"""What one row costs; dpo and kto ask the base too, and kto's estimate of the KL is not counted."""

_LACKS = ("out of memory", "no space left")
"""What errors say where a machine is too small for a row."""
HEAD_SHARE = {"awr": 1.0, "reward_model": 0.0}
"""Share of the tokens for which the vocabulary's logits are computed; of the others half, the answer."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's size."""

    hidden: int
    inner: int
    layers: int
    heads: int
    vocabulary: int = VOCABULARY

    @property
    def matrices(self) -> int:
        """Parameters that every token is multiplied with."""
        return self.layers * (4 * self.hidden**2 + 3 * self.hidden * self.inner) + (
            self.hidden * self.vocabulary
        )

    def operations(self, recipe: str, length: int, *, adapter: bool) -> float:
        """Return floating-point operations per token of a recipe's rows."""
        forward, backward, _ = PASSES[recipe]
        attention = 2 * self.layers * length * self.hidden
        passes = 2 * forward + (2 if adapter else 4) * backward
        head = self.hidden * self.vocabulary
        used = self.matrices - (1 - HEAD_SHARE.get(recipe, 0.5)) * head
        return passes * used + (forward + 2 * backward) * attention


SHAPES = {
    "tiny": Shape(64, 128, 2, 2, vocabulary=512),
    "0.5": Shape(1024, 4096, 24, 16),
    "1.5": Shape(2048, 5632, 26, 16),
}


def save_model(shape: Shape, folder: Path, length: int) -> Path:
    """Save a model of random weights with a small tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.train.conftest import make_tokenizer

    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=max(512, length),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_rows(recipe: str, count: int, length: int, vocabulary: int) -> Rows:
    """Return rows of random tokens, all of one length: half prompt, half answer."""
    from train.recipes.grpo_replay import Attempt

    draw = random.Random(0)  # noqa: S311 - reproducible, not secret
    half = length // 2

    def ids(number: int) -> list[int]:
        return [draw.randrange(3, vocabulary) for _ in range(number)]

    def attempt() -> Attempt:
        return Attempt(ids(half), ids(half), [-9.0] * half, [1] * half, [])

    makers: dict[str, Any] = {
        "sft": lambda: _labelled(ids(length), half),
        "awr": lambda: {**_labelled(ids(length), half), "weight": 1.0},
        "reward_model": lambda: {"chosen_ids": ids(length), "rejected_ids": ids(length)},
        "dpo": lambda: {
            "prompt_ids": ids(half),
            "chosen_ids": ids(half),
            "rejected_ids": ids(half),
        },
        "kto": lambda: {
            "prompt_ids": ids(half),
            "completion_ids": ids(half),
            "KL_completion_ids": ids(half),
            "label": draw.random() < 0.5,
        },
        "grpo_replay": lambda: {
            "attempts": [attempt() for _ in range(4)],
            "rewards": [1.0, 0.0, 1.0, 0.0],
            "all_ids": [],
        },
    }
    made = [makers[recipe]() for _ in range(count)]
    if recipe == "grpo_replay":
        made = [{**row, "prompt": str(place)} for place, row in enumerate(made)]
    builder = RowBuilder(*made[0])
    for place, row in enumerate(made):
        builder.add(str(place), **row)
    return builder.build()


def _labelled(ids: list[int], half: int) -> dict[str, list[int]]:
    return {"input_ids": ids, "labels": [-100] * half + ids[half:]}


def multiply_peak(size: int, seconds: float = 2.0) -> float:
    """Return operations per second of a bfloat16 matrix multiplication on this device."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def run(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            torch.matmul(left, right)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    run(3)
    times = max(3, int(seconds / max(run(3) / 3, 1e-6)))
    return 2.0 * size**3 * times / run(times)


def spec_of(recipe: str, batch: int, *, adapter: bool) -> RecipeSpec:
    """Return the shipped recipe with the measurement's batch."""
    training: dict[str, Any] = {
        "epochs": 1,
        "batch_size": batch,
        "save_steps": None,
        "reporters": [],
        "precision": "auto",
        "group_by_length": False,
    }
    changes: dict[str, Any] = {"training": training}
    if adapter:
        changes["adapter"] = {"rank": 16, "alpha": 32}
    document = merge(shipped_recipe(recipe).model_dump(mode="json"), {"spec": changes})
    return Recipe.model_validate(document).spec


def measure(
    recipe: str, shape: Shape, base: Path, out: Path, *, adapter: bool, steps: int, length: int
) -> dict[str, float]:
    """Train by one recipe and return its figures, without the share of the peak."""
    import torch

    from train.runs.fit import fit

    rows_per_step = 2 if recipe == "grpo_replay" else 8
    batch = rows_per_step * 4 if recipe == "grpo_replay" else rows_per_step
    rows = make_rows(recipe, rows_per_step * steps, length, shape.vocabulary)
    ends: list[float] = []

    def note(stage: str, _done: int, _total: int | None) -> None:
        if stage == "train":
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    done = fit(
        spec_of(recipe, batch, adapter=adapter),
        base=base,
        make_rows=lambda _: rows,
        out=out,
        progress=note,
    )
    # The first step compiles kernels and finds room; it tells nothing of the others.
    tokens = len(rows) * PASSES[recipe][2] * length * (len(ends) - 1) / len(ends)
    per_second = tokens / (ends[-1] - ends[0])
    return {
        "tokens_per_second": _in_three_digits(per_second),
        "peak_memory_mib": round(done.peak_memory_mib, 1),
        "operations_per_second": per_second * shape.operations(recipe, length, adapter=adapter),
    }


def _in_three_digits(figure: float) -> float:
    """Return a figure with three digits that count: a slow processor's is not nothing."""
    return float(f"{figure:.3g}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print it."""
    choose_gpus(1)
    import torch
    from safetensors import SafetensorError

    from train.runs.fit import release_memory

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--parameters", choices=SHAPES, help="billions; by default 0.5 with a GPU, else tiny"
    )
    parser.add_argument("--recipes", nargs="+", choices=PASSES, default=list(PASSES))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--length", type=int, default=2048, help="tokens of a row")
    parser.add_argument("--quick", action="store_true", help="two steps of short rows")
    options = parser.parse_args(arguments)
    steps, length = (2, 64) if options.quick else (options.steps, options.length)
    gpu = torch.cuda.is_available()
    shape = SHAPES[options.parameters or ("0.5" if gpu else "tiny")]
    peak = multiply_peak(8192 if gpu else 256, 2.0 if gpu else 0.2)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "parameters": shape.matrices,
        "multiply_peak_tflops": _in_three_digits(peak / 1e12),
        "attention": attention_options(spec_of("sft", 1, adapter=False).training).get(
            "attn_implementation", "sdpa"
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        base = save_model(shape, Path(folder) / "base", length)
        for recipe in options.recipes:
            for adapter in (False, True):
                name = f"{recipe}_{'lora' if adapter else 'full'}"
                out = Path(folder) / name
                try:
                    figures: dict[str, Any] = measure(
                        recipe, shape, base, out, adapter=adapter, steps=steps, length=length
                    )
                    operations = figures.pop("operations_per_second")
                    found[name] = {**figures, "mfu": _in_three_digits(operations / peak)}
                except (torch.OutOfMemoryError, TrainingError, OSError, SafetensorError) as error:
                    said = next((words for words in _LACKS if words in str(error).lower()), None)
                    if said is None:
                        raise
                    found[name] = {"error": said}
                release_memory()
                shutil.rmtree(out, ignore_errors=True)
                print(json.dumps({name: found[name]}), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
