"""Recipes that a user writes into `string_to_config()`, as torchao's guide describes."""

from collections.abc import Collection
from typing import Any

from comparative_benchmark.recipes import registry
from comparative_benchmark.recipes.registry import Recipe
from openxla.benchmark.operators import guide_functions

BACKEND = "pt_inductor"
# The function names no limit: below the least one of our recipes a model has lost its signal.
_MIN_SQNR_DB = 5.0


def why_none(name: str) -> guide_functions.Refusal | None:
    """Returns why the function makes no recipe of a name; None if it makes one, which now counts.

    A child process imports the function: this process imports no framework.
    """
    if refusal := guide_functions.why_no_recipe(name):
        return refusal
    accept(name)
    return None


def accept(name: str) -> None:
    """Takes a name for a recipe of the function from now on."""
    registry.accept(
        name,
        Recipe(
            name=name,
            description=f"from string_to_config() of {guide_functions.FILE}",
            min_sqnr_db=lambda _: _MIN_SQNR_DB,
            by_backend={BACKEND: f"{__name__}:with_torchao"},
        ),
    )


def accept_among(options: Collection[str], known: Collection[str]) -> None:
    """Accepts, in a worker, the options that the parent has accepted.

    Args:
      options: of a compiler.
      known: options of the compiler itself.
    """
    for option in options:
        if option not in known and not registry.is_one(option):
            accept(option)


def with_torchao(label: str) -> tuple[Any, None]:
    """Returns torchao's configuration; the class of weights that it makes is unknown.

    Raises:
      NotImplementedError: the function makes none.
    """
    # The function asks the registry for all other names.
    with registry.registered_only():
        config = guide_functions.config_of(label)
    if config is None:
        raise NotImplementedError(f"string_to_config() returned None for {label!r}")
    return config, None
