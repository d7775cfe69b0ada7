"""Operators and layers in TensorFlow."""

import copy
from typing import Any

import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.operators import models
from openxla.benchmark.operators.definition import Layer


class OperatorModel(tf.Module, models.OperatorModel):
    """A function; weights of a layer are variables."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_operator(parameters)
        self.held = {name: tf.Variable(value) for name, value in self.weights().items()}

    def forward(self, *inputs: Any) -> Any:
        """Runs it, eagerly or as part of the `tf.function` that calls it."""
        tensors = map(tf.convert_to_tensor, inputs)
        if isinstance(self.operator, Layer):
            return self.operator.tensorflow(self.held, *tensors)
        return self.operator.tensorflow(*tensors)

    def as_float64(self) -> "OperatorModel":
        """Returns a copy with float64 weights, of the same values."""
        wide = copy.copy(self)
        wide.held = {name: tf.Variable(tf.cast(v, tf.float64)) for name, v in self.held.items()}
        return wide


create_model = models.creator(OperatorModel)
