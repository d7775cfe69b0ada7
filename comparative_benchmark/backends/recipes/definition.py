"""A recipe, and a recipe with its parameters."""

import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from comparative_benchmark.backends.recipes.rounding import Rounding


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
      min_sqnr_db: least signal-to-quantisation-noise ratio of a model's outputs, or a function that
        gives it for the values of the parameters. A model with less has lost its signal.
      rounding: the values to round, or a function that gives them for the values of the parameters,
        so that a plain run can round in the same way; None if the recipe does not round.
      by_nncf_in: the backends that leave it to NNCF, which rounds the weights of convolutions, too,
        and to a grid that holds one number more below zero than above.
      by_backend: by the name of the backend, a function that makes the configuration of the
        backend's library, or its path as `module:function`. The function gets the parameters by
        name. It runs only in workers, and imports the library itself.
      lacking: by the name of a backend, why it cannot be applied there.
      trains: the backends in which a model that it was applied to has all gradients: of its inputs
        and of the weights that it changed.
      products: the type of the factors of its products, `int8` or `fp8`, whose ceiling it is judged
        by; None where products are in the model's own type.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    min_sqnr_db: float | Callable[[Mapping[str, int]], float]
    rounding: Rounding | Callable[[Mapping[str, int]], Rounding] | None = None
    by_nncf_in: tuple[str, ...] = ()
    by_backend: Mapping[str, str | Callable[..., Any]] = attrs.field(factory=dict)
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
      values: of its parameters; for a recipe of torchao's guide, the label.
    """

    label: str
    recipe: Recipe
    values: Mapping[str, Any]

    @property
    def min_sqnr_db(self) -> float:
        """See `Recipe.min_sqnr_db`."""
        limit = self.recipe.min_sqnr_db
        return limit(self.values) if callable(limit) else limit

    def rounding_in(self, backend: str) -> Rounding | None:
        """Returns the values that it rounds in a backend; None if that is unknown."""
        rounding = self.recipe.rounding
        if callable(rounding):
            rounding = rounding(self.values)
        if rounding is None or rounding.weights is None:
            return None
        if backend not in self.recipe.by_nncf_in:
            return rounding
        return attrs.evolve(
            rounding, convolutions=True, weights=attrs.evolve(rounding.weights, full_range=True)
        )

    def check_backend(self, backend: str) -> None:
        """Raises RecipeError, with the reason, if a backend cannot apply it."""
        if backend not in self.recipe.by_backend:
            why = self.recipe.lacking.get(backend, f"{backend} cannot apply it")
            raise RecipeError(f"{self.label}: {why}")

    def configuration_in(self, backend: str, **changes: Any) -> Any:
        """Returns the configuration for a backend's library, which this imports.

        The guide "Add a recipe" lists the types.

        Args:
          backend: by name.
          **changes: values of parameters that replace the chosen ones.

        Raises:
          RecipeError: the backend cannot apply it.
          NotImplementedError: the library cannot apply it here, or not with these parameters.
        """
        self.check_backend(backend)
        make = self.recipe.by_backend[backend]
        function = pkgutil.resolve_name(make) if isinstance(make, str) else make
        return function(**{**self.values, **changes})
