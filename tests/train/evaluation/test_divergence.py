"""Divergence: nothing between equal models, what the definition says between others."""

from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import make_model
from train.evaluation.divergence import MOST_ROWS, divergence_of
from train.runs.rows import IGNORED, TrainingRow

ROWS = [
    TrainingRow([1, 5, 9, 7, 2], [IGNORED, IGNORED, 9, 7, 2]),
    TrainingRow([1, 8, 4], [IGNORED, 8, IGNORED]),
    TrainingRow([1, 8, 4], [1, IGNORED, IGNORED]),
]
"""The last has a label only at its first token, which nothing predicts."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("other"), seed=3)


def test_a_model_does_not_diverge_from_itself(tiny_model: Path) -> None:
    found = divergence_of(tiny_model, tiny_model, ROWS, confidence=0.95)
    assert found is not None
    assert (found.rows, found.tokens) == (2, 4)
    assert found.kl.high == pytest.approx(0, abs=1e-6)


def test_it_is_the_mean_over_answered_tokens_of_the_whole_distributions(
    tiny_model: Path, other: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    def distributions(folder: Path, ids: list[int]) -> Any:
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].softmax(-1)

    means = []
    for row in ROWS[:2]:
        one, two = (distributions(folder, row.input_ids) for folder in (other, tiny_model))
        at = [place - 1 for place, label in enumerate(row.labels) if label != IGNORED]
        means.append(float((one[at] * (one[at] / two[at]).log()).sum(-1).mean()))
    found = divergence_of(other, tiny_model, ROWS, confidence=0.95)
    assert found is not None
    assert found.kl.estimate == pytest.approx(sum(means) / 2, rel=1e-4)
    assert found.kl.low <= found.kl.estimate <= found.kl.high


def test_only_so_many_conversations_are_read_and_without_any_there_is_no_number(
    tiny_model: Path,
) -> None:
    found = divergence_of(tiny_model, tiny_model, ROWS[:1] * 70, confidence=0.95)
    assert found is not None
    assert found.rows == MOST_ROWS
    assert divergence_of(tiny_model, tiny_model, ROWS[2:], confidence=0.95) is None
