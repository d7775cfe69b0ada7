"""Operators and layers in JAX."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.operators import models
from openxla.benchmark.operators.definition import Layer


class OperatorModel(models.OperatorModel):
    """A pure function; `params` are the weights of a layer, empty for other operators."""

    def __init__(self, parameters: Parameters) -> None:
        self.set_operator(parameters)
        self.params = {name: jnp.asarray(value) for name, value in self.weights().items()}

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Runs the operator with the given weights; can be jitted."""
        if self.trains:
            return self._with_gradients(params, *self.split(inputs))
        return self._call(params, *inputs)

    def forward(self, *inputs: Any) -> Any:
        """Runs the operator with its own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))

    def _call(self, params: Any, *inputs: Any) -> Any:
        if isinstance(self.operator, Layer):
            return self.operator.jax(params, *inputs)
        return self.operator.jax(*inputs)

    def _with_gradients(
        self, params: Any, inputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> tuple[Any, ...]:
        def call(trained: Any, floating: Any) -> tuple[Any, Any]:
            numbers = iter(floating)
            given = [next(numbers) if _is_floating(value) else value for value in inputs]
            outputs = as_tuple(self._call({**params, **trained}, *given))
            return tuple(filter(_is_floating, outputs)), outputs

        trained = {name: params[name] for name in self.trained}
        floating = tuple(filter(_is_floating, inputs))
        _, backward, outputs = jax.vjp(call, trained, floating, has_aux=True)
        of_weights, of_inputs = backward(tuple(cotangents))
        return (*outputs, *of_inputs, *(of_weights[name] for name in self.trained))


def _is_floating(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


create_model = models.creator(OperatorModel)
