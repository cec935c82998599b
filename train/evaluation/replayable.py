"""Which tasks the replayed tool environment can play: those whose calls somebody once answered."""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from train.recipes import recipe_module
from train.recipes.base import Selection, counted
from train.recipes.grpo_live import REPLAY, GrpoLiveOptions
from train.recipes.settings import RecipeSpec
from train.substrate.source import LearningSource, rows_by_id
from train.types import ScoredItem


def select(source: LearningSource, spec: RecipeSpec, items: Sequence[ScoredItem]) -> Selection:
    """Return what a recipe would use of a substrate's items.

    A task whose agents called tools and were never answered cannot be tried again with recorded
    answers: every episode would end at its first call, and teach nothing.
    """
    selection = recipe_module(spec.recipe).select(items, spec)
    if spec.recipe != "grpo_live":
        return selection
    if GrpoLiveOptions.model_validate(spec.options).environment != REPLAY:
        return selection
    unanswered = _unanswered(source, selection)
    kept = [
        unit
        for unit in selection.units
        if not all(entry.item.item_id in unanswered for entry in unit)
    ]
    fallen = Counter(selection.fallen)
    lost = [unit for unit in selection.units if unit not in kept]
    fallen["no_recorded_answer"] += sum(len(unit) for unit in lost)
    return Selection(tuple(kept), counted(fallen))


def _unanswered(source: LearningSource, selection: Selection) -> set[str]:
    """Return the items whose steps called tools and never saw a result."""
    owners = pl.DataFrame(
        [(step, entry.item.item_id) for entry in selection.items for step in entry.item.step_ids],
        schema={"step_id": pl.String, "item_id": pl.String},
        orient="row",
    )
    counts = ("len(tool_calls) AS calls", "len(tool_results) AS results")
    steps = rows_by_id(source, "steps", "step_id", counts, owners["step_id"])
    items = (
        steps.join(owners, on="step_id").group_by("item_id").agg(pl.col("calls", "results").sum())
    )
    return set(items.filter((pl.col("calls") > 0) & (pl.col("results") == 0))["item_id"])
