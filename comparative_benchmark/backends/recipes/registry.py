"""The recipes that users can name: built-in recipes, plug-ins, and recipes of torchao's guide.

Users of the guide write recipes into `string_to_config()`.
"""

import functools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from comparative_benchmark.backends.recipes.definition import Chosen, Parameter, Recipe, RecipeError
from comparative_benchmark.backends.recipes.table import RECIPES
from openxla.benchmark.operators import guide_functions
from openxla.benchmark.plugins import plugins
from openxla.benchmark.text import choices

GROUP = "comparative_benchmark.recipes"
# The backend that applies recipes of torchao's guide.
GUIDE_BACKEND = "pt_inductor"
# The function has no minimum: below the lowest one of the table, no signal remains.
_GUIDE_MIN_SQNR_DB = 5.0
# By name; these recipes have no parameters.
_from_guide: dict[str, Recipe] = {}


@functools.cache
def recipes() -> Mapping[str, Recipe]:
    """Returns all recipes by name, except recipes of torchao's guide."""
    # Older installations still register the built-in recipes, in modules that no longer exist.
    found = {
        plugin.name: plugin.value for plugin in reversed(plugins(GROUP, Recipe, built_in=False))
    }
    # A plug-in cannot replace a built-in one.
    found.update((recipe.name, recipe) for recipe in RECIPES)
    return {name: found[name] for name in sorted(found)}


def accept_from_guide(name: str) -> guide_functions.Refusal | None:
    """Accepts a name if `string_to_config()` of torchao's guide makes a configuration of it.

    A child process imports the function: this process imports no framework.

    Returns:
      Why the function makes none; None if the name is a recipe from now on.
    """
    if refusal := guide_functions.why_no_recipe(name):
        return refusal
    _accept(name)
    return None


def accept_options(options: Collection[str], known: Collection[str]) -> None:
    """Accepts, in a worker, the names that the parent has accepted.

    Args:
      options: options of a compiler.
      known: options that the compiler itself defines.
    """
    for option in options:
        if option not in known and not is_one(option):
            _accept(option)


def _accept(name: str) -> None:
    _from_guide[name] = Recipe(
        name=name,
        description=f"from string_to_config() of {guide_functions.FILE}",
        min_sqnr_db=_GUIDE_MIN_SQNR_DB,
        by_backend={GUIDE_BACKEND: _guide_configuration},
    )


def _guide_configuration(label: str) -> tuple[Any, None]:
    """Returns torchao's configuration; the class of weights that it makes is unknown."""
    # The function passes unknown names to `parse`, which must not return to the function.
    accepted = dict(_from_guide)
    _from_guide.clear()
    try:
        config = guide_functions.config_of(label)
    finally:
        _from_guide.update(accepted)
    if config is None:
        raise NotImplementedError(f"string_to_config() returned None for {label!r}")
    return config, None


def parse(text: str) -> Chosen:
    """Returns the recipe with parameters that `text` names; all of it must match.

    Raises:
      RecipeError: it does not name one.
    """
    if text in _from_guide:
        return Chosen(label=text, recipe=_from_guide[text], values={"label": text})
    name = text
    given: list[str] = []
    while name not in recipes():
        name, dash, last = name.rpartition("-")
        if not dash:
            raise RecipeError(_unknown(text))
        given.insert(0, last)
    recipe = recipes()[name]
    if len(given) != len(recipe.parameters):
        raise RecipeError(f"{text!r}: expected {recipe.usage}")
    values = {
        parameter.name: _number(text, parameter, value)
        for parameter, value in zip(recipe.parameters, given, strict=True)
    }
    return Chosen(label=text, recipe=recipe, values=values)


def chosen_among(options: Iterable[str]) -> Chosen | None:
    """Returns the recipe among the options of a compiler; None without one.

    Raises:
      RecipeError: there are two.
    """
    found = [parse(option) for option in options if is_one(option)]
    if len(found) > 1:
        both = " and ".join(item.label for item in found)
        raise RecipeError(f"{both} cannot be applied together; choose one recipe")
    return found[0] if found else None


def is_one(text: str) -> bool:
    """Returns whether a text is the name of a recipe with its parameters."""
    try:
        parse(text)
    except RecipeError:
        return False
    return True


def _number(text: str, parameter: Parameter, value: str) -> int:
    number = int(value) if value.isascii() and value.isdecimal() else 0
    if number < 1 or (parameter.choices and number not in parameter.choices):
        choices_are = f"choices are {', '.join(map(str, parameter.choices))}"
        expected = choices_are if parameter.choices else "expected a number above 0"
        raise RecipeError(f"{text!r}: {parameter.name} is {value!r}; {expected}")
    return number


def _unknown(text: str) -> str:
    known = [recipe.usage for recipe in recipes().values()]
    return f"unknown recipe {text!r}; {choices(text, known, cutoff=0.5)}"
