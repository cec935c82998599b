"""Chooses the attention implementation with which the transformers library loads a model."""

from pathlib import Path
from typing import Any

from train.recipes.settings import TrainingSettings
from train.runs.offline import LOCAL_DATA
from trajectory.errors import ConfigurationError

FLASH = "flash_attention_2"


def attention_options(training: TrainingSettings, base: Path | None = None) -> dict[str, Any]:
    """Return what a model is loaded with.

    ``auto`` takes flash attention where machine and model (of the folder ``base``) can do it, else
    what the library chooses for the model: PyTorch's own attention, which has a flash kernel too, or
    ``eager`` where a model knows no other.

    Raises:
        ConfigurationError: flash attention was asked for and cannot work here; the text says why.
    """
    if training.attention == "auto":
        able = _obstacle(training) is None and (base is None or _knows_flash(base))
        return {"attn_implementation": FLASH} if able else {}
    if training.attention == FLASH and (obstacle := _obstacle(training)):
        raise ConfigurationError(
            f"training.attention: {FLASH} {obstacle}, or set attention: auto (PyTorch's own attention)"
        )
    return {"attn_implementation": training.attention}


def _obstacle(training: TrainingSettings) -> str | None:
    """Return why flash attention cannot work here, and what to do about it; None when it can."""
    import torch
    from transformers.utils import is_flash_attn_2_available

    if not torch.cuda.is_available():
        return "needs a GPU, and there is none here; run it where one is"
    if training.precision == "float32" or not torch.cuda.is_bf16_supported():
        return "computes in bfloat16 only; set precision: auto on a GPU that has it"
    if not is_flash_attn_2_available():
        return (
            "needs the package flash-attn, which is not installed here; install it beside Headrace "
            "(uv pip install flash-attn --no-build-isolation)"
        )
    return None


def _knows_flash(base: Path) -> bool:
    """Tell whether the library's class for a model folder can attend so."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    try:
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.from_pretrained(base, **LOCAL_DATA))]
    except (OSError, ValueError, KeyError):
        return False  # loading it says what is wrong
    return bool(getattr(model, "_supports_flash_attn", False))
