"""KTO on unpaired feedback: each answer of a rewarded trajectory is wanted, of another unwanted.

An answer that a person corrected is unwanted, whatever came of its trajectory. TRL's KTOTrainer learns from
rows that our masking function made. A row has one assistant message, its history in the prompt, and nothing after the
end of the turn.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from train.recipes.base import (
    RowBuilder,
    Rows,
    Selection,
    TrainerParts,
    conversation_of,
    corrected_places,
    counted,
    limited,
    on_token_ids,
    train_side,
)
from train.recipes.settings import RecipeSpec
from train.runs.rows import Masker, Turn
from train.substrate.content import ContentStore
from train.types import ScoredItem
from trajectory.documents.document import StrictModel


class KtoOptions(StrictModel):
    """Options of ``kto`` alone."""

    beta: float = Field(default=0.1, gt=0)
    """How strongly the model is held to its base."""


class UnpairedRecipe:
    """Learns to prefer what was rewarded, without pairs."""

    name = "kto"
    purpose = "train_preference"
    makes = "policy"
    options: type[StrictModel] = KtoOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        fallen: Counter[str] = Counter()
        usable = train_side(items, fallen)
        if len({entry.rewarded for entry in usable}) < 2:
            fallen["no_contrast"] += len(usable)
            usable = []
        units = limited([(entry,) for entry in usable], spec.data.maximum_items, fallen)
        return Selection(units=units, fallen=counted(fallen))

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        builder = RowBuilder("prompt_ids", "completion_ids", "KL_completion_ids", "label")
        found: list[tuple[ScoredItem, Turn, bool]] = []
        for (entry,) in selection.units:
            conversation = conversation_of(entry, content, builder)
            if conversation is None:
                continue
            for view in conversation.views:
                outcome = masker.turns(view.messages, view.trained, tools=view.tools)
                builder.dropped.update(outcome.dropped)
                wrong = corrected_places(entry, view, content)
                for at, turn in zip(outcome.places, outcome.turns, strict=True):
                    found.append((entry, turn, entry.rewarded and at not in wrong))
        # The trainer keeps the order, and compares each row with its neighbour's answer.
        random.Random(spec.training.seed).shuffle(found)  # noqa: S311 (no secret)
        for place, (entry, turn, is_wanted) in enumerate(found):
            other = found[place - 1][1].completion_ids
            builder.add(
                entry.item.item_id,
                **turn._asdict(),
                KL_completion_ids=other,
                label=is_wanted,
            )
        return builder.build()

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import KTOConfig, KTOTrainer

        options = KtoOptions.model_validate(parts.spec.options)
        labels = parts.rows.columns["label"]
        wanted = max(1, sum(labels))
        # Both kinds weigh the same however many there are of each.
        arguments = KTOConfig(
            **parts.arguments,
            max_length=None,
            beta=options.beta,
            undesirable_weight=wanted / max(1, len(labels) - sum(labels)),
        )
        return on_token_ids(KTOTrainer)(
            args=arguments,
            **parts.for_trainer(),
        )


RECIPE = UnpairedRecipe()
