"""Plans a night: what each recipe could use, why the rest falls away, what it costs, which to run."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from train.evaluation.held_out import examined_by_replay, held_out_tasks
from train.evaluation.replayable import select
from train.recipes import attempts_per_row, recipe_module, steps_per_epoch
from train.recipes.base import Selection
from train.recipes.settings import RECIPES, Recipe, RecipeSpec, shipped_recipe
from train.substrate.content import message_sizes
from train.substrate.manifest import SubstrateManifest, load_items, stale_items
from train.substrate.source import LearningSource

LADDER = ("sft", "grpo_live", "awr", "grpo_replay", "dpo", "kto")
"""The order in which the planner picks: what improved models in trials first.

Learning from rewarded steps improved every model that was tried; preferences mined from logs
mostly harmed them, so they come last and only where nothing else has data.
"""

_CHARACTERS_PER_TOKEN = 3.5
"""Rough, for English and JSON; a run's manifest has the exact number."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a run, estimated without reading content."""

    tokens: int
    """Of all epochs."""
    optimizer_steps: int
    flops: float | None
    """6 × parameters × tokens; None without a base model."""
    seconds: float | None
    """By the speed of the last finished run of this recipe on this base; None when there is none."""


@dataclass(frozen=True, slots=True)
class RecipePlan:
    """Plan of one recipe for a substrate."""

    recipe: str
    usable: int
    """Units: items (sft, awr, kto), pairs (dpo), groups of attempts (grpo_replay), tasks (grpo_live)."""
    items: int
    fallen: Mapping[str, int]
    """Reason → items that it would not use."""
    held_out: Mapping[str, int]
    """Held-out tasks that ``evaluation`` and ``regression`` can try in the replayed environment; empty
    where the document asks for no such thing."""
    obstacles: tuple[str, ...]
    """Why it cannot run at all; empty when it can."""
    made: str | None
    """``name@version`` that it already made of this very version and that passed its gate."""
    base: str | None
    """What that began with: ``name@version``, or the name of a folder."""
    awaits_promotion: bool
    """Whether that never served nor was tried, and nothing else of its name has been since."""
    cost: Cost

    @property
    def runnable(self) -> bool:
        """Whether it would be more than an empty or degenerate run."""
        return not self.obstacles


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of all recipes for a substrate."""

    substrate: str
    version: str
    items: int
    stale: int
    """Items that may no longer be learned from: any, and every run is refused."""
    left_out_steps: Mapping[str, int]
    left_out_items: Mapping[str, int]
    recipes: tuple[RecipePlan, ...]
    pick: str | None
    """The recipe to run; None when none can."""
    reason: str
    """Why this one, or why none."""


def plan_training(
    source: LearningSource,
    substrate: SubstrateManifest,
    *,
    recipes: Sequence[Recipe] | None = None,
    base: Path | None = None,
    model: str | None = None,
) -> Plan:
    """Return what each recipe could use of a substrate, and which one to run.

    Args:
        source: the lake.
        substrate: what to learn from.
        recipes: the user's own documents; a recipe that is not among them is planned as shipped.
        base: model folder, for the cost in FLOPs.
        model: for which model; what was made for others does not count. Any when None.
    """
    own: dict[str, Recipe] = {recipe.spec.recipe: recipe for recipe in recipes or ()}
    stale = len(stale_items(source, substrate))
    plans = tuple(
        _plan_recipe(source, substrate, own.get(name) or shipped_recipe(name), stale, base, model)
        for name in RECIPES
    )
    pick, reason = _pick(plans)
    return Plan(
        substrate=substrate.name,
        version=substrate.version,
        items=len(substrate.item_ids),
        stale=stale,
        left_out_steps=substrate.left_out_steps,
        left_out_items=substrate.left_out_items,
        recipes=plans,
        pick=pick,
        reason=reason,
    )


def _plan_recipe(
    source: LearningSource,
    substrate: SubstrateManifest,
    recipe: Recipe,
    stale: int,
    base: Path | None,
    model: str | None,
) -> RecipePlan:
    spec = recipe.spec
    module = recipe_module(spec.recipe)
    items = load_items(substrate)
    selection = select(source, spec, items)
    examined = {
        name: held_out_tasks(source, items, suite)
        for name, suite in examined_by_replay(spec).items()
    }
    obstacles = []
    if stale:
        obstacles.append(f"stale: {stale} items may no longer be learned from; build it again")
    if module.purpose not in substrate.spec.purposes:
        obstacles.append(f"purpose {module.purpose} is not among the substrate's purposes")
    if len(selection.units) < spec.data.minimum_items:
        obstacles.append(
            f"{len(selection.units)} usable, fewer than data.minimum_items {spec.data.minimum_items}"
        )
    obstacles += [
        obstacle for name, tasks in examined.items() if (obstacle := tasks.obstacle(name))
    ]
    made = _last_made(source, recipe, substrate, model)
    refused = made is not None and made.status == "refused"
    if refused:
        obstacles.append("the gate refused what this recipe made of this substrate last time")
    used = [entry.item for entry in selection.items]
    characters = _characters(spec, selection, message_sizes(source, used))
    training = spec.training
    steps = math.ceil(steps_per_epoch(spec, _rows(spec, selection)) * training.epochs)
    tokens = characters / _CHARACTERS_PER_TOKEN * training.epochs
    if training.maximum_steps is not None and steps > 0:
        tokens *= min(1.0, training.maximum_steps / steps)
        steps = training.maximum_steps
    parameters = None if base is None else _parameters(base)
    speed = _last_speed(source, spec.recipe, base)
    return RecipePlan(
        recipe=spec.recipe,
        usable=len(selection.units),
        items=len(used),
        fallen=selection.fallen,
        held_out={name: len(tasks.tasks) for name, tasks in examined.items()},
        obstacles=tuple(obstacles),
        made=None if made is None or refused else made.label,
        base=None if made is None else made.base,
        awaits_promotion=made is not None and made.status == "candidate" and made.is_next,
        cost=Cost(
            tokens=round(tokens),
            optimizer_steps=math.ceil(steps),
            flops=None if parameters is None else 6.0 * parameters * tokens,
            seconds=None if not speed else tokens / speed,
        ),
    )


def _rows(spec: RecipeSpec, selection: Selection) -> int:
    """Return how many rows units make: attempts that need share no task are put together in groups."""
    alone = all(len(unit) == 1 for unit in selection.units)
    together = attempts_per_row(spec) if spec.options.get("credit") is not None and alone else 1
    return len(selection.units) // together


def _characters(spec: RecipeSpec, selection: Selection, sizes: Mapping[str, int]) -> float:
    """Return how much text one epoch shows: of a task, as many attempts as its group has."""
    if spec.options.get("credit") is not None or attempts_per_row(spec) == 1:
        return sum(sizes.values())
    means = (
        sum(sizes[entry.item.item_id] for entry in unit) / len(unit) for unit in selection.units
    )
    return sum(means) * attempts_per_row(spec)


def _pick(plans: Sequence[RecipePlan]) -> tuple[str | None, str]:
    by_name = {entry.recipe: entry for entry in plans}
    passed_over: list[str] = []
    for name in LADDER:
        entry = by_name[name]
        if entry.runnable and entry.made is not None:
            passed_over.append(f"{name} (made {entry.made} of this version)")
        elif entry.runnable:
            before = f"; passed over: {'; '.join(passed_over)}" if passed_over else ""
            return name, f"{name} can use {entry.usable}{before}"
        else:
            passed_over.append(f"{name} ({', '.join(entry.obstacles)})")
    return None, "; ".join(passed_over)


@dataclass(frozen=True, slots=True)
class _Made:
    """What a recipe made."""

    label: str
    base: str
    status: str
    is_next: bool
    """Whether no version of its name was put to use since it was registered."""


_MADE = """
SELECT m.name || '@' || m.version AS label, coalesce(m.base, '') AS base, m.status, r.manifest, NOT EXISTS (
    SELECT 1 FROM models other WHERE other.name = m.name AND other.status NOT IN ('candidate', 'refused')
    AND other.recorded_at > (SELECT min(recorded_at) FROM models own
                             WHERE own.name = m.name AND own.version = m.version)) AS is_next
FROM models_latest m JOIN runs_latest r ON m.run_id = r.run_id
WHERE r.recipe = ? AND r.substrate = ? AND r.substrate_version = ? AND m.name = coalesce(?, m.name)
ORDER BY r.started_at DESC
"""


def _last_made(
    source: LearningSource, recipe: Recipe, substrate: SubstrateManifest, model: str | None
) -> _Made | None:
    """Return what a recipe last made of this very version, for one model or for any.

    New data deserves another try, and so does a changed document: neither has such a past.
    """
    asked = [recipe.spec.recipe, substrate.name, substrate.version, model]
    spec = recipe.model_dump(mode="json")["spec"]
    for row in source.query(_MADE, parameters=asked).to_pylist():
        if json.loads(row["manifest"]).get("recipe", {}).get("spec") == spec:
            return _Made(row["label"], row["base"], row["status"], row["is_next"])
    return None


def _last_speed(source: LearningSource, recipe: str, base: Path | None) -> float | None:
    """Return tokens per second of the last finished run of a recipe on a model of this size."""
    found = source.query(
        "SELECT metrics FROM runs_latest WHERE status = 'done' AND recipe = ? "
        "ORDER BY started_at DESC LIMIT 20",
        parameters=[recipe],
    )
    size = None if base is None else _parameters(base)
    for row in found.to_pylist():
        metrics = json.loads(row["metrics"])
        if size is None or metrics.get("parameters") == size:
            speed = metrics.get("tokens_per_second")
            return None if speed is None else float(speed)
    return None


def _parameters(base: Path) -> int:
    """Count the parameters of a model folder from the headers of its weight files."""
    total = 0
    for path in base.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        total += sum(math.prod(t["shape"]) for n, t in header.items() if n != "__metadata__")
    return total
