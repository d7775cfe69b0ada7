"""Outputs of each layer of a model, under names that all frameworks share. Runs in a worker.

A layer is a module that holds weights itself; its name is the checkpoint's prefix of these weights,
as in `encoder.layer.1.output.dense`. Modules that only hold other modules are left out: their
boundaries depend on the framework, while a matrix product is the same in all of them. Later calls
of a layer are named `name@n`, for n from 2.

Everything runs in float64: two implementations of one model then agree to many digits, and a layer
where they do not agree computes something else.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import Array, ModelDefinition, UnsupportedError, load_object
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models.shared_model import as_tuple

# Adds the output of a call of a layer, by the name of the layer.
Note = Callable[[str, Array], None]

_FRAMEWORKS = "comparative_benchmark.backends.frameworks"
# By framework, the function that runs a model in float64 and records the outputs of its layers.
RECORDERS: Mapping[str, str] = MappingProxyType(
    {
        "pytorch": f"{_FRAMEWORKS}.torch_modules:record_layers",
        "jax": f"{_FRAMEWORKS}.jax_models:record_layers",
        "tensorflow_v2": f"{_FRAMEWORKS}.tensorflow_models:record_layers",
    }
)


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
        raise UnsupportedError(f"cannot record layers of {framework} models, only of {known}")
    layers: dict[str, Array] = {}
    calls = Counter[str]()

    def note(name: str, value: Array) -> None:
        calls[name] += 1
        # Copy, because the framework may write into its buffer later.
        layers[name if calls[name] == 1 else f"{name}@{calls[name]}"] = np.array(value)

    outputs = load_object(RECORDERS[framework])(model, inputs, note)
    if not layers:
        raise UnsupportedError(
            f"no layer of {type(model).__name__} matches a name in the checkpoint"
        )
    return layers, [np.asarray(value) for value in as_tuple(outputs)]


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
