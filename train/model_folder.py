"""Loads what a model's folder holds: settings, tokenizer and weights, never code."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from train.chat_template import ChatTemplate
from train.runs.offline import LOCAL_DATA, require_safe_weights
from trajectory.errors import ConfigurationError

_LOCK = threading.Lock()
"""Held while a model is loaded, because transformers patches its own classes meanwhile. Two threads at once would
leave them patched, and every later model would lack its tied weights."""


def load_tokenizer(base: Path) -> Any:
    """Load the tokenizer of a model folder; it needs a chat template.

    If it does not say how to read back its template's tool calls, a known template's way is filled in. Training,
    judging and serving then read a model's calls alike.

    Raises:
        ConfigurationError: the folder has no tokenizer or no chat template.
    """
    from transformers import AutoTokenizer

    if not base.is_dir():
        raise ConfigurationError(f"{base}: no such model folder; give a folder with config.json")
    try:
        tokenizer = AutoTokenizer.from_pretrained(base, **LOCAL_DATA)
    except Exception as error:  # a stranger's files: the libraries raise what they like
        raise _unloadable(base, "tokenizer", error) from error
    if not tokenizer.chat_template:
        raise ConfigurationError(
            f"{base}: the tokenizer has no chat template; save one with it, "
            "or nobody can know how to show a conversation to the model"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if getattr(tokenizer, "response_template", None) is None:
        from trl.chat_template_utils import add_response_schema

        with suppress(ValueError):  # nobody knows how its template's tool calls are read
            add_response_schema(tokenizer)
    return tokenizer


def load_model(base: Path, **options: Any) -> Any:
    """Load the causal language model of a folder, in float32 on the CPU unless options say otherwise.

    Raises:
        ConfigurationError: the folder holds no such model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    require_safe_weights(base)
    try:
        with _LOCK:
            return AutoModelForCausalLM.from_pretrained(
                base, **LOCAL_DATA, use_safetensors=True, dtype=torch.float32, **options
            )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a stranger's files: the libraries raise what they like
        raise _unloadable(base, "model", error) from error


def load_scoring_model(base: Path, **options: Any) -> Any:
    """Load a model folder as one that gives a sequence one number.

    From a causal model the body is taken and the head is new: random, from the seed that was set.

    Raises:
        ConfigurationError: the folder holds no such model.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    require_safe_weights(base)
    try:
        with _LOCK:
            model = AutoModelForSequenceClassification.from_pretrained(
                base,
                **LOCAL_DATA,
                use_safetensors=True,
                dtype=torch.float32,
                num_labels=1,
                **options,
            )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a stranger's files: the libraries raise what they like
        raise _unloadable(base, "model", error) from error
    if model.config.pad_token_id is None:
        # Many bases name it in their tokenizer alone; the head finds the last token by it.
        model.config.pad_token_id = load_tokenizer(base).pad_token_id
    return model


def require_loadable(base: Path) -> None:
    """Refuse a model folder whose settings, tokenizer or weights cannot be read; no weights are loaded.

    Raises:
        ConfigurationError: naming what cannot be read.
        OSError: there is no such folder.
    """
    base.stat()
    from safetensors import safe_open
    from transformers import AutoConfig

    load_tokenizer(base)
    require_safe_weights(base)
    for weights in sorted(base.glob("*.safetensors")):
        try:
            with safe_open(weights, framework="numpy") as opened:
                opened.keys()
        except Exception as error:
            raise _unloadable(weights, "weights", error) from error
    try:
        AutoConfig.from_pretrained(base, **LOCAL_DATA)
    except Exception as error:
        raise _unloadable(base, "model", error) from error


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens after which a model has said what it says: of a text, and of an answer."""
    named = getattr(model.generation_config, "eos_token_id", None)
    answer = ChatTemplate(tokenizer).end_token
    ends = [*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id]
    ends += [] if answer is None else [tokenizer.convert_tokens_to_ids(answer)]
    return frozenset(end for end in ends if end is not None)


def stored_dtype(base: Path) -> Any:
    """Return in what numbers a base is stored; what is made of it is stored alike, not twice as large."""
    import torch
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(base, **LOCAL_DATA).dtype or torch.float32


def _unloadable(place: Path, what: str, error: Exception) -> ConfigurationError:
    said = str(error) or type(error).__name__
    return ConfigurationError(f"{place}: no {what} can be loaded: {said}")
