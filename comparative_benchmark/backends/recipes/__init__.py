"""Recipes: ways to run a model with fewer bits or fewer weights.

A recipe has a name, parameters, a minimum signal-to-noise ratio, and a configuration for the
library of each backend. It is an option of a compiler, as in `pt_inductor:inductor+int8wo`, so that
any model can be raced against itself without the recipe. `registry` holds the built-in recipes;
packages add others. Importing a recipe imports no framework; workers do that.
"""

from comparative_benchmark.backends.recipes.definition import (
    Chosen,
    NotAppliedError,
    Parameter,
    Recipe,
    RecipeError,
)
from comparative_benchmark.backends.recipes.registry import chosen_among, parse, recipes

__all__ = [
    "Chosen",
    "NotAppliedError",
    "Parameter",
    "Recipe",
    "RecipeError",
    "chosen_among",
    "parse",
    "recipes",
]
