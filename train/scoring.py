"""Reward models: loads them, and measures how often one prefers the attempt that was rewarded."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from train.intervals import Interval, wilson
from trajectory.errors import ConfigurationError

LOADING = threading.Lock()
"""Held while a model is loaded: transformers patches its own classes meanwhile, and two threads at once
would leave them patched, so that every later model came without its tied weights."""

_BATCH = 16


class Pair(NamedTuple):
    """Two attempts at one task as token ids; the first was rewarded, the second was not."""

    chosen_ids: list[int]
    rejected_ids: list[int]


def load_scoring_model(base: Path, **options: Any) -> Any:
    """Load a model folder as one that gives a sequence one number.

    From a causal model the body is taken and the head is new: random, from the seed that was set.

    Raises:
        ConfigurationError: the folder holds no such model.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    try:
        with LOADING:
            model = AutoModelForSequenceClassification.from_pretrained(
                base, local_files_only=True, dtype=torch.float32, num_labels=1, **options
            )
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{base}: no model can be loaded: {error}") from error
    if model.config.pad_token_id is None:
        raise ConfigurationError(f"{base}: its configuration has no pad_token_id; set one")
    return model


def load_reward_model(folder: Path) -> tuple[Any, Any]:
    """Return a trained reward model and its tokenizer.

    Raises:
        ConfigurationError: the folder holds no reward model.
    """
    from train.fit import load_tokenizer

    tokenizer = load_tokenizer(folder)
    model = load_scoring_model(folder)
    if "SequenceClassification" not in str(model.config.architectures):
        raise ConfigurationError(
            f"{folder}: is no reward model; make one with the recipe reward_model"
        )
    return model.eval(), tokenizer


def agreement(model: Any, pairs: Sequence[Pair], *, confidence: float) -> Interval:
    """Return the share of pairs in which the rewarded attempt scores higher; 0.5 is chance."""
    import torch

    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(pairs), _BATCH):
            part = pairs[start : start + _BATCH]
            chosen = _scores(model, [pair.chosen_ids for pair in part])
            rejected = _scores(model, [pair.rejected_ids for pair in part])
            right += int((chosen > rejected).sum())
    return wilson(right, len(pairs), confidence)


def _scores(model: Any, rows: Sequence[list[int]]) -> Any:
    import torch

    longest = max(map(len, rows))
    pad = model.config.pad_token_id
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    device = next(model.parameters()).device
    return model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits[:, 0]
