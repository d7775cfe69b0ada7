"""Truth, reference and cost of a TensorFlow model."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks.tensorflow_models import function_of
from comparative_benchmark.tf_xla.backend import to_numpy
from comparative_benchmark.tf_xla.cost import cost
from openxla.benchmark.models.shared_model import ArchitectureModel, as_tuple
from openxla.benchmark.user_models.programs.program_model import rounded

__all__ = ["compute", "cost", "in_own_type", "nearby"]


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and op by op in its own type, on the CPU.

    The float64 run uses the same weights as the model, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs.

    Raises:
      TypeError: the model has no `as_float64()`, or its result computes in another type.
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
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if not isinstance(model, ArchitectureModel):
            # A model that compiles its `forward` must not be its own compiler's reference.
            with contextlib.suppress(Exception), _without_functions():
                return _run(model, tensors)
        return _run(model, tensors)


def nearby(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a plain run on weights and inputs that are off by a spacing.

    The weights are variables, and the tensors that the model closes over.
    """
    with tf.device("CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in rounded(inputs)]
        try:
            traced = function_of(model.forward, jit_compile=None).get_concrete_function(*tensors)
        except Exception:  # it looks at values: only its inputs are moved
            return _run(model, tensors)
        variables = [item for item in traced.graph.variables if item.dtype.is_floating]
        handles = {id(variable.handle) for variable in traced.graph.variables}
        for seed, tensor in enumerate(traced.captured_inputs):
            if id(tensor) not in handles and tensor.dtype.is_floating:
                off = tf.convert_to_tensor(_moved(tensor, seed))
                spec = tf.TensorSpec(tensor.shape, tensor.dtype)
                traced.replace_capture_with_deferred_capture(tensor, lambda off=off: off, spec)
        kept = [np.asarray(variable.numpy()) for variable in variables]
        try:
            for seed, variable in enumerate(variables):
                variable.assign(_moved(variable, seed))
            return [to_numpy(value) for value in as_tuple(traced(*tensors))]
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)


def _moved(value: Any, seed: int) -> Array:
    (off,) = rounded([np.asarray(value.numpy())], spacings=1.0, seed=seed)
    return off


@contextlib.contextmanager
def _without_functions() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _run(model: Any, tensors: list[Any]) -> list[Any]:
    return [to_numpy(value) for value in as_tuple(model.forward(*tensors))]
