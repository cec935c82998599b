"""DPO on pairs mined from attempts at the same task, and on what people corrected.

Two attempts may have seen the same up to some answer (system prompts left out) and answered differently. If one
was rewarded and the other not, these two answers are a pair. Each is one assistant message; the prompt is the
history of the rewarded one. Where a person corrected an answer, what they wrote and the answer itself are a pair
of their own. TRL's DPOTrainer learns.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from train.chat import ChatMessage
from train.chat_template import TemplateRefusedError
from train.recipes.base import (
    RowBuilder,
    Rows,
    Selection,
    TrainerParts,
    conversation_of,
    corrected_places,
    counted,
    groups_with_contrast,
    limited,
    on_token_ids,
    train_side,
)
from train.recipes.settings import RecipeSpec
from train.runs.rows import Masker, Turn
from train.substrate.content import CORRECTION, ContentStore, View
from train.types import ScoredItem
from trajectory.documents.document import StrictModel


class DpoOptions(StrictModel):
    """Options of ``dpo`` alone."""

    beta: float = Field(default=0.1, gt=0)
    """How strongly the model is held to its base."""
    pairs_per_context: int = Field(default=1, ge=1)
    """The most pairs that begin at the same place of the same task."""


class PreferenceRecipe:
    """Learns to prefer the better of two answers at the same place."""

    name = "dpo"
    purpose = "train_preference"
    makes = "policy"
    options: type[StrictModel] = DpoOptions

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        return select_preferences(items, spec)

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        options = DpoOptions.model_validate(spec.options)
        builder = RowBuilder("prompt_ids", "chosen_ids", "rejected_ids")
        for group in selection.units:
            pairs = _corrected(group, content, masker, builder)
            if len(group) > 1:
                pairs += _pairs(group, content, masker, builder, options.pairs_per_context)
            if not pairs:
                builder.dropped["no_shared_context"] += 1
            for item_ids, prompt, chosen, rejected in pairs:
                builder.add(
                    item_ids,
                    prompt_ids=list(prompt),
                    chosen_ids=list(chosen),
                    rejected_ids=list(rejected),
                )
        return builder.build()

    def trainer(self, parts: TrainerParts) -> Any:
        from trl import DPOConfig, DPOTrainer

        options = DpoOptions.model_validate(parts.spec.options)
        return on_token_ids(DPOTrainer)(
            args=DPOConfig(**parts.arguments, max_length=None, beta=options.beta),
            **parts.for_trainer(),
        )


type _Ids = tuple[int, ...]


def select_preferences(items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
    """Choose the train side's groups with contrast, and beside them what a person corrected."""
    fallen: Counter[str] = Counter()
    kept = train_side(items, fallen)
    there = {one.item.item_id for group in groups_with_contrast(kept, Counter()) for one in group}
    alone = [(one,) for one in kept if is_corrected(one) and one.item.item_id not in there]
    apart = {one.item.item_id for (one,) in alone}
    groups = groups_with_contrast([one for one in kept if one.item.item_id not in apart], fallen)
    return Selection(limited([*groups, *alone], spec.data.maximum_items, fallen), counted(fallen))


def is_corrected(entry: ScoredItem) -> bool:
    """Return whether a person corrected an answer in an item."""
    return CORRECTION in json.loads(entry.signals)


def _corrected(
    group: Sequence[ScoredItem], content: ContentStore, masker: Masker, builder: RowBuilder
) -> list[tuple[str, _Ids, _Ids, _Ids]]:
    """Return (item id, prompt, chosen, rejected) of the answers that a person corrected."""
    pairs = []
    for entry in group:
        named = [(entry.item.tenant_id, step) for step in entry.item.step_ids]
        if not any(one in content.corrections for one in named):
            continue
        conversation = conversation_of(entry, content, builder)
        for view in conversation.views if conversation else ():
            for place, step in zip(view.trained, view.step_ids, strict=True):
                text = content.corrections.get((entry.item.tenant_id, step))
                if text is None:
                    continue
                before = view.messages[:place]
                said = masker.turns(view.messages[: place + 1], [place], tools=view.tools)
                right: ChatMessage = {"role": "assistant", "content": text}
                wanted = masker.turns((*before, right), [place], tools=view.tools)
                builder.dropped.update((*said.dropped, *wanted.dropped))
                for bad, good in zip(said.turns, wanted.turns, strict=False):
                    if bad.completion_ids != good.completion_ids:
                        rejected, chosen = tuple(bad.completion_ids), tuple(good.completion_ids)
                        pairs.append((entry.item.item_id, tuple(good.prompt_ids), chosen, rejected))
    return pairs


def _pairs(
    group: Sequence[ScoredItem],
    content: ContentStore,
    masker: Masker,
    builder: RowBuilder,
    most: int,
) -> list[tuple[str, _Ids, _Ids, _Ids]]:
    """Return (item ids, prompt, chosen, rejected) of one task's attempts."""
    # By what was asked; answer → (item id, its own prompt).
    wanted: dict[_Ids, dict[_Ids, tuple[str, _Ids]]] = defaultdict(dict)
    unwanted: dict[_Ids, dict[_Ids, tuple[str, _Ids]]] = defaultdict(dict)
    for entry in group:
        conversation = conversation_of(entry, content, builder)
        if conversation is None:
            continue
        side = wanted if entry.rewarded else unwanted
        for view in conversation.views:
            outcome = masker.turns(view.messages, view.trained, tools=view.tools)
            builder.dropped.update(outcome.dropped)
            wrong = corrected_places(entry, view, content) if entry.rewarded else ()
            for place, turn in zip(outcome.places, outcome.turns, strict=True):
                if place in wrong:
                    continue  # success did not come of it: a person says what it should have been
                asked = _asked(view, place, turn, masker)
                said = (entry.item.item_id, tuple(turn.prompt_ids))
                side[asked].setdefault(tuple(turn.completion_ids), said)
    pairs = []
    for asked, answers in wanted.items():
        # What successful and failed attempts both said did not decide between them.
        chosen = [a for a in answers if a not in unwanted[asked]]
        rejected = [a for a in unwanted[asked] if a not in answers]
        for good, bad in list(zip(chosen, rejected, strict=False))[:most]:
            (item_id, prompt), (other_id, _) = answers[good], unwanted[asked][bad]
            pairs.append((f"{item_id} {other_id}", prompt, good, bad))
    return pairs


def _asked(view: View, place: int, turn: Turn, masker: Masker) -> _Ids:
    """Return the prompt of a turn without its system prompts, which may name the time."""
    if not view.leading:
        return tuple(turn.prompt_ids)
    try:
        return tuple(masker.prompt_ids(view.messages[view.leading : place], tools=view.tools))
    except TemplateRefusedError:
        return tuple(turn.prompt_ids)


RECIPE = PreferenceRecipe()
