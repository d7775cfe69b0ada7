"""In a worker: a model of JAX that was brought.

What the callable returns may be a `flax.nnx` module; a pair of a pure function `f(params, *inputs)`
(or a `flax.linen` module) and its parameters; or a function of the inputs alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openxla.benchmark.brought import inputs
from openxla.benchmark.brought.inputs import Array, BroughtModel
from openxla.benchmark.brought.loading import Brought
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.preprocessing import numpy_dtype


class JaxModel(BroughtModel):
    """A pure function and its weights; outputs are the leaves of what it returns.

    Attributes:
      params: a tree of arrays, in the model's type.
    """

    def __init__(self, function: Callable[..., Any], params: Any, parameters: Parameters) -> None:
        self.model_parameters = parameters
        self.example = self.file = None
        dtype = numpy_dtype(element_type(parameters["data_type"]))
        self.params = jax.tree.map(lambda leaf: _in_type(leaf, dtype), params)
        self._function = function

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Runs the model with the given weights; pure, to be jitted."""
        leaves = tuple(jax.tree.leaves(self._function(params, *inputs)))
        return leaves[0] if len(leaves) == 1 else leaves

    def forward(self, *inputs: Any) -> Any:
        """Runs the model with its own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of a run; JAX draws by keys that the model holds, not by a seed."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.forward(*inputs))]


def create_model(**parameters: Any) -> Any:
    """Returns the model of a file.

    Raises:
      BroughtError: it cannot be made, or is nothing that can be run in JAX.
    """
    brought = Brought(parameters, lambda _: None)
    made = brought.make(of_inputs=True)

    def wrapped(model: Any) -> JaxModel:
        function, params = _split(model, brought)
        result = JaxModel(function, params, parameters)
        result.example, result.file = brought.example_inputs(), brought.place.file
        return result

    return inputs.with_inputs(made, parameters, wrapped)


def _split(made: Any, brought: Brought) -> tuple[Callable[..., Any], Any]:
    """Returns a pure function of weights and inputs, and the weights."""
    if isinstance(made, tuple) and len(made) == 2:
        function, params = made
        function = getattr(function, "apply", function)
        if callable(function):
            return function, params
    elif nnx := _nnx_of(made):
        made.eval()  # dropout and batch norms as in inference
        # The state of its generators is not a weight, and inference draws nothing.
        graph, keys, state = nnx.split(made, nnx.RngState, ...)
        return (lambda weights, *inputs: nnx.merge(graph, keys, weights)(*inputs)), state
    elif callable(made):
        return (lambda _, *inputs: made(*inputs)), ()
    raise BroughtError(
        f"{brought.place} returned a {type(made).__name__}; return a flax.nnx module, a pair of a "
        "pure function f(params, *inputs) and its params, or a function of the inputs"
    )


def _nnx_of(made: Any) -> Any:
    """Returns flax.nnx where a model is one of its modules; else None."""
    try:
        from flax import nnx
    except ModuleNotFoundError:
        return None
    return nnx if isinstance(made, nnx.Module) else None


def _in_type(leaf: Any, dtype: np.dtype[Any]) -> Any:
    """Returns an array in the model's type if it is of float32; others are as they are."""
    array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    return array.astype(dtype) if array.dtype == jnp.float32 else array
