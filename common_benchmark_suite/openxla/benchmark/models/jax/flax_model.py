"""Common parts of our flax.nnx models: weights from a checkpoint, and a pure `apply`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoint_tensors, checkpoints, preprocessing, shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import element_type

Build = Callable[[Mapping[str, Any], nnx.Rngs], nnx.Module]


class FlaxModel(shared_model.ArchitectureModel):
    """A flax.nnx module whose weights are arguments.

    `params` is a tree of arrays in the module's structure; `apply(params, *inputs)` is pure, so
    `jax.jit(model.apply)` compiles a program that takes the weights as arguments. `weight_names`
    maps paths to names in the checkpoint.
    """

    def __init__(self, architecture: Architecture, parameters: Parameters, build: Build) -> None:
        self.set_architecture(architecture, parameters)
        config = architecture.config(str(parameters["model_name"]))
        # Shapes only, because random weights would be overwritten at once.
        abstract = nnx.eval_shape(lambda: build(config, nnx.Rngs(0)))
        self._graph, self._state = nnx.split(abstract)
        dtype = preprocessing.numpy_dtype(element_type(parameters["data_type"]))
        shapes = {
            path: leaf.shape
            for path, leaf in nnx.traversals.flatten_mapping(nnx.to_pure_dict(self._state)).items()
        }
        tensors = checkpoints.load_tensors(architecture, self.checkpoint)
        self.weight_names: dict[checkpoint_tensors.VariablePath, str] = {}
        leaves = {}
        for path, name, value in checkpoint_tensors.placed_variables(
            architecture, config, shapes, tensors
        ):
            self.weight_names[path] = name
            leaves[path] = jnp.asarray(value.astype(dtype, copy=False))
        self.params = nnx.traversals.unflatten_mapping(leaves)

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Runs the model with the given weights; pure, can be jitted."""
        return self.module(params)(*inputs)

    def module(self, params: Any) -> Any:
        """Returns the module with the given weights."""
        state = jax.tree.map(lambda leaf: leaf, self._state)
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(self._graph, state)

    def forward(self, *inputs: Any) -> Any:
        """Runs the model with its own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))


def creator(architecture: Architecture, build: Build) -> Callable[..., FlaxModel]:
    """Returns the `create_model` of an architecture's module; see `shared_model.creator`."""
    return shared_model.creator(
        architecture, lambda parameters: FlaxModel(architecture, parameters, build)
    )
