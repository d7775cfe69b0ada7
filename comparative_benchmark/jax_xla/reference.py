"""Truth, reference and cost of a JAX model."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks.jax_models import split, widened
from comparative_benchmark.backends.recipes.rounding import Rounding
from comparative_benchmark.jax_xla.cost import cost
from comparative_benchmark.jax_xla.quantised_run import run, run_moved
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models.programs.program_model import rounded

__all__ = ["compute", "cost", "in_own_type", "nearby", "quantised"]


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and op by op in its own type, on the CPU.

    The float64 run takes the weights as the model holds them, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs.
    """
    apply, params = split(model)
    # If a GPU is the default device, the model has put its weights there.
    cpu = jax.devices("cpu")[0]
    same_type = in_own_type(model, inputs)
    with jax.default_device(cpu), jax.enable_x64(True):
        wide_params, wide_inputs = widened(jax.device_put((params, tuple(inputs)), cpu))
        outputs = as_tuple(jax.jit(apply)(wide_params, *wide_inputs))
        truth = [np.asarray(value) for value in outputs]
    for value in truth:
        if value.dtype.kind == "f" and value.dtype != np.float64:
            raise TypeError(
                f"the model computes in {value.dtype} instead of float64; define `params` and "
                "`apply(params, *inputs)` so that they follow the type of their arguments"
            )
    return truth, same_type


def in_own_type(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run in the model's own type, op by op, on the CPU."""
    apply, params = split(model)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu), jax.disable_jit():
        values = apply(*jax.device_put((params, *inputs), cpu))
        return [np.asarray(value) for value in as_tuple(values)]


def nearby(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run, op by op, on weights and inputs that are off by a spacing.

    The weights are `params`, and the arrays that the model closes over.
    """
    apply, params = split(model)
    cpu = jax.devices("cpu")[0]
    moved: dict[int, tuple[Any, Any]] = {}

    def move(value: Any) -> Any:
        if not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
            return value
        # One array may be used in several places.
        if id(value) not in moved:
            (off,) = rounded([np.asarray(value)], spacings=1.0, seed=len(moved))
            moved[id(value)] = value, jax.device_put(off, cpu)
        return moved[id(value)][1]

    with jax.default_device(cpu):
        given = (jax.tree.map(move, params), *jax.device_put(rounded(inputs), cpu))
        try:
            traced = jax.make_jaxpr(lambda *values: as_tuple(apply(*values)))(*given)
        except jax.errors.JAXTypeError:  # it looks at values: only its inputs are moved
            return in_own_type(model, rounded(inputs))
        outputs = run_moved(traced, jax.tree.leaves(given), move)
        return [np.asarray(value) for value in outputs]


def quantised(model: Any, inputs: Sequence[Array], rounding: Rounding) -> list[Array]:
    """Returns the outputs of an op-by-op run on the CPU that rounds as a recipe does."""
    apply, params = split(model)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        params, *values = jax.device_put((params, *inputs), cpu)
        traced = jax.make_jaxpr(lambda *given: as_tuple(apply(*given)))(params, *values)
        leaves = jax.tree.leaves(params)
        held = [True] * len(leaves) + [False] * len(values)
        outputs = run(traced, held, [*leaves, *values], rounding)
        return [np.asarray(value) for value in outputs]
