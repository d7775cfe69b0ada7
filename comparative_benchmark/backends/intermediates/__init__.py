"""Outputs of each layer of a model, under names that all frameworks share. Runs in a worker.

A layer is a module that holds weights itself; its name is the checkpoint's prefix of these weights,
as in `encoder.layer.1.output.dense`. Modules that only hold other modules are left out: their
boundaries depend on the framework, while a matrix product is the same in all of them. Later calls
of a layer are named `name@n`, for n from 2.

Everything runs in float64: two implementations of one model then agree to many digits, and a layer
where they do not agree computes something else.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from comparative_benchmark.backends.api import ModelDefinition, UnsupportedError, load_object
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models.shared_model import as_tuple

Array = npt.NDArray[Any]
Note = Callable[[str, Array], None]

# By framework, the function that runs a model in float64 and records the outputs of its layers.
RECORDERS: Mapping[str, str] = MappingProxyType(
    {
        "pytorch": f"{__name__}.torch_modules:run",
        "jax": f"{__name__}.flax_modules:run",
        "tensorflow_v2": f"{__name__}.keras_layers:run",
    }
)


class Recording:
    """Outputs of layers, by name, in the order of execution."""

    def __init__(self) -> None:
        self.layers: dict[str, Array] = {}
        self._calls: dict[str, int] = {}

    def note(self, name: str, value: Array) -> None:
        """Adds the output of a call of a layer."""
        number = self._calls[name] = self._calls.get(name, 0) + 1
        # Copy, because the framework may write into its buffer later.
        self.layers[name if number == 1 else f"{name}@{number}"] = np.array(value)


def record(
    framework: str, model: Any, inputs: Sequence[Array]
) -> tuple[Mapping[str, Array], list[Array]]:
    """Returns the outputs of a model's layers in float64, and its outputs.

    The model must not be used afterwards: it may have been widened in place.

    Raises:
      UnsupportedError: layers of such a model are not supported.
    """
    if framework not in RECORDERS:
        known = ", ".join(RECORDERS)
        raise UnsupportedError(f"layers of {framework} models cannot be seen, only of {known}")
    recording = Recording()
    outputs = load_object(RECORDERS[framework])(model, inputs, recording.note)
    if not recording.layers:
        raise UnsupportedError(
            f"no layer of {type(model).__name__} could be told by the checkpoint's names"
        )
    return recording.layers, [np.asarray(value) for value in as_tuple(outputs)]


def save(
    *,
    framework: str,
    module_path: str,
    parameters: Mapping[str, Any],
    inputs: Sequence[str],
    directory: str,
) -> dict[str, Any]:
    """Creates a model and writes the outputs of its layers; lets the parent use `record`.

    Returns:
      `layers`, names in the order of execution: the n-th is in `layer_<n>.npy`. The outputs are
      in `output_<n>.npy`.
    """
    model = ModelDefinition(module_path=module_path, parameters=parameters).create()
    values = [array_files.load(Path(path)) for path in inputs]
    layers, outputs = record(framework, model, values)
    array_files.save_all(Path(directory), "layer", list(layers.values()))
    array_files.save_all(Path(directory), "output", outputs)
    return {"layers": list(layers)}


def widened(value: Array) -> Array:
    """Returns floating-point numbers as float64, others unchanged."""
    # numpy does not treat bfloat16 as a floating-point type; its kind is V.
    is_float = value.dtype.kind == "f" or value.dtype.name == "bfloat16"
    return value.astype(np.float64) if is_float else value


def layer_of(weight_name: str) -> str:
    """Returns the name of the layer that a weight belongs to."""
    return weight_name.rpartition(".")[0]
