"""The head of a language model in training: only the positions that are scored go through it."""

from functools import cache
from typing import Any


@cache
def score_labels_alone() -> None:
    """Let TRL's trainers multiply only scored positions by the head on a CPU too, as they do on a GPU.

    Elsewhere they take every position, for devices that compile each shape anew. Of SmolLM2's desk, where one word
    in a hundred is scored, the others cost two fifths of a step.
    """
    from trl.trainer import utils

    plain = utils._use_triton

    def scored_alone(device: Any) -> bool:
        return device.type == "cpu" or bool(plain(device))

    utils._use_triton = scored_alone
