"""TensorFlow models: the function that XLA compiles, its captured weights, and Keras layers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.backends.intermediates import Note, layer_of, widened
from openxla.benchmark.models.shared_model import as_tuple
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


def record_layers(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64, eagerly, and records each layer's output; returns the outputs."""
    if not hasattr(model, "weight_names"):
        raise UnsupportedError(f"{type(model).__name__} does not define weight_names")
    wide = model.as_float64()
    layers = {}
    for path, name in model.weight_names.items():
        if part := path.rpartition("/")[0]:
            layers[id(_at(wide.layer, part))] = layer_of(name)
    with _watched(layers, note):
        outputs = wide.forward(*(widened(value) for value in inputs))
    return tuple(value.numpy() for value in as_tuple(outputs))


def _at(layer: Any, path: str) -> Any:
    """Returns the layer at a path such as `layers/0/attention/query`."""
    for part in path.split("/"):
        layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
    return layer


@contextmanager
def _watched(layers: Mapping[int, str], note: Note) -> Iterator[None]:
    """Records the outputs of these layers, given by `id`, by wrapping the call that all share."""
    import keras

    call = keras.layers.Layer.__call__

    def noting(self: Any, *arguments: Any, **options: Any) -> Any:
        output = call(self, *arguments, **options)
        value = as_tuple(output)[0]
        # Tensors of a graph under construction have no value yet.
        if id(self) in layers and hasattr(value, "numpy"):
            note(layers[id(self)], value.numpy())
        return output

    keras.layers.Layer.__call__ = noting
    try:
        yield
    finally:
        keras.layers.Layer.__call__ = call
