"""Operators and layers in JAX."""

from typing import Any

import jax.numpy as jnp

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.operators import models
from openxla.benchmark.operators.definition import Layer


class OperatorModel(models.OperatorModel):
    """A pure function; `params` are the weights of a layer, and empty of an operator."""

    def __init__(self, parameters: Parameters) -> None:
        self.set_operator(parameters)
        self.params = {name: jnp.asarray(value) for name, value in self.weights().items()}

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Runs it with the given weights, to be jitted."""
        if isinstance(self.operator, Layer):
            return self.operator.jax(params, *inputs)
        return self.operator.jax(*inputs)

    def forward(self, *inputs: Any) -> Any:
        """Runs it with its own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))


create_model = models.creator(OperatorModel)
