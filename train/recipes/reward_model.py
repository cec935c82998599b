"""A reward model from attempts at the same task: one that was rewarded beside one that was not.

A row is two whole episodes as the chat template renders them, tool answers included. So the model sees what a
reward must see. TRL's RewardTrainer learns (the pairwise loss of InstructGPT, arXiv 2203.02155). The result scores
episodes for ``grpo_live``; it serves nobody.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from train.evaluation.reward_models import episode_ids
from train.recipes.base import (
    RowBuilder,
    Rows,
    Selection,
    TrainerParts,
    conversation_of,
    select_contrasting,
)
from train.recipes.settings import RecipeSpec
from train.runs.epoch_order import resumable
from train.runs.rows import Masker
from train.substrate.content import ContentStore
from train.types import ScoredItem
from trajectory.documents.document import StrictModel


class RewardModelOptions(StrictModel):
    """Options of ``reward_model`` alone."""

    pairs_per_task: int = Field(default=4, ge=1)
    """The most pairs that are made of one task's attempts."""
    centering: float | None = Field(default=0.01, ge=0)
    """Weight of a term that keeps rewards around 0 (arXiv 2312.09244); null: none."""


class RewardModelRecipe:
    """Learns to tell rewarded attempts from others."""

    name = "reward_model"
    purpose = "train_preference"
    makes = "reward_model"
    options: type[StrictModel] = RewardModelOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        return select_contrasting(items, spec)

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        options = RewardModelOptions.model_validate(spec.options)
        builder = RowBuilder("chosen_ids", "rejected_ids")
        for group in selection.units:
            episodes = _episodes(group, content, masker, builder)
            rewarded = [episode for episode in episodes if episode[0].rewarded]
            others = [episode for episode in episodes if not episode[0].rewarded]
            pairs = list(zip(rewarded, others, strict=False))[: options.pairs_per_task]
            if not pairs:
                builder.dropped["group_lost_contrast"] += len(episodes)
            for (good, chosen), (bad, rejected) in pairs:
                builder.add(
                    f"{good.item.item_id} {bad.item.item_id}",
                    chosen_ids=chosen,
                    rejected_ids=rejected,
                )
        return builder.build()

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import RewardConfig, RewardTrainer

        options = RewardModelOptions.model_validate(parts.spec.options)
        return resumable(RewardTrainer)(
            args=RewardConfig(
                **parts.arguments,
                max_length=None,  # rows that are too long were dropped and counted
                center_rewards_coefficient=options.centering,
            ),
            **parts.for_trainer(),
        )


def _episodes(
    group: Sequence[ScoredItem], content: ContentStore, masker: Masker, builder: RowBuilder
) -> list[tuple[ScoredItem, list[int]]]:
    """Return each attempt as tokens, up to the agent's last words."""
    found: list[tuple[ScoredItem, list[int]]] = []
    for entry in _last_parts(group, builder):
        conversation = conversation_of(entry, content, builder)
        if conversation is None:
            continue
        messages, tools = conversation.messages, conversation.tools
        outcome = masker.mask(messages, [conversation.trained[-1]], tools=tools)
        builder.dropped.update(outcome.dropped)
        if outcome.rows:
            found.append((entry, episode_ids(masker, messages, tools)))
    return found


def _last_parts(group: Sequence[ScoredItem], builder: RowBuilder) -> list[ScoredItem]:
    """Return the item that each attempt ends with, where its client rewrote the history on the way."""
    last: dict[str, ScoredItem] = {}
    for entry in sorted(group, key=lambda entry: (entry.item.started_at, entry.item.item_id)):
        last[entry.item.trajectory_id] = entry
    builder.dropped["earlier_part"] += len(group) - len(last)
    return [entry for entry in group if last[entry.item.trajectory_id] is entry]


RECIPE = RewardModelRecipe()
