"""Operators and layers in TensorFlow."""

import copy
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.models.tf.operations import differentiable
from openxla.benchmark.operators import models
from openxla.benchmark.operators.definition import Layer


class OperatorModel(tf.Module, models.OperatorModel):
    """A function; weights of a layer are variables."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_operator(parameters)
        self.held = {name: tf.Variable(value) for name, value in self.weights().items()}

    def forward(self, *inputs: Any) -> Any:
        """Runs the operator, eagerly or as part of the `tf.function` that calls it."""
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if self.trains:
            return self._with_gradients(*self.split(tensors))
        return self._call(*tensors)

    def as_float64(self) -> "OperatorModel":
        """Returns a copy with the same weights in float64."""
        wide = copy.copy(self)
        wide.held = {name: tf.Variable(tf.cast(v, tf.float64)) for name, v in self.held.items()}
        return wide

    def _call(self, *inputs: Any) -> Any:
        if isinstance(self.operator, Layer):
            return self.operator.tensorflow(self.held, *inputs)
        return self.operator.tensorflow(*inputs)

    def _with_gradients(self, inputs: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        floating = [value for value in inputs if value.dtype.is_floating]
        sources = [*floating, *(self.held[name] for name in self.trained)]
        with differentiable(), tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs = as_tuple(self._call(*inputs))
            targets = [value for value in outputs if value.dtype.is_floating]
        gradients = tape.gradient(targets, sources, output_gradients=list(cotangents))
        # Gradients of gathered rows are `IndexedSlices`.
        return (*outputs, *map(tf.convert_to_tensor, gradients))


create_model = models.creator(OperatorModel)
