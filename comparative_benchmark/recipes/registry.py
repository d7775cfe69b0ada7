"""Which recipes there are, and what a name stands for."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from comparative_benchmark.recipes.rounding import Rounding
from openxla.benchmark.nearest import choices
from openxla.benchmark.plugins import plugins

GROUP = "comparative_benchmark.recipes"
# By their whole name; see `accept`.
_accepted: dict[str, "Recipe"] = {}


class RecipeError(LookupError):
    """No such recipe, or it does not take such parameters; the message gives the choices."""


class NotAppliedError(RuntimeError):
    """A recipe was accepted and changed nothing."""


@attrs.frozen(kw_only=True)
class Parameter:
    """A number that follows the name of a recipe, as the 4 in `intx-4-64`.

    Attributes:
      name: what it is.
      choices: the numbers that it may be; any above 0 where there are none.
    """

    name: str
    choices: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Recipe:
    """One way to compute in fewer bits, or with fewer weights.

    Attributes:
      name: how users call it; its parameters follow, each after a `-`.
      description: what it does to weights and activations.
      parameters: in order.
      min_sqnr_db: least signal-to-quantisation-noise ratio of a model's outputs, by the values
        of its parameters: what is below has lost the model.
      rounding: gives the values to round for given parameters, so that a plain run can round them
        in the same way; None if it does not round.
      by_nncf_in: the backends that leave it to NNCF, which rounds the weights of convolutions, too,
        and to a grid that holds one number more below zero than above.
      by_backend: who applies it, `module:function`, by the name of the backend. The function takes
        the parameters by name and returns what the backend's own way of applying it wants.
      lacking: by the name of a backend, why it cannot be applied there.
      trains: the backends in which a model that it was applied to has all gradients: of its inputs
        and of the weights that it changed.
      products: the type of the factors of its products, `int8` or `fp8`, whose ceiling it is judged
        by; None where products are in the model's own type.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    min_sqnr_db: Callable[[Mapping[str, int]], float]
    rounding: Callable[[Mapping[str, int]], Rounding] | None = None
    by_nncf_in: tuple[str, ...] = ()
    by_backend: Mapping[str, str] = attrs.field(factory=dict)
    lacking: Mapping[str, str] = attrs.field(factory=dict)
    trains: tuple[str, ...] = ()
    products: str | None = None

    @property
    def usage(self) -> str:
        """The name with its parameters, e.g. `intx-<bits>-<group>`."""
        return "-".join([self.name, *(f"<{parameter.name}>" for parameter in self.parameters)])


@attrs.frozen(kw_only=True)
class Chosen:
    """A recipe with its parameters.

    Attributes:
      label: as the user wrote it, e.g. `intx-4-64`.
      recipe: which.
      values: of its parameters; of one that is not registered, the label.
    """

    label: str
    recipe: Recipe
    values: Mapping[str, Any]

    @property
    def min_sqnr_db(self) -> float:
        """See `Recipe.min_sqnr_db`."""
        return self.recipe.min_sqnr_db(self.values)

    def rounding_in(self, backend: str) -> Rounding | None:
        """Returns the values that it rounds in a backend; None if that is unknown."""
        if self.recipe.rounding is None:
            return None
        found = self.recipe.rounding(self.values)
        if found.weights is None:
            return None
        if backend not in self.recipe.by_nncf_in:
            return found
        return attrs.evolve(
            found, convolutions=True, weights=attrs.evolve(found.weights, full_range=True)
        )

    def apply_in(self, backend: str) -> str:
        """Returns who applies it in a backend, `module:function`.

        Raises:
          RecipeError: nobody does; the message says why.
        """
        if backend not in self.recipe.by_backend:
            why = self.recipe.lacking.get(backend, f"{backend} cannot apply it")
            raise RecipeError(f"{self.label}: {why}")
        return self.recipe.by_backend[backend]


@functools.cache
def recipes() -> Mapping[str, Recipe]:
    """Returns every registered recipe by name."""
    # Built-in ones come first: a plug-in cannot replace them.
    found = {plugin.name: plugin.value for plugin in reversed(plugins(GROUP, Recipe))}
    return {name: found[name] for name in sorted(found)}


def accept(label: str, recipe: Recipe) -> None:
    """Takes a name, with its parameters, for a recipe that is not registered.

    The function that applies it gets the name as `label`.
    """
    _accepted[label] = recipe


@contextlib.contextmanager
def registered_only() -> Iterator[None]:
    """Gives a context in which no name counts that was accepted."""
    kept = dict(_accepted)
    _accepted.clear()
    try:
        yield
    finally:
        _accepted.update(kept)


def parse(text: str) -> Chosen:
    """Returns the recipe that a name with parameters stands for; the whole of it must match.

    Raises:
      RecipeError: it stands for none.
    """
    if text in _accepted:
        return Chosen(label=text, recipe=_accepted[text], values={"label": text})
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
    """Returns the recipe among the options of a compiler, None if there is none.

    Raises:
      RecipeError: there are two.
    """
    found = [parse(option) for option in options if is_one(option)]
    if len(found) > 1:
        both = " and ".join(item.label for item in found)
        raise RecipeError(f"{both} cannot be applied together; choose one recipe")
    return found[0] if found else None


def is_one(text: str) -> bool:
    """Tells whether a text is the name of a recipe with its parameters."""
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
