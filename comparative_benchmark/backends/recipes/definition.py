"""A recipe with its parameters, and the rounding that a plain run repeats.

Grids are symmetric and scaled by their largest number. Correct programs measured so far have up to
1.2 dB more noise than a run with these grids, and up to 3 dB less (docs/design/0035).
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Self

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt

_LARGEST_STEP = 1e5
Floats = npt.NDArray[Any]


@attrs.frozen
class Grid:
    """Numbers that a few bits can represent.

    Attributes:
      kind: `int2` to `int8`, `uint8` (from the least to the largest number), `fp8` (e4m3), `fp4`
        (e2m1), or `2:4` (the two largest of each four).
      share: numbers with a common scale: a `tensor`, the `row` that a product sums over, or a group
        of this size in a row.
      scale: possible scales: any float32, a power of two, or a number in float8.
      full_range: whether integers go down to -2^(bits-1): the largest number above zero is then off
        by a whole step.
    """

    kind: str
    share: Literal["tensor", "row"] | int = "row"
    scale: Literal["any", "power of two", "fp8"] = "any"
    full_range: bool = False


@attrs.frozen(kw_only=True)
class Rounding:
    """The values that a recipe rounds.

    Attributes:
      weights: grid of the weights of products.
      activations: grid of the other factors of these products; None if they are not rounded.
      outputs: grid of the outputs of all operations; None if they are not rounded.
      convolutions: whether convolutions count as products.
      spared: name of a weight that is not rounded, because it belongs to no layer that libraries
        quantise: they find another choice of experts to be another function; None for none.
    """

    weights: Grid | None = None
    activations: Grid | None = None
    outputs: Grid | None = None
    convolutions: bool = False
    spared: str | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the rounding from its fields, as made by `attrs.asdict`."""
        made: dict[str, Any] = {
            name: Grid(**value) if isinstance(value, dict) else value
            for name, value in fields.items()
        }
        return cls(**made)


def rounded(values: Floats, grid: Grid, axes: Sequence[int] = (-1,)) -> Floats:
    """Returns an array rounded to a grid, in its own type.

    Args:
      values: array of any shape.
      grid: the grid to round to.
      axes: axes that a product sums over; they form a row.
    """
    last = tuple(range(-len(axes), 0))
    moved = np.moveaxis(values, axes, last)
    rows = moved.astype(np.float64).reshape(*moved.shape[: moved.ndim - len(axes)], -1)
    if grid.share == "tensor":
        held = _on_grid(rows.reshape(1, -1), grid)
    elif isinstance(grid.share, int) and rows.shape[-1] > grid.share:
        width = rows.shape[-1]
        padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -width % grid.share)])
        held = _on_grid(padded.reshape(*rows.shape[:-1], -1, grid.share), grid)
        held = held.reshape(padded.shape)[..., :width]
    else:
        held = _on_grid(rows, grid)
    return np.moveaxis(held.reshape(moved.shape), last, axes).astype(values.dtype)


def _on_grid(rows: Floats, grid: Grid) -> Floats:
    """Rounds rows, each with a separate scale."""
    if not rows.size:
        return rows
    if grid.kind == "2:4":
        if rows.shape[-1] % 4:
            return rows
        fours = rows.reshape(*rows.shape[:-1], -1, 4)
        least = np.sort(np.abs(fours), axis=-1)[..., 2:3]
        kept: Floats = np.where(np.abs(fours) >= least, fours, 0.0)
        return kept.reshape(rows.shape)
    if grid.kind == "uint8":
        low = np.minimum(rows.min(axis=-1, keepdims=True), 0.0)
        step = np.maximum(rows.max(axis=-1, keepdims=True), 0.0) / 255 - low / 255
        # A mask of -1e9, or of the least number, leaves no range to divide.
        divisible = (step > 0) & (step < _LARGEST_STEP)
        step = np.where(divisible, step, 1.0)
        return np.where(divisible, np.round(rows / step) * step, rows)
    largest: Floats = np.abs(rows).max(axis=-1, keepdims=True)
    if grid.kind.startswith("int"):
        top = float(2 ** (int(grid.kind[3:]) - 1) - 1)
        most = top + grid.full_range
        return _times(
            lambda scaled: np.clip(np.round(scaled), -most, top), rows, _scale(largest / most, grid)
        )
    kind, top = {"fp8": (ml_dtypes.float8_e4m3fn, 448.0), "fp4": (ml_dtypes.float4_e2m1fn, 6.0)}[
        grid.kind
    ]
    return _times(
        lambda scaled: np.clip(scaled, -top, top).astype(kind).astype(np.float64),
        rows,
        _scale(largest / top, grid),
    )


def _times(round_: Callable[[Floats], Floats], rows: Floats, scale: Floats) -> Floats:
    held: Floats = round_(rows / scale) * scale
    return held


def _scale(due: Floats, grid: Grid) -> Floats:
    """Rounds scales to the representable ones."""
    scale: Floats = np.where(due == 0, 1.0, due)
    if grid.scale == "power of two":
        scale = np.exp2(np.ceil(np.log2(scale)))
    elif grid.scale == "fp8":
        whole = scale.max() / 448.0
        held = (scale / whole).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        scale = np.maximum(held, 2.0**-9) * whole
    return scale


# By `CompilerInfo.precision`.
ROUNDING_OF_PRECISION: Mapping[str, Rounding] = MappingProxyType(
    {
        "dynamic-range": Rounding(
            weights=Grid("int8"), activations=Grid("int8"), convolutions=True
        ),
        "int8": Rounding(weights=Grid("int8"), outputs=Grid("uint8", "tensor"), convolutions=True),
    }
)


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
            skips = backend in ("pt_inductor", "jax_xla")
            return attrs.evolve(rounding, spared="router") if skips else rounding
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
