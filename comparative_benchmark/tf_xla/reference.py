"""Truth and reference of a TensorFlow model, and what it costs."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from comparative_benchmark.backends.api import Array
from comparative_benchmark.tf_xla.backend import to_numpy
from comparative_benchmark.tf_xla.cost import cost
from openxla.benchmark.models.shared_model import as_tuple

__all__ = ["compute", "cost", "in_own_type"]


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and op by op in its own type, on the CPU.

    The float64 run takes the weights as the model holds them, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs.

    Raises:
      TypeError: the model has no `as_float64()`, or what that gives computes in another type.
    """
    if not hasattr(model, "as_float64"):
        raise TypeError(
            f"{type(model).__name__} needs a method as_float64() that returns it in float64"
        )
    with tf.device("CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        same_type = in_own_type(model, inputs)
        wide = [tf.cast(x, tf.float64) if x.dtype.is_floating else x for x in tensors]
        truth = _run(model.as_float64(), wide)
    for value in truth:
        if value.dtype.kind == "f" and value.dtype.itemsize < tf.float64.size:
            raise TypeError(f"the model computes in {value.dtype} although its weights are float64")
    return truth, same_type


def in_own_type(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run in the model's own type, op by op, on the CPU."""
    with tf.device("CPU:0"):
        return _run(model, [tf.convert_to_tensor(value) for value in inputs])


def _run(model: Any, tensors: list[Any]) -> list[Any]:
    return [to_numpy(value) for value in as_tuple(model.forward(*tensors))]
