"""Plain runs of a JAX function that round as a recipe does, or move its constants."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.recipes.rounding import Grid, Rounding, rounded

# The output of these operations on a weight still counts as that weight.
SAME_VALUES = frozenset({"convert_element_type", "copy", "reshape", "squeeze", "transpose"})
_LOOPS = frozenset({"scan", "while", "cond"})


def run(closed: Any, held: Sequence[bool], arguments: Sequence[Any], rounding: Rounding) -> Any:
    """Returns the outputs of a traced program, computed operation by operation.

    Args:
      closed: the jaxpr with its constants, from `jax.make_jaxpr`.
      held: for each argument, whether it is a weight.
      arguments: in order.
      rounding: rounding of the factors of products with weights.

    Raises:
      UnsupportedError: a loop holds products.
    """
    return _Run(rounding).outputs(closed.jaxpr, closed.consts, held, arguments)


def run_moved(closed: Any, arguments: Sequence[Any], move: Callable[[Any], Any]) -> Any:
    """Returns the outputs of a traced program whose constants are replaced, op by op.

    Constants inside a loop are not replaced.

    Args:
      closed: the jaxpr with its constants, from `jax.make_jaxpr`.
      arguments: in order.
      move: returns the replacement of a constant.
    """
    held = [False] * len(arguments)
    return _Run(Rounding(), move).outputs(closed.jaxpr, closed.consts, held, arguments)


class _Run:
    def __init__(self, rounding: Rounding, move: Callable[[Any], Any] | None = None) -> None:
        self._rounding, self._move = rounding, move

    def outputs(
        self, program: Any, constants: Sequence[Any], held: Sequence[bool], given: Sequence[Any]
    ) -> list[Any]:
        if self._move is not None:
            constants = [self._move(value) for value in constants]
        values = dict(zip(program.constvars, constants, strict=True))
        values |= dict(zip(program.invars, given, strict=True))
        weights = {name for name, is_weight in zip(program.invars, held, strict=True) if is_weight}

        def read(name: Any) -> Any:
            if not isinstance(name, Literal):
                return values[name]
            # Newer tracers leave arrays where they are used.
            is_array = self._move is not None and np.ndim(name.val) > 0
            return self._move(name.val) if self._move is not None and is_array else name.val

        for equation in program.eqns:
            found = [read(name) for name in equation.invars]
            are_weights = [
                not isinstance(name, Literal) and name in weights for name in equation.invars
            ]
            made = self._evaluate(equation, found, are_weights)
            values |= dict(zip(equation.outvars, made, strict=True))
            if equation.primitive.name in SAME_VALUES and are_weights[0]:
                weights.update(equation.outvars)
        return [read(name) for name in program.outvars]

    def _evaluate(self, equation: Any, found: list[Any], held: Sequence[bool]) -> Sequence[Any]:
        name, parameters = equation.primitive.name, equation.params
        inner = parameters.get("jaxpr") or parameters.get("call_jaxpr")
        if name not in _LOOPS and inner is not None:
            program, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            return self.outputs(program, constants, held, found)
        if self._move is None and name in _LOOPS and "dot_general" in str(equation):
            raise UnsupportedError("a loop contains matrix products")
        if any(held):
            self._round_factors(equation, found, held)
        bound = equation.primitive.get_bind_params(parameters)
        # Before JAX 0.10, functions were separate from the other parameters.
        functions, bound = bound if isinstance(bound, tuple) else ((), bound)
        with equation.ctx.manager:
            made = equation.primitive.bind(*functions, *found, **bound)
        made = made if equation.primitive.multiple_results else [made]
        grid = self._rounding.outputs
        return made if grid is None else [_rounded(value, grid, None) for value in made]

    def _round_factors(self, equation: Any, found: list[Any], held: Sequence[bool]) -> None:
        if equation.primitive.name == "dot_general":
            axes = equation.params["dimension_numbers"][0]
        elif equation.primitive.name == "conv_general_dilated" and self._rounding.convolutions:
            # Axes of batch, features and space in the inputs, and likewise in the kernel.
            numbers = equation.params["dimension_numbers"]
            axes = (numbers.lhs_spec[1:], numbers.rhs_spec[1:])
        else:
            return
        for place, is_weight in enumerate(held):
            grid = self._rounding.weights if is_weight else self._rounding.activations
            if grid is not None:
                found[place] = _rounded(found[place], grid, axes[place])


def _rounded(value: Any, grid: Grid, axes: Sequence[int] | None) -> Any:
    if not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
        return value
    wide = np.asarray(value, np.float32)
    axes = tuple(range(wide.ndim)) if axes is None else axes
    return jax.numpy.asarray(rounded(wide, grid, axes), value.dtype)
