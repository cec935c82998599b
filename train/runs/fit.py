"""Runs a recipe's trainer on rows and saves the model: the only place that starts training."""

import gc
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from train.chat_template import ChatTemplate
from train.errors import TrainingError
from train.model_folder import (
    end_tokens,
    load_model,
    load_scoring_model,
    load_tokenizer,
    stored_dtype,
)
from train.recipes import recipe_module, steps_per_epoch
from train.recipes.base import Rows, TrainerParts
from train.recipes.settings import RecipeSpec, TrainingSettings
from train.runs.attention import attention_options
from train.runs.curves import SECONDS, forget_after, metrics_callback, read_metrics
from train.runs.hardware import peak_memory_mib
from train.runs.language_head import score_labels_alone
from train.runs.launch import Order, launch, scratch
from train.runs.offline import quiet_libraries
from train.runs.reporters import reporter_variables, require_reporters
from train.substrate.source import Progress, silent
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, make_folders, replace_file, sync_files, sync_folder

_WHOLE = "whole"
"""The file in a checkpoint that says so."""

type RowMaker = Callable[[Any], Rows]
"""Makes rows with a tokenizer."""


@dataclass(frozen=True, slots=True)
class FitMeasurements:
    """Measurements of the trainer."""

    steps: int
    seconds: float
    """Of training alone, without loading and saving; with what it took before an interruption."""
    tokens: int
    """Tokens of all rows that were learned, repeated epochs included; generated ones where the
    model made its rows itself."""
    final_loss: float | None
    peak_memory_mib: float
    device: str
    parameters: int


@dataclass(frozen=True, slots=True)
class FitResult(FitMeasurements):
    """Result of training."""

    model: Path
    """Folder with weights (or adapter merged into them) and tokenizer."""
    rows: Rows


def fit(
    spec: RecipeSpec,
    *,
    base: Path,
    make_rows: RowMaker,
    out: Path,
    resume: bool = False,
    progress: Progress = silent,
) -> FitResult:
    """Train ``base`` by a recipe and save the result to ``out/model``.

    Promises: seeds are set before anything is drawn, so the same rows, settings and machine give
    the same weights on a CPU; caches stay in ``out/scratch`` and are deleted; curves are
    appended to ``out/metrics.jsonl``.

    Raises:
        ConfigurationError: the base model cannot be loaded, its chat template ends no turn, or what the
            settings ask for is not installed; said before any row is made.
        TrainingError: the loss became NaN or memory ran out; the last checkpoint is named.
    """
    require_reporters(spec.training.reporters)
    attention_options(spec.training)
    make_folders(out)
    variables = reporter_variables(spec.training.reporters, out)
    with quiet_libraries(scratch(out), **variables):
        prepare(spec.training)
        tokenizer = load_tokenizer(base)
        if not ChatTemplate(tokenizer).ends_turns:
            raise ConfigurationError(
                f"{base}: its chat template ends an answer with no token of its own, so the model would "
                "never learn to stop; save its tokenizer with a template whose answers end in a special "
                "token, such as its eos_token"
            )
        progress("rows", 0, None)
        rows = make_rows(tokenizer)
        if spec.launch is not None:
            progress("train", 0, None)
            measured = FitMeasurements(**launch(Order(spec, base, out, resume, rows)))
        else:
            measured = train_rows(
                spec, base, tokenizer, rows, out, resume=resume, progress=progress
            )
            release_memory()
        return FitResult(**asdict(measured), model=out / "model", rows=rows)


def prepare(training: TrainingSettings) -> None:
    """Set seeds and threads, before anything is drawn."""
    import torch
    from transformers import set_seed
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    set_seed(training.seed)
    if training.threads is not None:
        torch.set_num_threads(training.threads)


def train_rows(
    spec: RecipeSpec,
    base: Path,
    tokenizer: Any,
    rows: Rows,
    out: Path,
    *,
    resume: bool,
    progress: Progress = silent,
) -> FitMeasurements:
    """Train in this process (one of several, when it was launched so) and save to ``out/model``.

    Raises:
        ConfigurationError: the base model cannot be loaded.
        TrainingError: the loss became NaN or memory ran out; the last checkpoint is named.
    """
    from transformers import PrinterCallback

    score_labels_alone()
    model = load_base_model(spec, base)
    metrics = out / "metrics.jsonl"
    if int(os.environ.get("RANK", "0")) == 0:
        last = _checkpoint(out) if resume else None
        forget_after(metrics, 0 if last is None else _step_of(last))
    spent = max((record.get(SECONDS, 0.0) for record in read_metrics(metrics)), default=0.0)
    trainer = recipe_module(spec.recipe).trainer(
        TrainerParts(
            spec=spec,
            model=model,
            tokenizer=tokenizer,
            base=base,
            rows=rows,
            arguments=training_arguments(spec, len(rows), out),
            callbacks=[metrics_callback(metrics, progress, spent=spent), _checkpoint_callback()],
            adapter=_adapter(spec),
        )
    )
    # The trainer's own printer writes every record to standard output.
    trainer.remove_callback(PrinterCallback)
    started = time.monotonic()
    _run(trainer, out, resume=resume)
    seconds = spent + time.monotonic() - started
    losses = [record["loss"] for record in read_metrics(metrics) if "loss" in record]
    if losses and not math.isfinite(losses[-1]):
        raise TrainingError(f"the loss became {losses[-1]}: lower the learning rate{_hint(out)}")
    progress("save", 0, None)
    device = str(trainer.accelerator.device)
    if trainer.accelerator.is_main_process:
        _save(trainer, tokenizer, out / "model", spec, base)
    return FitMeasurements(
        steps=int(trainer.state.global_step),
        seconds=seconds,
        tokens=_tokens(rows, trainer),
        final_loss=losses[-1] if losses else None,
        peak_memory_mib=_peak_memory(device),
        device=device,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def release_memory() -> None:
    """Give back what model and optimizer held, before an evaluator looks for room on the same GPU."""
    import torch

    gc.collect()  # trainer, model and optimizer name each other
    torch.cuda.empty_cache()


def _tokens(rows: Rows, trainer: Any) -> int:
    learned = rows.tokens * float(trainer.state.epoch or 0)
    return round(learned) or int(trainer.state.num_input_tokens_seen)


def load_base_model(spec: RecipeSpec, base: Path) -> Any:
    """Load the weights that a run starts from, as its recipe wants them."""
    four_bit = spec.adapter is not None and spec.adapter.four_bit
    attention = attention_options(spec.training, base)
    if recipe_module(spec.recipe).makes == "reward_model":
        if four_bit:
            raise ConfigurationError("adapter.four_bit: a reward model learns in full precision")
        return load_scoring_model(base, **attention)
    return load_model(base, **attention, **(_four_bits() if four_bit else {}))


def _four_bits() -> dict[str, Any]:
    """Return how a base is loaded for QLoRA (Dettmers et al., arXiv 2305.14314).

    Raises:
        ConfigurationError: this machine cannot do it.
    """
    import torch

    if find_spec("bitsandbytes") is None:
        raise ConfigurationError(
            "adapter.four_bit: bitsandbytes is not installed here; install it beside Headrace "
            "(pip install bitsandbytes), or set four_bit: false"
        )
    if not torch.cuda.is_available():
        raise ConfigurationError(
            "adapter.four_bit: there is no GPU here; set four_bit: false (LoRA in full precision)"
        )
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    device = int(os.environ.get("LOCAL_RANK", "0"))
    return {"quantization_config": quantization, "device_map": {"": device}}


def training_arguments(spec: RecipeSpec, rows: int, out: Path) -> dict[str, Any]:
    """Return the arguments that all of TRL's configurations share."""
    import torch

    training = spec.training
    gpu = torch.cuda.is_available()
    if spec.launch is None and (count := torch.cuda.device_count()) > 1:
        raise ConfigurationError(
            f"{count} GPUs are visible, one process trains on one, and which is freest nobody tells "
            "(nvidia-smi); set CUDA_VISIBLE_DEVICES to one of them, or launch: {processes: "
            f"{count}}} in the recipe"
        )
    bfloat16 = gpu and torch.cuda.is_bf16_supported()
    if training.precision == "bfloat16" and not bfloat16:
        raise ConfigurationError(
            "training.precision: bfloat16 needs a GPU that has it; use auto or float32"
        )
    steps = training.maximum_steps or math.ceil(steps_per_epoch(spec, rows) * training.epochs)
    return {
        "output_dir": str(out / "checkpoints"),
        "num_train_epochs": training.epochs,
        "max_steps": training.maximum_steps or -1,
        "per_device_train_batch_size": training.batch_size,
        "gradient_accumulation_steps": training.accumulation,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.schedule,
        "warmup_steps": math.floor(training.warmup_share * steps),
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.gradient_norm,
        "adam_beta1": training.adam_betas[0],
        "adam_beta2": training.adam_betas[1],
        "gradient_checkpointing": training.gradient_checkpointing,
        "seed": training.seed,
        "data_seed": training.seed,
        "use_cpu": not gpu,
        "bf16": bfloat16 and training.precision != "float32",
        "logging_steps": training.log_steps,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "report_to": list(training.reporters),
        "run_name": out.name,
        "project": "headrace",
        "save_strategy": "no" if training.save_steps is None else "steps",
        "save_steps": training.save_steps or 500,
        "save_total_limit": 2,
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": gpu,
    }


def _adapter(spec: RecipeSpec) -> Any:
    settings = spec.adapter
    if settings is None:
        return None
    from peft import LoraConfig

    scores = recipe_module(spec.recipe).makes == "reward_model"
    targets = settings.targets
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="SEQ_CLS" if scores else "CAUSAL_LM",
    )


def _run(trainer: Any, out: Path, *, resume: bool) -> None:
    import torch
    from safetensors import SafetensorError

    last = _checkpoint(out) if resume else None
    try:
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"a file could not be read or written ({error}): check disk space and permissions"
            f"{_hint(out)}"
        ) from error
    except torch.OutOfMemoryError as error:
        _save_what_was_learned(trainer)
        raise TrainingError(
            "out of memory: lower training.batch_size (raise accumulation), "
            f"set gradient_checkpointing, or use an adapter{_hint(out)}"
        ) from error


def _save_what_was_learned(trainer: Any) -> None:
    """Write a checkpoint of the last whole step; of several processes only the periodic ones count."""
    import torch

    checkpoint = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
    if trainer.accelerator.num_processes > 1 or not trainer.state.global_step:
        return
    if not _is_whole(checkpoint):
        trainer.model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        trainer._save_checkpoint(trainer.model, trial=None)
        _mark_whole(checkpoint)


def _checkpoint_callback() -> Any:
    """Return a trainer callback that marks each checkpoint once all of it is on the disk."""
    import torch
    from transformers import TrainerCallback

    class CheckpointCallback(TrainerCallback):  # type: ignore[misc]
        """Waits for the disk, and for the processes that write parts of the checkpoint."""

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.barrier()
            if state.is_world_process_zero:
                _mark_whole(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return CheckpointCallback()


def _mark_whole(checkpoint: Path) -> None:
    sync_files(path for path in checkpoint.rglob("*") if path.is_file())
    replace_file(checkpoint / _WHOLE, b"", READABLE)
    for folder in (checkpoint.parent, checkpoint.parent.parent):
        sync_folder(folder)


def _checkpoint(out: Path) -> Path | None:
    """Return the last whole checkpoint; a kill, a full disk or a power cut may have left part of a later one."""
    found = (path for path in (out / "checkpoints").glob("checkpoint-*") if _is_whole(path))
    return max(found, key=_step_of, default=None)


def _is_whole(checkpoint: Path) -> bool:
    return (checkpoint / _WHOLE).is_file()


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _hint(out: Path) -> str:
    last = _checkpoint(out)
    return (
        "; no checkpoint was written (training.save_steps)"
        if last is None
        else f"; last checkpoint: {last}"
    )


def _save(trainer: Any, tokenizer: Any, folder: Path, spec: RecipeSpec, base: Path) -> None:
    """Save weights as safetensors with the tokenizer; an adapter is kept beside the merged model."""
    if folder.exists():
        shutil.rmtree(folder)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if spec.adapter is not None:
        model.save_pretrained(folder / "adapter")
        if spec.adapter.four_bit:
            from peft import PeftModel

            # Merged into the base as it is, not into what four bits left of it.
            model = PeftModel.from_pretrained(load_model(base), folder / "adapter")
        model = model.merge_and_unload()
    model.to(stored_dtype(base))
    if recipe_module(spec.recipe).makes == "policy":
        # Whoever serves it stops where it learned to; the base may know only where a text ends.
        model.generation_config.eos_token_id = sorted(end_tokens(model, tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _peak_memory(device: str) -> float:
    import torch

    if device.startswith("cuda"):
        return float(torch.cuda.max_memory_allocated()) / 2**20
    return peak_memory_mib()
