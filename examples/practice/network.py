"""The practice model's forward pass, for :class:`train.generation.Engine`: a small Llama on a CPU.

It feeds all sequences at once, each with a slot of one cache: 1250 tokens per CPU second, where
:class:`train.generation.LanguageModel` makes 370 (48 sequences, one thread). The demo generates for
most of its time. A test holds this forward pass against the library's own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.generation import ChatNetwork, LanguageModel
from train.model_folder import load_tokenizer
from train.runs.rows import Masker

if TYPE_CHECKING:
    from torch import Tensor

SLOTS = 32
"""Sequences that are generated at the same time; more wait."""


def load_network(folder: Path, *, exact: bool = False) -> ChatNetwork[Any]:
    """Return the forward pass below where it covers the model, else the library's own.

    Raises:
        ConfigurationError: there is no such model.
    """
    if _is_plain(_read_config(folder)):
        return PracticeNetwork(folder, exact=exact)
    return LanguageModel(folder)


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence in the cache."""

    number: int
    length: int
    """Tokens in the cache: the place of the one that is fed next."""


class PracticeNetwork:
    """The weights of a Llama folder and the caches of all slots."""

    slots = SLOTS

    def __init__(self, folder: Path, *, exact: bool = False) -> None:
        """Load a model; ``exact`` computes so finely that the other slots change no draw.

        Raises:
            ValueError: the forward pass below does not cover its architecture.
        """
        import torch
        from safetensors.torch import load_file

        config = _read_config(folder)
        kind = torch.float64 if exact else torch.float32
        weights = {name: w.to(kind) for name, w in load_file(folder / "model.safetensors").items()}
        _check(config, folder)
        self.tokenizer = load_tokenizer(folder)
        self.masker = Masker(self.tokenizer)
        self.context_tokens: int = config["max_position_embeddings"]
        self.ends = _end_tokens(config)
        self._heads: int = config["num_attention_heads"]
        self._eps: float = config["rms_norm_eps"]
        self._embed = weights["model.embed_tokens.weight"]
        self._head = weights.get("lm_head.weight", self._embed)
        self._norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, i) for i in range(config["num_hidden_layers"])]
        width = self._embed.shape[1] // self._heads
        self._width = width
        theta = (config.get("rope_parameters") or config)["rope_theta"]
        inverse = float(theta) ** (-torch.arange(0, width, 2).to(kind) / width)
        angles = torch.arange(self.context_tokens).to(kind)[:, None] * inverse
        self._cos = torch.cat((angles.cos(), angles.cos()), -1)
        self._sin = torch.cat((-angles.sin(), angles.sin()), -1)
        shape = (len(self._layers), 2, SLOTS + 1, self._heads, self.context_tokens, width)
        self._cache = torch.zeros(shape, dtype=kind)
        self._remembered: list[int] = []
        """A prompt whose keys and values the slot behind the last holds."""
        self._held: list[Slot] = []

    def begin(self, prompt: Sequence[int]) -> "tuple[Slot, Tensor]":
        """Read a prompt into the next free slot.

        Its beginning, what agents are told and their tools, is taken from a prompt before: 6.3 in place of 13.3 ms.
        """
        import torch

        slot, length, cache = len(self._held), len(prompt), self._cache
        alike = (a == b for a, b in zip(self._remembered, prompt[:-1], strict=False))
        known = sum(takewhile(bool, alike))
        cache[:, :, slot, :, :known] = cache[:, :, SLOTS, :, :known]
        cos, sin = self._cos[known:length], self._sin[known:length]
        seen = torch.ones(length - known, length, dtype=torch.bool).tril(known)
        x = self._embed[torch.tensor(prompt[known:])]
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(x, layer, cos, sin)
            keys, values = cache[index, 0, slot, :, :length], cache[index, 1, slot, :, :length]
            keys[:, known:] = k.transpose(0, 1)
            values[:, known:] = v.transpose(0, 1)
            mixed = torch.nn.functional.scaled_dot_product_attention(
                q.transpose(0, 1)[None], keys[None], values[None], attn_mask=seen
            )
            x = self._finish(x, mixed[0].transpose(0, 1).reshape(len(x), -1), layer)
        logits = self._logits(x[-1])
        if 2 * known < length:
            self._remembered = list(prompt)
            cache[:, :, SLOTS, :, :length] = cache[:, :, slot, :, :length]
        self._held.append(Slot(slot, length))
        return self._held[-1], logits

    def step(self, sequences: Sequence[Slot], tokens: Sequence[int]) -> "list[Tensor]":
        """Feed one token to each slot in use, all at once; return their logits."""
        import torch

        fed = dict(zip((one.number for one in sequences), tokens, strict=True))
        tokens = [fed[number] for number in range(len(self._held))]
        positions = [one.length for one in self._held]
        count, longest = len(tokens), max(positions) + 1
        place = torch.tensor(positions)
        slots = torch.arange(count)
        seen = (torch.arange(longest)[None] <= place[:, None])[:, None, None]
        cos, sin = self._cos[place], self._sin[place]
        x = self._embed[torch.tensor(tokens)]
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(x, layer, cos, sin)
            keys, values = self._cache[index, 0], self._cache[index, 1]
            keys[slots, :, place] = k
            values[slots, :, place] = v
            mixed = torch.nn.functional.scaled_dot_product_attention(
                q[:, :, None],
                keys[:count, :, :longest],
                values[:count, :, :longest],
                attn_mask=seen,
            )
            x = self._finish(x, mixed.reshape(count, -1), layer)
        for one in self._held:
            one.length += 1
        logits = self._logits(x)
        return [logits[one.number] for one in sequences]

    def end(self, sequence: Slot) -> None:
        """Free a slot; the last one moves into it, so that those in use stand together."""
        last = self._held.pop()
        if last is not sequence:
            cache, length = self._cache, last.length
            cache[:, :, sequence.number, :, :length] = cache[:, :, last.number, :, :length]
            last.number = sequence.number
            self._held[last.number] = last

    def _project(
        self, x: "Tensor", layer: dict[str, "Tensor"], cos: "Tensor", sin: "Tensor"
    ) -> tuple["Tensor", "Tensor", "Tensor"]:
        qkv = self._normed(x, layer["before"]) @ layer["qkv"]
        q, k, v = qkv.view(len(x), 3, self._heads, self._width).unbind(1)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def _finish(self, x: "Tensor", mixed: "Tensor", layer: dict[str, "Tensor"]) -> "Tensor":
        import torch

        x = x + mixed @ layer["out"]
        gate, up = (self._normed(x, layer["after"]) @ layer["gate_up"]).chunk(2, -1)
        return x + (torch.nn.functional.silu(gate) * up) @ layer["down"]

    def _normed(self, x: "Tensor", weight: "Tensor") -> "Tensor":
        import torch

        return torch.nn.functional.rms_norm(x, weight.shape, weight, self._eps)

    def _logits(self, x: "Tensor") -> "Tensor":
        return self._normed(x, self._norm) @ self._head.T


def _rotate(x: "Tensor", cos: "Tensor", sin: "Tensor") -> "Tensor":
    half = x.shape[-1] // 2
    return x * cos[:, None] + x.roll(half, -1) * sin[:, None]


def _layer(weights: dict[str, "Tensor"], index: int) -> dict[str, "Tensor"]:
    import torch

    def part(*names: str) -> "Tensor":
        found = [weights[f"model.layers.{index}.{name}.weight"] for name in names]
        return torch.cat(found).T.contiguous()

    return {
        "before": weights[f"model.layers.{index}.input_layernorm.weight"],
        "after": weights[f"model.layers.{index}.post_attention_layernorm.weight"],
        "qkv": part("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": part("self_attn.o_proj"),
        "gate_up": part("mlp.gate_proj", "mlp.up_proj"),
        "down": part("mlp.down_proj"),
    }


def _end_tokens(config: dict[str, Any]) -> frozenset[int]:
    end = config["eos_token_id"]
    return frozenset(end if isinstance(end, list) else [end])


def _read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def _is_plain(config: dict[str, Any]) -> bool:
    return (
        config.get("model_type") == "llama"
        and config["num_key_value_heads"] == config["num_attention_heads"]
        and not config.get("attention_bias")
        and not config.get("mlp_bias")
    )


def _check(config: dict[str, Any], folder: Path) -> None:
    """Refuse what the written-out forward pass does not cover.

    Raises:
        ValueError: another architecture, or shared key-value heads.
    """
    if not _is_plain(config):
        raise ValueError(
            f"{folder}: the practice provider serves plain Llama models only "
            f"(found model_type {config.get('model_type')!r})"
        )
