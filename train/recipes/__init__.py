"""Recipes on TRL's own trainers, each a module and a YAML file of the same name."""

from importlib import import_module

from train.errors import DocumentError
from train.recipes.base import RecipeModule
from train.recipes.settings import RECIPES


def recipe_module(name: str) -> RecipeModule:
    """Return the recipe of a name.

    Raises:
        DocumentError: there is no recipe of this name.
    """
    if name not in RECIPES:
        raise DocumentError(f"unknown recipe {name!r}; there are {', '.join(RECIPES)}")
    module: RecipeModule = import_module(f"train.recipes.{name}").RECIPE
    return module
