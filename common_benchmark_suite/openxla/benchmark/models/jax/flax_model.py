"""What our flax.nnx models share: weights from a checkpoint, and a pure `apply`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints, preprocessing, shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import element_type

# A leaf of the module: its path in the module, the checkpoint's name for it, and the transpose
# that turns the checkpoint's layout into ours (None: as it is).
Weight = tuple[tuple[str | int, ...], str, tuple[int, ...] | None]

LINEAR = (1, 0)  # [out, in] -> [in, out]
CONV = (2, 3, 1, 0)  # [out, in, height, width] -> [height, width, in, out]


class FlaxModel(shared_model.ArchitectureModel):
    """A flax.nnx module whose weights are arguments.

    `params` is a tree of arrays in the module's structure; `apply(params, *inputs)` is pure, so
    `jax.jit(model.apply)` compiles a program that takes the weights as arguments. `weight_names`
    has the checkpoint's name of each, by its path.
    """

    def __init__(
        self,
        architecture: Architecture,
        parameters: Parameters,
        build: Callable[[Mapping[str, Any], nnx.Rngs], nnx.Module],
        weights: Callable[[Mapping[str, Any]], Iterator[Weight]],
    ) -> None:
        self.set_architecture(architecture, parameters)
        config = architecture.config(str(parameters["model_name"]))
        # Shapes only: random weights that are overwritten at once would cost time and memory.
        abstract = nnx.eval_shape(lambda: build(config, nnx.Rngs(0)))
        self._graph, self._state = nnx.split(abstract)
        dtype = preprocessing.numpy_dtype(element_type(parameters["data_type"]))
        self.weight_names = {path: name for path, name, _ in weights(config)}
        tensors = checkpoints.load_tensors(architecture, self.checkpoint)
        self.params = _tree(
            (path, _array(tensors[name], transpose, dtype))
            for path, name, transpose in weights(config)
        )

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Runs the model with the given weights; pure, to be jitted."""
        state = jax.tree.map(lambda leaf: leaf, self._state)
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(self._graph, state)(*inputs)

    def forward(self, *inputs: Any) -> Any:
        """Runs the model with its own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))


def _array(tensor: Any, transpose: tuple[int, ...] | None, dtype: Any) -> jax.Array:
    ours = tensor if transpose is None else np.transpose(tensor, transpose)
    return jnp.asarray(ours.astype(dtype, copy=False))


def _tree(leaves: Iterator[tuple[tuple[str | int, ...], jax.Array]]) -> dict[str | int, Any]:
    tree: dict[str | int, Any] = {}
    for path, leaf in leaves:
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = leaf
    return tree
