"""A recipe, and a recipe with its parameters."""

import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from comparative_benchmark.backends.recipes.rounding import Rounding


class RecipeError(LookupError):
    """Unknown recipe or invalid parameters; the message lists the choices."""


class NotAppliedError(RuntimeError):
    """A recipe was accepted and changed nothing."""


@attrs.frozen(kw_only=True)
class Parameter:
    """A number that follows the name of a recipe, as the 4 in `intx-4-64`.

    Attributes:
      name: what the number means.
      choices: the allowed numbers; empty if any number above 0 is allowed.
    """

    name: str
    choices: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Recipe:
    """One way to compute in fewer bits, or with fewer weights.

    Attributes:
      name: the name on the command line; its parameters follow, each after a `-`.
      description: what it does to weights and activations.
      parameters: in order.
      min_sqnr_db: minimum signal-to-quantisation-noise ratio of a model's outputs in dB, or a
        function of the parameters' values that returns it. Below it, a model has lost its signal.
      rounding: the values to round, or a function of the parameters' values that returns them, so
        that a plain run can round in the same way; None if the recipe does not round.
      by_nncf_in: backends that use NNCF, which also rounds the weights of convolutions, and to a
        grid with one more number below zero than above.
      by_backend: by the name of the backend, a function that makes the configuration of the
        backend's library, or its path as `module:function`. The function gets the parameters by
        name. It runs only in workers, and imports the library itself.
      lacking: by the name of a backend, why it cannot be applied there.
      trains: the backends in which a model with this recipe has all gradients: of its inputs and of
        the changed weights.
      products: the type of the factors of its products, `int8` or `fp8`, which selects the ceiling
        to compare it with; None if products are in the model's own type.
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
      recipe: the recipe.
      values: values of its parameters; for a recipe of torchao's guide, the label.
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
        """Returns the values that it rounds in a backend; None if unknown."""
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
