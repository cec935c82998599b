"""Advantage-weighted regression: supervised, each row weighted by its exponentiated advantage.

After Peng et al., Advantage-Weighted Regression (arXiv 1910.00177): the weight of a row is
``exp((reward - baseline) / temperature)``, cut at ``largest_weight`` and scaled to a mean of 1.
The baseline is the mean reward of the row's own group of attempts, or of all items where an item
is alone in its group. TRL's SFTTrainer learns; only the loss of each row is scaled.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import exp, log
from typing import Any

from pydantic import Field

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


class AwrOptions(StrictModel):
    """Options of ``awr`` alone."""

    temperature: float = Field(default=0.5, gt=0)
    """The lower, the more the best rows count."""
    largest_weight: float = Field(default=5.0, gt=0)


def row_weights(items: Sequence[ScoredItem], options: AwrOptions) -> dict[str, float]:
    """Return item id → weight, with a mean of 1 over the items."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for entry in items:
        groups[entry.item.tenant_id, entry.item.group_id].append(entry.reward)
    overall = sum(entry.reward for entry in items) / max(1, len(items))
    weights = {}
    for entry in items:
        group = groups[entry.item.tenant_id, entry.item.group_id]
        baseline = sum(group) / len(group) if len(group) > 1 else overall
        advantage = (entry.reward - baseline) / options.temperature
        weights[entry.item.item_id] = exp(min(advantage, log(options.largest_weight)))
    scale = len(weights) / (sum(weights.values()) or 1.0)
    return {item_id: weight * scale for item_id, weight in weights.items()}


class WeightedRecipe:
    """Learns from everything, and more from what went better than its like."""

    name = "awr"
    purpose = "train_sft"
    makes = "policy"
    options: type[StrictModel] = AwrOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        fallen: Counter[str] = Counter()
        usable = train_side(items, fallen)
        if len({entry.reward for entry in usable}) < 2:
            # Equal rewards give equal weights: that would be imitation under another name.
            fallen["no_contrast"] += len(usable)
            usable = []
        units = limited([(entry,) for entry in usable], spec.data.maximum_items, fallen)
        return Selection(units=units, fallen=counted(fallen))

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        weights = row_weights(selection.items, AwrOptions.model_validate(spec.options))
        builder = RowBuilder("input_ids", "labels", "weight")
        for (entry,) in selection.units:
            conversation = conversation_of(entry, content, builder)
            if conversation is None:
                continue
            for view in conversation.views:
                learned = builder.learned(entry, view, content)
                outcome = masker.mask(view.messages, learned, tools=view.tools)
                builder.dropped.update(outcome.dropped)
                for row in outcome.rows:
                    weight = weights[entry.item.item_id]
                    builder.add(entry.item.item_id, **row._asdict(), weight=weight)
        return builder.build()

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import SFTConfig

        arguments = SFTConfig(
            **sft_arguments(parts),
            # The collator needs the weights, which no model's forward takes.
            remove_unused_columns=False,
        )
        return _trainer_class()(
            args=arguments,
            data_collator=_collator(parts.tokenizer.pad_token_id),
            **parts.for_trainer(),
        )


def _collator(pad_token_id: int) -> Any:
    """Return TRL's collator with one more tensor: the weights of the rows."""
    import torch
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    plain = DataCollatorForLanguageModeling(pad_token_id=pad_token_id)

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        weights = torch.tensor([example["weight"] for example in examples])
        return {**plain(examples), "weights": weights}

    return collate


def _trainer_class() -> Any:
    import torch
    from trl import SFTTrainer

    class WeightedTrainer(resumable(SFTTrainer)):  # type: ignore[misc]
        """SFTTrainer whose rows count by their weight."""

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            inputs = dict(inputs)
            weights = inputs.pop("weights")
            # As TRL's own loss: only what is learned goes through the head, never all logits at once.
            outputs = model(**inputs, use_cache=False, fused_lm_head=True)
            losses = -outputs.log_probs
            learned = outputs.label_mask.sum()
            count = learned if num_items_in_batch is None else num_items_in_batch
            loss = (losses.sum(dim=1) * weights.to(losses)).sum() / torch.as_tensor(count).clamp(
                min=1
            )
            if num_items_in_batch is not None:
                # It counts the tokens of all processes, and their gradients are averaged.
                loss = loss * self.accelerator.num_processes
            return (loss, outputs) if return_outputs else loss

    return WeightedTrainer


RECIPE = WeightedRecipe()
