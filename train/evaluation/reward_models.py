"""Reward models: loads them, and measures how often one prefers the attempt that was rewarded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from train.chat import ChatMessage
from train.chat_template import TemplateRefusedError
from train.evaluation.intervals import Interval, confidence_at_look, wilson
from train.model_folder import load_scoring_model, load_tokenizer
from train.runs.rows import Masker
from trajectory.errors import ConfigurationError

_BATCH = 16


class Pair(NamedTuple):
    """Two attempts at one task as token ids; the first was rewarded, the second was not."""

    chosen_ids: list[int]
    rejected_ids: list[int]


def load_reward_model(folder: Path) -> tuple[Any, Any]:
    """Return a trained reward model and its tokenizer.

    Raises:
        ConfigurationError: the folder holds no reward model.
    """
    tokenizer = load_tokenizer(folder)
    model = load_scoring_model(folder)
    if "SequenceClassification" not in str(model.config.architectures):
        raise ConfigurationError(
            f"{folder}: is no reward model; make one with the recipe reward_model"
        )
    return model.eval(), tokenizer


def episode_ids(
    masker: Masker, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]
) -> list[int]:
    """Return an episode as a reward model reads it; empty when it cannot be shown.

    It is the conversation with its tools up to the end of the agent's last turn. Training, the gate and
    scoring all use this one text: a reward model reads its score off the last token.
    """
    last = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
    try:
        ids = masker.spoken_ids(messages[: last + 1], tools=tools) if last >= 0 else []
    except TemplateRefusedError:
        return []
    return ids if len(ids) <= masker.max_length else []


class RewardModel:
    """A trained reward model that scores episodes as they come from a trainer."""

    def __init__(
        self, folder: Path, definitions: Mapping[str, Sequence[dict[str, Any]]], device: Any
    ) -> None:
        """Load a model.

        Args:
            folder: of the model.
            definitions: the tools of an episode by the name of its ``environment``.
            device: to score on.

        Raises:
            ConfigurationError: the folder holds no reward model.
        """
        model, tokenizer = load_reward_model(folder)
        self._model = model.to(device)
        room = int(getattr(model.config, "max_position_embeddings", 0) or 1 << 30)
        self._masker = Masker(tokenizer, max_length=room)
        self._definitions = definitions
        self.__name__ = "reward_model"

    def __call__(
        self,
        prompts: Sequence[Sequence[ChatMessage]],
        completions: Sequence[Sequence[ChatMessage]],
        environment: Sequence[str],
        **_: Any,
    ) -> list[float | None]:
        """Score episodes; None for what cannot be shown to the model."""
        import torch

        shown = [
            episode_ids(self._masker, [*prompt, *completion], self._definitions[name])
            for prompt, completion, name in zip(prompts, completions, environment, strict=True)
        ]
        scores: list[float | None] = [None] * len(shown)
        places = [place for place, ids in enumerate(shown) if ids]
        with torch.inference_mode():
            for start in range(0, len(places), _BATCH):
                part = places[start : start + _BATCH]
                found = _scores(self._model, [shown[place] for place in part]).tolist()
                for place, score in zip(part, found, strict=True):
                    scores[place] = score
        return scores


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a reward model prefers the rewarded attempt of a held-out task; 0.5 is chance."""

    tasks: int
    share: Interval
    """Mean over tasks of the share of a task's pairs in which it does."""
    look: int
    """The how-manieth reward model of its name this was since one passed its gate."""
    share_at_look: Interval
    """The share at the confidence that is left for this look, by which the gate judges."""


def agreement(
    model: Any, tasks: Sequence[Sequence[Pair]], *, confidence: float, look: int = 1
) -> Agreement:
    """Measure in how many of a task's pairs the rewarded attempt scores higher.

    Attempts at one task are alike, so its pairs count as one observation, however many they are.
    """
    import torch

    model.eval()
    pairs = [pair for task in tasks for pair in task]
    right: list[bool] = []
    with torch.inference_mode():
        for start in range(0, len(pairs), _BATCH):
            part = pairs[start : start + _BATCH]
            chosen = _scores(model, [pair.chosen_ids for pair in part])
            rejected = _scores(model, [pair.rejected_ids for pair in part])
            right += (chosen > rejected).tolist()
    found = iter(right)
    shares = [sum(next(found) for _ in task) / len(task) for task in tasks]
    share, share_at_look = (
        wilson(sum(shares), len(tasks), each)
        for each in (confidence, confidence_at_look(confidence, look))
    )
    return Agreement(len(tasks), share, look, share_at_look)


def _scores(model: Any, rows: Sequence[list[int]]) -> Any:
    import torch

    longest = max(map(len, rows))
    pad = model.config.pad_token_id
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    device = next(model.parameters()).device
    return model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits[:, 0]
