"""TensorFlow models on their way to XLA: the function to trace, and its captured weights."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from comparative_benchmark.backends.api import Array
from openxla.benchmark.models.tf.operations import lowered_by_xla


def function_of(forward: Callable[..., Any], *, jit_compile: bool | None) -> Any:
    """Returns a `tf.function` of positional arguments.

    It has no default arguments: with the defaults of `forward`, TensorFlow cannot return what XLA
    made of it. With `jit_compile`, our models set the type in which XLA sums.
    """

    def positional(*arguments: Any) -> Any:
        with lowered_by_xla() if jit_compile else nullcontext():
            return forward(*arguments)

    return tf.function(positional, jit_compile=jit_compile)


def captured(concrete: Any) -> dict[str, Array]:
    """Returns the captured inputs of a traced function by name, in XLA's order.

    This is the order of capture, which may alternate between tensors and variables.
    """
    variables = {id(variable.handle): variable for variable in concrete.graph.variables}
    held: dict[str, Array] = {}
    for index, item in enumerate(concrete.captured_inputs):
        variable = variables.get(id(item))
        name = f"constant.{index}" if variable is None else f"{index}.{variable.name}"
        held[name] = np.asarray((item if variable is None else variable).numpy())
    return held
