"""The model: labels where the assistant speaks, the same seed gives the same weights, made once."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from examples.practice.demonstrations import Demonstration, demonstrate
from examples.practice.evaluate import evaluate
from examples.practice.model import (
    BASE,
    batch_of,
    ensure_model,
    label,
    loss_of,
    new_model,
    pretrain,
)
from examples.practice.reading import look_up
from tests.practice.demo_model import MAKING_SECONDS, demo_model


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(model_folder)


def test_labels_are_what_the_assistant_says(tokenizer: Any) -> None:
    shown = demonstrate(1, 3)
    messages = shown.messages
    ids, labels = label(tokenizer, shown)
    said = tokenizer.decode([token for token in labels if token != -100])
    assert len(ids) == len(labels)
    assert said.count("<|end|>") == sum(m["role"] == "assistant" for m in messages)
    assert said.startswith("Account: ")
    assert said.endswith(f"{messages[-1]['content']}<|end|>")
    assert messages[1]["content"] not in said


@pytest.mark.parametrize("show", [partial(demonstrate, plain=True), demonstrate, look_up])
def test_a_shared_beginning_gives_the_loss_and_gradients_of_whole_conversations(
    tokenizer: Any, show: Callable[[int, int], Demonstration]
) -> None:
    torch.manual_seed(4)
    model = new_model(tokenizer, BASE)
    rows = [label(tokenizer, show(1, index)) for index in range(5)]
    no_choices = torch.tensor([], dtype=torch.long)
    loss_of(model, batch_of(rows, tokenizer), no_choices).backward()
    shared = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    tokens = sum(token != -100 for _, labels in rows for token in labels)
    for ids, labels in rows:
        told = sum(token != -100 for token in labels)
        loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
        (loss * told / tokens).backward()
    for name, weight in model.named_parameters():
        assert (weight.grad - shared[name]).norm() < 1e-4 * weight.grad.norm()


def test_the_same_seed_gives_the_same_weights(tokenizer: Any) -> None:
    first, second, other = (
        pretrain(tokenizer, BASE, seed=seed, steps=2).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert 900_000 < sum(weight.numel() for weight in first.values()) < 3_000_000


def test_a_model_is_made_once_for_each_seed_and_lesson(tmp_path: Path) -> None:
    plain, _ = BASE.phases
    other = replace(BASE, name="other", phases=(plain,))
    first = ensure_model(tmp_path, seed=1, steps=1)
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert ensure_model(tmp_path, seed=1, steps=1) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    second = ensure_model(tmp_path, seed=2, steps=1)
    third = ensure_model(tmp_path, seed=1, steps=1, lesson=other)
    assert {*tmp_path.iterdir()} == {first, second, third}
    assert len({first, second, third}) == 3


@pytest.mark.slow
@pytest.mark.timeout(2 * MAKING_SECONDS)
def test_the_base_model_knows_the_format_and_not_the_rule() -> None:
    sessions = evaluate(demo_model(), tasks=100, seed=1)
    assert 0.33 <= sum(session.success for session in sessions) / 100 <= 0.62
    assert sum(session.outcome.answer is not None for session in sessions) >= 95
