"""Supervised fine-tuning on the best attempt at each task: the shortest that was rewarded."""

from collections import Counter
from collections.abc import Sequence

from train.recipes.base import Selection, counted
from train.recipes.settings import RecipeSpec
from train.recipes.sft import SupervisedRecipe
from train.types import ScoredItem


class BestAttempts(SupervisedRecipe):
    """Rows and trainer are those of ``sft``; what is learned is chosen anew."""

    name = "sft_best"

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        """Keep of each task's rewarded attempts the one with the fewest messages."""
        found = super().select(items, spec)
        best: dict[tuple[str, ...], ScoredItem] = {}
        for entry in sorted(
            found.items, key=lambda one: (len(one.item.message_ids), one.item.item_id)
        ):
            best.setdefault(entry.item.task, entry)
        fallen = Counter(found.fallen)
        fallen["not_the_best"] += len(found.units) - len(best)
        return Selection(tuple((entry,) for entry in best.values()), counted(fallen))


RECIPE = BestAttempts()
