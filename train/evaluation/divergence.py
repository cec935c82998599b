"""Measures a candidate's distance from its base: KL per token of held-out answers.

Both models read the same logged conversations; at each token of an answer the whole distributions
are compared, so nothing is sampled and the number is the same each time. It tells a model that was
torn apart from one that was changed a little; it does not tell good from bad.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.evaluation.intervals import Interval, paired_gain
from train.runs.rows import IGNORED, TrainingRow

MOST_ROWS = 64
"""Conversations that are read at most."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL(candidate ‖ base) per token, in nats."""

    rows: int
    tokens: int
    kl: Interval
    """Mean over conversations of their mean over tokens."""


def divergence_of(
    candidate: Path, base: Path, rows: Sequence[TrainingRow], *, confidence: float
) -> Divergence | None:
    """Measure on at most :data:`MOST_ROWS` rows; None with less than two that have a token to measure at."""
    rows = [row for row in rows if any(label != IGNORED for label in row.labels[1:])][:MOST_ROWS]
    if len(rows) < 2:
        return None
    models = _load(candidate), _load(base)
    means, tokens = [], 0
    for row in rows:
        values = _row(models, row)
        means.append(float(values.mean()))
        tokens += len(values)
    kl = paired_gain(means, confidence=confidence)
    return Divergence(len(rows), tokens, kl)


def _load(folder: Path) -> Any:
    import torch

    from train.model_folder import load_model

    model = load_model(folder).eval()
    return model.to("cuda") if torch.cuda.is_available() else model


def _row(models: tuple[Any, Any], row: TrainingRow) -> Any:
    """Return the divergence at each answered token."""
    import torch

    device = models[0].device
    ids = torch.tensor([row.input_ids], device=device)
    places = [at - 1 for at, label in enumerate(row.labels) if at and label != IGNORED]
    with torch.inference_mode():
        one, two = (
            model(input_ids=ids).logits[0, places].float().log_softmax(-1) for model in models
        )
        return (one.exp() * (one - two)).sum(-1).clamp(min=0)
