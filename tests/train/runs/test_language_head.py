"""The head in training: a CPU computes it where something is scored, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from train.model_folder import load_model
from train.runs.language_head import score_labels_alone


class Multiplied(TorchFunctionMode):
    """Notes how many rows are multiplied by a matrix as wide as the vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self.rows: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.mm and args[1].shape[1] == self._vocabulary:
            self.rows.append(args[0].shape[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore")
def test_only_scored_positions_go_through_the_head(tiny_model: Path) -> None:
    from trl.trainer.utils import add_fused_lm_head

    net: Any = load_model(tiny_model)
    ids = torch.randint(5, 100, (2, 30), generator=torch.Generator().manual_seed(0))
    labels = torch.full_like(ids, -100)
    labels[0, 7:9], labels[1, 29] = ids[0, 7:9], ids[1, 29]
    expected = net(input_ids=ids, labels=labels).loss
    add_fused_lm_head(net)
    score_labels_alone()
    with Multiplied(net.config.vocab_size) as noted:
        loss = net(input_ids=ids, labels=labels, fused_lm_head=True).loss
    assert sum(noted.rows) == 3
    torch.testing.assert_close(loss, expected)
