"""Generation for a small Llama on a CPU: one thread, continuous micro-batches, a cache per slot.

The forward pass is written out here because a framework's per-layer overhead is larger than the
arithmetic of a model this small; a test holds it against the framework's own forward pass.
"""

import json
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SLOTS = 32
"""Sequences that are generated at the same time; more wait."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 128
    seed: int | None = None
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token."""

    id: int
    logprob: float
    """Natural log of its probability before temperature and top-p."""
    top: tuple[tuple[int, float], ...] = ()
    last: str | None = None
    """Why generation ended with this token: ``stop`` (end of turn) or ``length``."""


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence being generated; the engine's thread alone changes it."""

    prompt: Sequence[int] = field(repr=False)
    sampling: Sampling
    emit: Callable[[Token], None]
    cancelled: bool = False
    draw: random.Random = field(default_factory=random.Random)
    made: int = 0
    position: int = 0
    """Place of the token that is fed next."""
    token: int = 0


class EngineStoppedError(RuntimeError):
    """The engine was told to stop; another version has taken its place."""


class Engine:
    """Serves one model folder. Start it before use; ``stop`` ends its thread when all is done."""

    def __init__(self, folder: Path, *, exact: bool = False) -> None:
        """Load a model; ``exact`` computes so finely that the other slots change no draw."""
        self._net = _Net(folder, exact=exact)
        self._waiting: queue.SimpleQueue[Generation | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name=f"engine-{folder.name}", daemon=True
        )
        self._stopped = False
        self._door = threading.Lock()
        self.cpu_seconds = 0.0
        self.generated = 0

    @property
    def context_tokens(self) -> int:
        """Longest sequence, prompt and answer together."""
        return self._net.positions

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End after what is under way; does not wait."""
        with self._door:
            self._stopped = True
            self._waiting.put(None)

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, emit: Callable[[Token], None]
    ) -> Generation:
        """Queue one sequence; ``emit`` is called from the engine's thread with each token.

        Raises:
            ValueError: prompt and answer do not fit into the model's context.
            EngineStoppedError: the engine takes no more.
        """
        if len(prompt) + sampling.max_tokens > self.context_tokens:
            raise ValueError(
                f"prompt ({len(prompt)} tokens) and max_tokens ({sampling.max_tokens}) exceed the "
                f"context of {self.context_tokens} tokens"
            )
        generation = Generation(prompt, sampling, emit)
        generation.draw.seed(sampling.seed)
        with self._door:
            if self._stopped:
                raise EngineStoppedError
            self._waiting.put(generation)
        return generation

    def _serve(self) -> None:
        import torch

        active: list[Generation] = []
        open_for_more = True
        with torch.inference_mode():
            while open_for_more or active:
                open_for_more = self._admit(active) and open_for_more
                begun = time.thread_time()
                if active:
                    self._step(active)
                self.cpu_seconds += time.thread_time() - begun

    def _admit(self, active: list[Generation]) -> bool:
        """Take waiting sequences into free slots; block when there is nothing else to do."""
        while len(active) < SLOTS:
            if active and self._waiting.empty():
                return True
            generation = self._waiting.get()
            if generation is None:
                return False
            begun = time.thread_time()
            logits = self._net.prefill(generation.prompt, slot=len(active))
            generation.position = len(generation.prompt)
            active.append(generation)
            if self._give(generation, logits):
                active.pop()
            self.cpu_seconds += time.thread_time() - begun
        return True

    def _step(self, active: list[Generation]) -> None:
        """Make one token for every active sequence and close the gaps of those that ended."""
        logits = self._net.decode([g.token for g in active], [g.position for g in active])
        ended: list[int] = []
        for slot, generation in enumerate(active):
            generation.position += 1
            if self._give(generation, logits[slot]):
                ended.append(slot)
        for slot in reversed(ended):
            last = len(active) - 1
            if slot != last:
                self._net.move(last, slot, active[last].position)
                active[slot] = active[last]
            active.pop()

    def _give(self, generation: Generation, logits: "Tensor") -> bool:
        """Sample and hand over one token; True when the sequence is done."""
        if generation.cancelled:
            return True
        token_id, logprob, top = _sample(logits, generation.sampling, generation.draw)
        generation.made += 1
        generation.token = token_id
        self.generated += 1
        last = None
        if token_id in self._net.ends:
            last = "stop"
        elif generation.made >= generation.sampling.max_tokens:
            last = "length"
        generation.emit(Token(token_id, logprob, top, last))
        return last is not None


def _sample(
    logits: "Tensor", sampling: Sampling, draw: random.Random
) -> tuple[int, float, tuple[tuple[int, float], ...]]:
    logprobs = logits.log_softmax(-1)
    if sampling.temperature <= 0:
        token = int(logits.argmax())
    else:
        probabilities, order = (logits / sampling.temperature).softmax(-1).sort(descending=True)
        cumulated = probabilities.cumsum(-1)
        kept = int((cumulated < sampling.top_p).sum()) + 1
        kept = min(kept, len(cumulated))
        mark = draw.random() * float(cumulated[kept - 1])
        place = min(int((cumulated < mark).sum()), kept - 1)
        token = int(order[place])
    top: tuple[tuple[int, float], ...] = ()
    if sampling.top_logprobs:
        values, ids = logprobs.topk(sampling.top_logprobs)
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return token, float(logprobs[token]), top


class _Net:
    """The weights of a Llama folder and the caches of all slots."""

    def __init__(self, folder: Path, *, exact: bool) -> None:
        import torch
        from safetensors.torch import load_file

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = torch.float64 if exact else torch.float32
        weights = {name: w.to(kind) for name, w in load_file(folder / "model.safetensors").items()}
        _check(config, folder)
        self.positions: int = config["max_position_embeddings"]
        self.ends = _end_tokens(config)
        self._heads: int = config["num_attention_heads"]
        self._eps: float = config["rms_norm_eps"]
        self._embed = weights["model.embed_tokens.weight"]
        self._head = weights.get("lm_head.weight", self._embed)
        self._norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, i) for i in range(config["num_hidden_layers"])]
        width = self._embed.shape[1] // self._heads
        self._width = width
        theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta")
        inverse = float(theta) ** (-torch.arange(0, width, 2).to(kind) / width)
        angles = torch.arange(self.positions).to(kind)[:, None] * inverse
        self._cos = torch.cat((angles.cos(), angles.cos()), -1)
        self._sin = torch.cat((-angles.sin(), angles.sin()), -1)
        shape = (len(self._layers), 2, SLOTS, self._heads, self.positions, width)
        self._cache = torch.zeros(shape, dtype=kind)

    def prefill(self, prompt: Sequence[int], *, slot: int) -> "Tensor":
        """Read a prompt into a slot's cache; return the logits of the next token."""
        import torch

        length = len(prompt)
        cos, sin = self._cos[:length], self._sin[:length]
        x = self._embed[torch.tensor(prompt)]
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(x, layer, cos, sin)
            self._cache[index, 0, slot, :, :length] = k.transpose(0, 1)
            self._cache[index, 1, slot, :, :length] = v.transpose(0, 1)
            mixed = torch.nn.functional.scaled_dot_product_attention(
                q.transpose(0, 1)[None],
                k.transpose(0, 1)[None],
                v.transpose(0, 1)[None],
                is_causal=True,
            )
            x = self._finish(x, mixed[0].transpose(0, 1).reshape(length, -1), layer)
        return self._logits(x[-1])

    def decode(self, tokens: Sequence[int], positions: Sequence[int]) -> "Tensor":
        """Feed one token to each of the first ``len(tokens)`` slots; return their logits."""
        import torch

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
        return self._logits(x)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the cache of one slot to another."""
        self._cache[:, :, target, :, :length] = self._cache[:, :, source, :, :length]

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


def _check(config: dict[str, Any], folder: Path) -> None:
    """Refuse what the written-out forward pass does not cover.

    Raises:
        ValueError: another architecture, or shared key-value heads.
    """
    plain = (
        config.get("model_type") == "llama"
        and config["num_key_value_heads"] == config["num_attention_heads"]
        and not config.get("attention_bias")
        and not config.get("mlp_bias")
    )
    if not plain:
        raise ValueError(
            f"{folder}: the practice provider serves plain Llama models only "
            f"(found model_type {config.get('model_type')!r})"
        )
