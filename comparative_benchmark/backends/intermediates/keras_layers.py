"""Layers of Keras models, by wrapping the call that all layers share."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.intermediates import Array, Note, layer_of, widened
from openxla.benchmark.models.shared_model import as_tuple


def run(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64, eagerly, and records each layer's output; returns the outputs."""
    if not hasattr(model, "weight_names"):
        raise UnsupportedError(f"{type(model).__name__} does not say where its weights come from")
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
    """Records the outputs of these layers, given by `id`, inside the block."""
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
