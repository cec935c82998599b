"""Measures training; the last line is one JSON object.

``tokens_vs_bare_trl``: tokens per second of a run's training against TRL's SFTTrainer alone, same
model, rows and settings, in turns, median of pairs. ``replay_loss_error``: the largest difference
of loss and gradients between ``grpo_replay`` and a direct PyTorch implementation.
``substrate_s, substrate_peak_mib``: building a substrate of so many steps, in a process of its own.
``gains``: what each recipe makes of the practice model on held-out tasks, over seeds, with paired
intervals and what the gate said (``benchmarks/gains.py``; hours for five seeds, kept in ``--work``).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from benchmarks.gains import ROWS, gains, quick_gains
from examples.practice.stage import ROOT


def make_lake(folder: Path, steps: int) -> None:
    """Fill a lake with sessions of two steps."""
    from lakehouse.lake import Lake
    from tests.train.lakes import Session, batch

    lake = Lake.open(str(folder))
    size = 5_000
    for version, start in enumerate(range(0, steps // 2, size)):
        numbers = range(start, min(start + size, steps // 2))
        sessions = [Session(n, reward=float(n % 3 > 0), group=f"g{n // 4}") for n in numbers]
        lake.append(batch(*sessions), app_id="benchmark", version=version)


def build(folder: Path) -> dict[str, float]:
    """Build a substrate over a lake and say how long it took and how much memory."""
    from lakehouse.lake import Lake
    from train.runs.hardware import peak_memory_mib
    from train.substrate.build import build_substrate
    from train.substrate.spec import Substrate

    lake = Lake.open(str(folder / "lake"), create=False)
    document = {
        "apiVersion": "headrace/v1",
        "kind": "Substrate",
        "metadata": {"name": "benchmark"},
        "spec": {"purposes": ["train_sft"], "reward": {"signals": {"success": 1.0}}},
    }
    started = time.monotonic()
    manifest = build_substrate(lake, Substrate.model_validate(document), out=folder / "out")
    seconds = time.monotonic() - started
    return {
        "substrate_s": round(seconds, 2),
        "substrate_peak_mib": round(peak_memory_mib(), 1),
        "substrate_items": len(manifest.item_ids),
    }


def substrate(steps: int) -> dict[str, Any]:
    """Measure :func:`build` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        make_lake(Path(folder) / "lake", steps)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.training", "--build", folder],
            capture_output=True,
            check=True,
            text=True,
        )
    return {"substrate_steps": steps, **json.loads(done.stdout.splitlines()[-1])}


def speed(rows_count: int, pairs: int, folder: Path) -> dict[str, float]:
    """Compare a run's training with TRL's trainer alone."""
    from tests.train.conftest import make_tokenizer
    from train.recipes.settings import shipped_recipe

    model = _model(folder / "base", make_tokenizer())
    spec = shipped_recipe("sft").spec
    training = spec.training.model_copy(
        update={
            "epochs": 1.0,
            "batch_size": 8,
            "group_by_length": False,
            "threads": 1,
            "save_steps": None,
        }
    )
    spec = spec.model_copy(update={"training": training})
    _bare(spec, model, 16, folder / "warm-up")
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(pairs):
        for name in ("ours", "bare") if turn % 2 else ("bare", "ours"):
            run = _ours if name == "ours" else _bare
            rates[name].append(run(spec, model, rows_count, folder / f"{name}-{turn}"))
    ratios = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    return {
        "tokens_vs_bare_trl": round(statistics.median(ratios), 3),
        "tokens_per_second": round(statistics.median(rates["ours"]), 1),
        "bare_tokens_per_second": round(statistics.median(rates["bare"]), 1),
    }


def _model(folder: Path, tokenizer: Any) -> Path:
    """Save a model of about a million parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _rows(tokenizer: Any, count: int) -> Any:
    from train.recipes.base import Rows
    from train.runs.rows import Masker

    columns: dict[str, list[Any]] = {"input_ids": [], "labels": []}
    masker = Masker(tokenizer)
    for number in range(count):
        ask = {"role": "user", "content": f"What do {number} lamps cost? " * (1 + number % 7)}
        answer = {"role": "assistant", "content": f"They cost {2 * number}, all in all."}
        (row,) = masker.mask([ask, answer], [1]).rows
        columns["input_ids"].append(row.input_ids)
        columns["labels"].append(row.labels)
    return Rows(columns, {}, tuple(str(number) for number in range(count)))


def _ours(spec: Any, base: Path, count: int, out: Path) -> float:
    from train.runs.fit import fit

    done = fit(spec, base=base, make_rows=lambda tokenizer: _rows(tokenizer, count), out=out)
    return done.tokens / done.seconds


def _bare(spec: Any, base: Path, count: int, out: Path) -> float:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = _rows(tokenizer, count)
    torch.set_num_threads(1)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base),
        args=SFTConfig(
            output_dir=str(out),
            num_train_epochs=1,
            per_device_train_batch_size=8,
            learning_rate=spec.training.learning_rate,
            max_length=None,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=10,
        ),
        train_dataset=Dataset.from_dict(dict(rows.columns)),
        processing_class=tokenizer,
    )
    started = time.monotonic()
    trainer.train()
    return float(rows.tokens) / (time.monotonic() - started)


def replay(folder: Path) -> dict[str, float]:
    """Compare grpo_replay with a direct implementation on one small batch."""
    from tests.train.conftest import make_model, make_tokenizer
    from tests.train.test_recipes import (
        attempts,
        direct_loss,
        replay_trainer,
        replayed,
        with_tokens,
    )

    tokenizer = make_tokenizer()
    base = make_model(folder / "tiny")
    sessions = [with_tokens(session, tokenizer) for session in attempts(8)]
    used, _, _, rows = replayed(
        tokenizer,
        folder,
        sessions,
        training={"batch_size": 8},
        options={"off_policy_threshold": None},
    )
    trainer, model = replay_trainer(used, rows, base, tokenizer, folder)
    model.train()
    trainer.current_gradient_accumulation_steps = 1
    prompts = [{"prompt": str(place)} for place in (0, 1) for _ in range(4)]
    loss = trainer.compute_loss(model, trainer._generate_and_score_completions(prompts))
    loss.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    direct = direct_loss(model, rows, epsilon=0.2)
    direct.backward()
    errors = [abs(float(loss) - float(direct))]
    errors += [float((found[n] - p.grad).abs().max()) for n, p in model.named_parameters()]
    return {"replay_loss_error": max(errors)}


def main() -> None:
    """Run what was asked for and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of the substrate")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="of gains")
    names = [row.name for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=names, default=names, help="of gains")
    parser.add_argument("--work", type=Path, default=ROOT / ".headrace" / "gains")
    parser.add_argument("--only-gains", action="store_true", help="measure nothing else")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build is not None:
        print(json.dumps(build(options.build)))
        return
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if not options.only_gains:
            results |= costs(options.quick, options.steps, Path(folder))
        if options.quick:
            results["gains"] = quick_gains(Path(folder) / "gains")
        else:
            results["gains"] = gains(options.seeds, options.rows, options.work.absolute())
    print(json.dumps(results))


def costs(quick: bool, steps: int, folder: Path) -> dict[str, Any]:
    """Measure what training costs beside what a bare trainer costs, and its exactness."""
    count, pairs = (64, 1) if quick else (800, 5)
    found: dict[str, Any] = substrate(2_000 if quick else steps)
    return found | replay(folder / "replay") | speed(count, pairs, folder / "speed")


if __name__ == "__main__":
    main()
