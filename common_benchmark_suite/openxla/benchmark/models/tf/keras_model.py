"""What our Keras models share: weights from a checkpoint, in the model's own type or float64."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints, preprocessing, shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import element_type

# A variable: its path in the layer (attribute names and positions in lists, joined by "/"), the
# checkpoint's name for it, and the transpose that turns the checkpoint's layout into ours (None:
# as it is).
Weight = tuple[str, str, tuple[int, ...] | None]

LINEAR = (1, 0)  # [out, in] -> [in, out]
CONV = (2, 3, 1, 0)  # [out, in, height, width] -> [height, width, in, out]
DEPTHWISE = (2, 3, 0, 1)  # [channels, 1, height, width] -> [height, width, channels, 1]

Build = Callable[[Mapping[str, Any], str], Any]
_MOST_NAMED = 8


class KerasModel(shared_model.ArchitectureModel):
    """A Keras layer whose variables hold the weights of a checkpoint.

    All variables and all computation have the type that `data_type` names: there is no mixed
    precision, and no input is cast.

    Args:
      architecture: whose configuration and checkpoint to use.
      parameters: of the model; `model_name` and `data_type` are read here.
      build: makes the layer, with all variables, of a configuration and a type such as `float32`.
        Layers that it makes without naming a type get that one, too.
      weights: yields where each tensor of the checkpoint goes.

    Attributes:
      layer: the layer, its variables set.
      weight_names: the checkpoint's name of each variable, by its path.

    Raises:
      ValueError: weights are missing, of another shape, or leave a variable unset.
    """

    def __init__(
        self,
        architecture: Architecture,
        parameters: Parameters,
        build: Build,
        weights: Callable[[Mapping[str, Any]], Iterator[Weight]],
    ) -> None:
        self.set_architecture(architecture, parameters)
        self._config = architecture.config(str(parameters["model_name"]))
        self._build = build
        dtype = preprocessing.numpy_dtype(element_type(parameters["data_type"]))
        self.layer = _built(build, self._config, dtype.name)
        self.weight_names = {path: name for path, name, _ in weights(self._config)}
        tensors = checkpoints.load_tensors(architecture, self.checkpoint)
        _assign(self.layer, weights(self._config), tensors, dtype, self.checkpoint.name)

    def forward(self, *inputs: Any) -> Any:
        """Runs the model, eagerly or as part of the `tf.function` that calls it.

        Args:
          *inputs: numpy arrays or tensors, as `Architecture.input_specs` declares them.

        Returns:
          One tensor or a tuple of tensors.
        """
        return self.layer(*map(tf.convert_to_tensor, inputs))

    def as_float64(self) -> "KerasModel":
        """Returns a copy that computes in float64.

        It takes the weights as this model holds them, so that for a 16-bit model only the
        computation differs, not the rounding of the weights. Its inputs have to be float64, too.
        """
        wide = copy.copy(self)
        wide.layer = _built(self._build, self._config, "float64")
        for target, source in zip(wide.layer.variables, self.layer.variables, strict=True):
            target.assign(tf.cast(source.value, target.dtype))
        return wide


def _built(build: Build, config: Mapping[str, Any], dtype: str) -> Any:
    """Returns the layer, with `dtype` as the type of all its parts."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        layer = build(config, dtype)
    finally:
        keras.config.set_dtype_policy(before)
    others = {item.dtype for item in layer.variables if "float" in item.dtype} - {dtype}
    if others:
        raise TypeError(f"variables of {layer.name} are {', '.join(sorted(others))}, not {dtype}")
    return layer


def _assign(
    layer: Any,
    weights: Iterator[Weight],
    tensors: Mapping[str, Any],
    dtype: np.dtype[np.generic],
    checkpoint: str,
) -> None:
    """Sets every variable of a layer, one tensor in memory at a time.

    Raises:
      ValueError: weights are missing, of another shape, or leave a variable unset.
    """
    missing, mismatched = [], []
    paths = dict(_paths(layer))
    unset = {id(item): paths.get(id(item), item.path) for item in layer.variables}
    for path, name, transpose in weights:
        variable = _variable(layer, path)
        unset.pop(id(variable), None)
        if name not in tensors:
            missing.append(name)
            continue
        tensor = tensors[name]
        ours = tensor if transpose is None else np.transpose(tensor, transpose)
        if ours.shape != tuple(variable.shape):
            expected = tuple(variable.shape)
            mismatched.append(f"{name} is {ours.shape} for {path}, which is {expected}")
            continue
        variable.assign(ours.astype(dtype, copy=False))
    faults = {
        f"{checkpoint} lacks": missing,
        "of another shape": mismatched,
        "variables that no weight is for": list(unset.values()),
    }
    found = [f"{fault}: {_some(names)}" for fault, names in faults.items() if names]
    if found:
        raise ValueError(f"the weights do not fit {layer.name}: " + "; ".join(found))


def _variable(layer: Any, path: str) -> Any:
    """Returns the variable at a path such as `layers/0/norm/scale`.

    Raises:
      ValueError: there is none.
    """
    found = layer
    for part in path.split("/"):
        try:
            found = found[int(part)] if part.isdigit() else getattr(found, part)
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(f"{layer.name} has no variable {path}: {error}") from error
    if not isinstance(found, keras.Variable):
        raise TypeError(f"{path} of {layer.name} is no variable")
    return found


def _paths(part: Any, path: str = "") -> Iterator[tuple[int, str]]:
    """Yields the variables of a part of a layer: identity, and path as in `Weight`."""
    if isinstance(part, keras.Variable):
        yield id(part), path.removeprefix("/")
    elif isinstance(part, list | tuple):
        for index, item in enumerate(part):
            yield from _paths(item, f"{path}/{index}")
    elif isinstance(part, keras.layers.Layer):
        for name, value in vars(part).items():
            if not name.startswith("_"):
                yield from _paths(value, f"{path}/{name}")


def _some(names: Sequence[str]) -> str:
    """Returns names as a list for people, shortened."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
