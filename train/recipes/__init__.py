"""Recipes on TRL's own trainers, each a module and a YAML file of the same name; and plugins' own."""

import math
from importlib import import_module
from pathlib import Path

from train.recipes.base import RecipeModule
from train.recipes.settings import RECIPES, RecipeSpec
from trajectory.errors import DocumentError
from trajectory.plugins import RECIPES as PLUGINS
from trajectory.plugins import load_plugin


def recipe_module(name: str) -> RecipeModule:
    """Return the recipe of a name.

    Raises:
        DocumentError: there is no recipe of this name.
    """
    if name in RECIPES:
        shipped: RecipeModule = import_module(f"train.recipes.{name}").RECIPE
        return shipped
    plugin: RecipeModule | None = load_plugin(PLUGINS, name)
    if plugin is None:
        raise DocumentError(f"unknown recipe {name!r}; there are {', '.join(RECIPES)}")
    return plugin


def reward_model_of(spec: RecipeSpec) -> Path | None:
    """Return the folder of the reward model that a recipe scores by; None where it names none."""
    options = recipe_module(spec.recipe).options.model_validate(spec.options)
    found: Path | None = getattr(options, "reward_model", None)
    return found


def attempts_per_row(spec: RecipeSpec) -> int:
    """Return how many episodes a trainer makes of one row: the group of one task, else the row itself."""
    options = recipe_module(spec.recipe).options.model_validate(spec.options)
    return int(getattr(options, "group_size", 1))


def steps_per_epoch(spec: RecipeSpec, rows: int) -> int:
    """Return how many optimizer steps one pass over so many rows is."""
    options = recipe_module(spec.recipe).options.model_validate(spec.options)
    group = attempts_per_row(spec)
    if group == 1:
        return math.ceil(rows / spec.rows_per_step)
    # Whole batches of groups alone are learned, each as often as the recipe updates on it.
    return rows * group // spec.rows_per_step * int(getattr(options, "updates", 1))
