"""Supervised fine-tuning on rewarded trajectories only (rejection sampling), with TRL's SFTTrainer."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from train.recipes.base import (
    RowBuilder,
    Rows,
    Selection,
    TrainerParts,
    conversation_of,
    counted,
    limited,
    sft_arguments,
    train_side,
)
from train.recipes.settings import RecipeSpec
from train.runs.epoch_order import resumable
from train.runs.rows import Masker
from train.substrate.content import ContentStore
from train.types import ScoredItem
from trajectory.documents.document import StrictModel


class SftOptions(StrictModel):
    """Options of ``sft`` alone."""

    rewarded_only: bool = True
    """Learn only from items whose reward reaches the substrate's minimum."""


class SupervisedRecipe:
    """Learns to say what successful steps said."""

    name = "sft"
    purpose = "train_sft"
    makes = "policy"
    options: type[StrictModel] = SftOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        options = SftOptions.model_validate(spec.options)
        fallen: Counter[str] = Counter()
        usable = []
        for entry in train_side(items, fallen):
            if options.rewarded_only and not entry.rewarded:
                fallen["not_rewarded"] += 1
            else:
                usable.append((entry,))
        units = limited(usable, spec.data.maximum_items, fallen)
        return Selection(units=units, fallen=counted(fallen))

    def rows(
        self,
        selection: Selection,
        content: ContentStore,
        masker: Masker,
        spec: RecipeSpec,  # noqa: ARG002 (part of the seam)
    ) -> Rows:
        builder = RowBuilder("input_ids", "labels")
        for (entry,) in selection.units:
            conversation = conversation_of(entry, content, builder)
            if conversation is None:
                continue
            for view in conversation.views:
                learned = builder.learned(entry, view, content)
                outcome = masker.mask(view.messages, learned, tools=view.tools)
                builder.dropped.update(outcome.dropped)
                for row in outcome.rows:
                    builder.add(entry.item.item_id, input_ids=row.input_ids, labels=row.labels)
        return builder.build()

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import SFTConfig, SFTTrainer

        return resumable(SFTTrainer)(
            args=SFTConfig(**sft_arguments(parts)),
            **parts.for_trainer(),
        )


RECIPE = SupervisedRecipe()
