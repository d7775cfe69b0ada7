"""Recipes: ways to compute a model in fewer bits, or with fewer weights.

A recipe is a file that holds one `RECIPE`: what it is called, what follows its name, how much of
the signal it must keep, and who applies it in each backend. It is chosen as an option of a
compiler, `pt_inductor:inductor+int8wo`, so that any model is measured with it and raced against
itself without it. Nothing here imports a framework: that is done where a recipe is applied.
"""

from comparative_benchmark.recipes.registry import (
    Chosen,
    NotAppliedError,
    Parameter,
    Recipe,
    RecipeError,
    chosen_among,
    parse,
    recipes,
)

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
