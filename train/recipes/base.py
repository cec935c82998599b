"""Base of every recipe: it selects items, makes rows of them and builds a trainer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from train.chat import UnrenderableError
from train.recipes.settings import RecipeSpec
from train.runs.epoch_order import resumable
from train.runs.rows import Masker
from train.substrate.content import ContentStore, Conversation, View
from train.types import ScoredItem
from trajectory.documents.document import StrictModel


@dataclass(frozen=True, slots=True)
class Selection:
    """The items that a recipe would use, and why it would not use the others."""

    units: tuple[tuple[ScoredItem, ...], ...]
    """What is learned as one: one item (sft), a pair (dpo), a group of attempts (grpo)."""
    fallen: Mapping[str, int]
    """Reason → items."""

    @property
    def items(self) -> tuple[ScoredItem, ...]:
        """All items of all units, each once, in order."""
        return tuple({entry.item.item_id: entry for unit in self.units for entry in unit}.values())


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows for a trainer's data set, in column form, and what was dropped on the way."""

    columns: Mapping[str, list[Any]] = field(repr=False)
    dropped: Mapping[str, int]
    """Reason → rows that could not be made."""
    item_ids: tuple[str, ...] = field(repr=False)
    """The items that each row came from, row by row (several joined by a space)."""

    def __len__(self) -> int:
        return len(self.item_ids)

    @property
    def tokens(self) -> int:
        """Number of tokens in all token columns of the rows."""
        names = [name for name in self.columns if name.endswith("_ids")]
        return sum(len(ids) for name in names for ids in self.columns[name])


class RowBuilder:
    """Collects rows and counts what is dropped."""

    def __init__(self, *columns: str) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._item_ids: list[str] = []
        self.dropped: Counter[str] = Counter()

    def add(self, item_ids: str, **values: Any) -> None:
        """Add one row; every column needs a value."""
        for name, column in self._columns.items():
            column.append(values[name])
        self._item_ids.append(item_ids)

    def learned(self, entry: ScoredItem, view: View, content: ContentStore) -> list[int]:
        """Return which of an agent's answers are imitated, and count those that a person corrected."""
        corrected = corrected_places(entry, view, content)
        self.dropped["corrected"] += len(corrected)
        return [place for place in view.trained if place not in corrected]

    def __len__(self) -> int:
        return len(self._item_ids)

    def build(self) -> Rows:
        """Return the rows."""
        return Rows(self._columns, counted(self.dropped), tuple(self._item_ids))


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """Arguments from which a recipe builds its trainer."""

    spec: RecipeSpec
    model: Any
    tokenizer: Any
    base: Path
    """Folder of the base model, for trainers that load a reference of their own."""
    rows: Rows
    arguments: Mapping[str, Any]
    """Arguments common to all of TRL's configurations."""
    callbacks: Sequence[Any]
    adapter: Any
    """A peft configuration or None."""

    def for_trainer(self, columns: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the arguments of every TRL trainer but its configuration; ``columns`` replace those of the rows."""
        from datasets import Dataset

        return {
            "model": self.model,
            "train_dataset": Dataset.from_dict(dict(columns or self.rows.columns)),
            "processing_class": self.tokenizer,
            "callbacks": list(self.callbacks),
            "peft_config": self.adapter,
        }


class RecipeModule(Protocol):
    """A recipe. Modules of this package each hold one instance named ``RECIPE``."""

    @property
    def name(self) -> str: ...

    @property
    def purpose(self) -> str:
        """The purpose that every item must be allowed for."""
        ...

    @property
    def makes(self) -> str:
        """``policy``: a model that can serve; ``reward_model``: one that scores episodes."""
        ...

    @property
    def options(self) -> type[StrictModel]:
        """Options that ``spec.options`` accepts."""
        ...

    def select(self, items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
        """Choose items of the train side; cheap, without content."""
        ...

    def rows(
        self, selection: Selection, content: ContentStore, masker: Masker, spec: RecipeSpec
    ) -> Rows:
        """Make rows; whatever cannot become one is counted by reason."""
        ...

    def trainer(self, parts: TrainerParts) -> Any:
        """Return the TRL trainer, ready to train."""
        ...


@cache
def on_token_ids(trainer_class: type) -> Any:
    """Return a trainer class of TRL that is resumable and takes rows that are token ids already."""

    class PreparedTrainer(resumable(trainer_class)):  # type: ignore[misc]
        """A trainer whose rows need no preparation."""

        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    return PreparedTrainer


def sft_arguments(parts: TrainerParts) -> dict[str, Any]:
    """Return the arguments of TRL's configuration for rows that our masking function made."""
    grouped = parts.spec.training.group_by_length
    return {
        **parts.arguments,
        "train_sampling_strategy": "group_by_length" if grouped else "random",
        "max_length": None,  # the masking function cuts rows, and counts what it cuts
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }


def conversation_of(
    entry: ScoredItem, content: ContentStore, builder: RowBuilder
) -> Conversation | None:
    """Return an item's conversation, or count why there is none."""
    try:
        return content.conversation(entry.item)
    except UnrenderableError as error:
        builder.dropped[error.reason] += 1
        return None


def corrected_places(entry: ScoredItem, view: View, content: ContentStore) -> set[int]:
    """Return where a view holds answers of which a person said what they should have been."""
    tenant = entry.item.tenant_id
    said = zip(view.trained, view.step_ids, strict=False)
    return {place for place, step in said if (tenant, step) in content.corrections}


def groups_with_contrast(
    items: Sequence[ScoredItem], fallen: Counter[str]
) -> list[tuple[ScoredItem, ...]]:
    """Return the attempts at each task that has some that were rewarded and some that were not.

    A task with one attempt, or whose attempts all ended alike, says nothing about better or worse.
    """
    groups: dict[tuple[str, str], list[ScoredItem]] = {}
    for entry in items:
        groups.setdefault((entry.item.tenant_id, entry.item.group_id), []).append(entry)
    kept = []
    for _, group in sorted(groups.items()):
        if len({entry.item.trajectory_id for entry in group}) == 1:
            fallen["group_of_one"] += len(group)
        elif len({entry.rewarded for entry in group}) == 1:
            fallen["no_contrast"] += len(group)
        else:
            kept.append(tuple(group))
    return kept


def held_out_side(items: Sequence[ScoredItem]) -> list[ScoredItem]:
    """Return the held-out items as if they were the train side, to make rows for a measurement."""
    return [replace(entry, split="train") for entry in items if entry.split != "train"]


def select_contrasting(items: Sequence[ScoredItem], spec: RecipeSpec) -> Selection:
    """Choose the train side's groups of attempts that hold rewarded and unrewarded ones."""
    fallen: Counter[str] = Counter()
    groups = groups_with_contrast(train_side(items, fallen), fallen)
    return Selection(limited(groups, spec.data.maximum_items, fallen), counted(fallen))


def train_side(items: Sequence[ScoredItem], fallen: Counter[str]) -> list[ScoredItem]:
    """Return the items that are not held out; the others are counted."""
    kept = [entry for entry in items if entry.split == "train"]
    fallen["held_out"] += len(items) - len(kept)
    return kept


def limited[T](units: Sequence[T], maximum: int | None, fallen: Counter[str]) -> tuple[T, ...]:
    """Return at most so many units (they come in the order of item ids, which is arbitrary)."""
    kept = tuple(units if maximum is None else units[:maximum])
    if len(kept) < len(units):
        fallen["over_maximum"] += len(units) - len(kept)
    return kept


def counted(fallen: Counter[str]) -> dict[str, int]:
    """Return the reasons that occurred, sorted."""
    return {reason: count for reason, count in sorted(fallen.items()) if count}
