"""Makes the practice model: a one-million-parameter Llama trained here from random weights.

``python -m examples.practice.model --folder DIR [--seed N]`` prints the model's folder. It is made
once per code, libraries and seed, and found again by their hash.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.practice.demonstrations import Demonstration, demonstrate, redacted
from examples.practice.planted_values import generator
from examples.practice.prompts import SYSTEM_PROMPT, TOOL
from examples.practice.shop import PRICE_LISTS
from examples.practice.tasks import make_task
from examples.practice.tokenizer import END, PAD, render, train_tokenizer
from examples.practice.tools import BUSY, error_text

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

STEPS = 420
PLAIN_STEPS = 100
"""First steps see the bare order only: the model learns the format before it learns to look."""
BATCH = 16
POOL = 8
VECTOR_RATE = 3e-3
CHOICE_WEIGHT = 3
"""How much more the one token counts that names the price list: the only one to think about."""
WARM_UP, COOL_DOWN = 20, 0.5

_SOURCES = (
    "model",
    "muon",
    "demonstrations",
    "tokenizer",
    "tasks",
    "planted_values",
    "prompts",
    "shop",
    "names",
    "tools",
)
_LIBRARIES = ("torch", "transformers", "tokenizers")

type Row = tuple[list[int], list[int]]
"""Token ids and labels."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Some steps of a lesson, on rows of one kind."""

    steps: int
    """The last phase lasts until the end, whatever it says."""
    row: "Callable[[PreTrainedTokenizerFast, int, int], Row]"
    """Takes seed and index."""
    pool: int = POOL
    """Batches that are drawn together and sorted by length, so that little is padded."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a model is made to know before any agent works with it."""

    name: str
    phases: tuple[Phase, ...]
    texts: Callable[[], Iterable[str]]
    """What the vocabulary is learnt from."""
    sources: tuple[str, ...] = ()
    """Modules that it is made of, beside those of the base model."""
    width: int = 128
    layers: int = 4
    heads: int = 4
    matrix_rate: float = 0.02

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(phase.steps for phase in self.phases)


@dataclass(frozen=True, slots=True)
class Batch:
    """Conversations whose system turns begin alike: often that is more than half of their tokens."""

    beginning: "Tensor"
    """The token ids that all have in common, as a batch of one."""
    ids: "Tensor"
    """What follows it in each conversation, padded on the right."""
    labels: "Tensor"


def ensure_model(
    folder: Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    progress: bool = False,
    lesson: Lesson | None = None,
) -> Path:
    """Return the model's folder below ``folder``, making it when it is not there.

    Args:
        folder: of models that were made before.
        seed: of the weights and of what is demonstrated.
        steps: instead of the lesson's own number.
        progress: tell on standard error how far it is.
        lesson: what it learns; by default that of the base model.
    """
    lesson = lesson or BASE
    steps = lesson.steps if steps is None else steps
    target = folder / f"{lesson.name}-{_fingerprint(lesson, seed, steps)}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        tokenizer = train_tokenizer(lesson.texts())
        tokenizer.save_pretrained(scratch)
        model = pretrain(tokenizer, lesson, seed=seed, steps=steps, progress=progress)
        model.save_pretrained(scratch)
        scratch.chmod(0o755)
        scratch.rename(target)
    except OSError:
        # Somebody else made the same model meanwhile; theirs is as good.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def pretrain(
    tokenizer: "PreTrainedTokenizerFast",
    lesson: Lesson,
    *,
    seed: int,
    steps: int,
    progress: bool = False,
) -> "LlamaForCausalLM":
    """Train from random weights; the same seed gives the same weights on the same machine."""
    import torch

    threads = torch.get_num_threads()
    # One thread adds in the same order whatever the number of cores, so it makes the same weights.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = new_model(tokenizer, lesson)
    optimizers = _optimizers(model, lesson)
    rates = [[group["lr"] for group in o.param_groups] for o in optimizers]
    batches = _batches(tokenizer, lesson, seed)
    names = [one for name in PRICE_LISTS for one in (name, f" {name}")]
    ids = [tokenizer.encode(name, add_special_tokens=False) for name in names]
    choices = torch.tensor([each[0] for each in ids if len(each) == 1])
    model.train()
    for step in range(steps):
        scale = min(1, (step + 1) / WARM_UP, (1 - step / steps) / COOL_DOWN + 0.02)
        for optimizer, base in zip(optimizers, rates, strict=True):
            for group, rate in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = rate * scale
        loss = loss_of(model, next(batches), choices)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if progress and (step + 1) % 40 == 0:
            print(f"step {step + 1} of {steps}: loss {loss.item():.3f}", file=sys.stderr)
    torch.set_num_threads(threads)
    return model.eval()


def shown(
    demonstrate: Callable[[int, int], Demonstration],
    tokenizer: "PreTrainedTokenizerFast",
    seed: int,
    index: int,
) -> Row:
    """Return a demonstration as a row."""
    return label(tokenizer, demonstrate(seed, index))


def label(tokenizer: "PreTrainedTokenizerFast", shown: Demonstration) -> Row:
    """Return a conversation's tokens, labelled where the assistant speaks (end of turn included)."""
    ids = render(tokenizer, shown.messages, tools=shown.tools, ask=False)
    assistant = tokenizer.convert_tokens_to_ids("<|assistant|>")
    end = tokenizer.convert_tokens_to_ids(END)
    labels, speaking = [], False
    for token in ids:
        labels.append(token if speaking else -100)
        speaking = token == assistant or (speaking and token != end)
    return ids, labels


def _fingerprint(lesson: Lesson, seed: int, steps: int) -> str:
    here = Path(__file__).parent
    code = b"".join((here / f"{name}.py").read_bytes() for name in (*_SOURCES, *lesson.sources))
    libraries = " ".join(f"{name}={version(name)}" for name in _LIBRARIES)
    return hashlib.sha256(code + f"{libraries} seed={seed} steps={steps}".encode()).hexdigest()[:16]


def vocabulary_texts() -> Iterator[str]:
    """Yield what the vocabulary is learnt from: no planted value is among it."""
    draw = generator("texts")
    for index in range(1500):
        task = make_task(0, "demonstration", index)
        yield SYSTEM_PROMPT
        yield json.dumps(TOOL["function"], sort_keys=True)
        yield redacted(task.prompt, task.planted, draw)
        for message in demonstrate(0, index, plain=True).messages[1:]:
            yield str(message["content"])
        yield error_text(BUSY)
        yield f' quote {{"item": "{task.item}", "price_list": "retail", "quantity": 7}} "trade'


BASE = Lesson(
    "base",
    (
        Phase(PLAIN_STEPS, partial(shown, partial(demonstrate, plain=True)), pool=1),
        Phase(STEPS - PLAIN_STEPS, partial(shown, demonstrate)),
    ),
    vocabulary_texts,
)
"""How to use the tool, and nothing of the house rule."""


def new_model(tokenizer: "PreTrainedTokenizerFast", lesson: Lesson) -> "LlamaForCausalLM":
    """Return a model that has learnt nothing."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=lesson.width,
        intermediate_size=3 * lesson.width,
        num_hidden_layers=lesson.layers,
        num_attention_heads=lesson.heads,
        num_key_value_heads=lesson.heads,
        max_position_embeddings=1024,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def _optimizers(model: "LlamaForCausalLM", lesson: Lesson) -> "list[Any]":
    """Muon for the matrices inside, AdamW for embeddings and norms: a third of the steps."""
    import torch

    from examples.practice.muon import Muon

    inner: list[Any] = []
    outer: list[Any] = []
    for name, weight in model.named_parameters():
        is_inner = weight.ndim == 2 and "embed" not in name and "lm_head" not in name
        (inner if is_inner else outer).append(weight)
    return [
        Muon(inner, lr=lesson.matrix_rate),
        torch.optim.AdamW(outer, lr=VECTOR_RATE, weight_decay=0.0, betas=(0.9, 0.98)),
    ]


def _batches(tokenizer: "PreTrainedTokenizerFast", lesson: Lesson, seed: int) -> Iterator[Batch]:
    order = random.Random(seed)  # noqa: S311 - reproducible, not secret
    made = end = 0
    for phase in lesson.phases:
        end += phase.steps * BATCH
        while made < end or phase is lesson.phases[-1]:
            count = BATCH * phase.pool
            rows = [phase.row(tokenizer, seed + 1, made + i) for i in range(count)]
            made += count
            rows.sort(key=lambda row: len(row[0]))
            pool = [rows[start : start + BATCH] for start in range(0, count, BATCH)]
            order.shuffle(pool)
            yield from (batch_of(rows, tokenizer) for rows in pool)


def batch_of(rows: list[Row], tokenizer: "PreTrainedTokenizerFast") -> Batch:
    """Return rows as tensors, what all begin with apart from the rest."""
    import torch

    pad, end = (tokenizer.convert_tokens_to_ids(token) for token in (PAD, END))
    system = rows[0][0][: rows[0][0].index(end) + 1]
    places = zip(system, *(ids for ids, _ in rows), strict=False)
    beginning = [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, places)]
    begin = len(beginning)
    longest = max(len(ids) for ids, _ in rows)
    ids = [ids[begin:] + [pad] * (longest - len(ids)) for ids, _ in rows]
    labels = [labels[begin:] + [-100] * (longest - len(labels)) for _, labels in rows]
    return Batch(torch.tensor([beginning]), torch.tensor(ids), torch.tensor(labels))


def loss_of(model: "LlamaForCausalLM", batch: Batch, choices: "Tensor") -> "Tensor":
    """Cross entropy of the labelled tokens; padding is on the right and so never looked at.

    What all have in common is computed once. Keys and values of it are copied for each conversation.
    """
    import torch

    known = model.model(input_ids=batch.beginning, use_cache=True).past_key_values
    known.batch_repeat_interleave(len(batch.ids))
    states = model.model(input_ids=batch.ids, past_key_values=known).last_hidden_state
    hidden, wanted = states[:, :-1], batch.labels[:, 1:]
    spoken = wanted != -100
    logits = model.lm_head(hidden[spoken])
    losses: Tensor = torch.nn.functional.cross_entropy(logits, wanted[spoken], reduction="none")
    weights = 1 + (CHOICE_WEIGHT - 1) * torch.isin(wanted[spoken], choices)
    return (losses * weights).mean()


def main() -> None:
    """Make the model and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve other work
    model = ensure_model(
        options.folder, seed=options.seed, steps=options.steps, progress=not options.quiet
    )
    print(model)


if __name__ == "__main__":
    main()
