"""Common parts of our Keras models: weights from a checkpoint, in the model's type or float64."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoint_tensors, checkpoints, preprocessing, shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import element_type

Build = Callable[[Mapping[str, Any]], Any]


class KerasModel(shared_model.ArchitectureModel):
    """A Keras layer whose variables hold the weights of a checkpoint.

    All variables and all computation have the type that `data_type` names, without mixed precision;
    inputs are not cast.

    Args:
      architecture: architecture that defines configuration and checkpoint.
      parameters: parameters of the model; `model_name` and `data_type` are read here.
      build: makes the layer, with all variables, from a configuration.

    Attributes:
      layer: the layer, its variables set.
      weight_names: name in the checkpoint by path of the variable (attribute names and
        positions in lists, joined by "/").

    Raises:
      ValueError: weights are missing, of another shape, or leave a variable unset.
    """

    def __init__(self, architecture: Architecture, parameters: Parameters, build: Build) -> None:
        self.set_architecture(architecture, parameters)
        self._config = architecture.config(str(parameters["model_name"]))
        self._build = build
        dtype = preprocessing.numpy_dtype(element_type(parameters["data_type"]))
        self.layer = _built(build, self._config, dtype.name)
        variables = dict(variables_of(self.layer))
        # Keras reserves some names, such as `output`; our layers then end in "_".
        ours = {tuple(p.rstrip("_") if isinstance(p, str) else p for p in q): q for q in variables}
        shapes = {path: variables[place].shape for path, place in ours.items()}
        reached = set(map(id, variables.values()))
        shapes |= {(v.path,): v.shape for v in self.layer.variables if id(v) not in reached}
        tensors = checkpoints.load_tensors(architecture, self.checkpoint)
        self.weight_names = {}
        for path, name, value in checkpoint_tensors.placed_variables(
            architecture, self._config, shapes, tensors
        ):
            self.weight_names["/".join(map(str, ours[path]))] = name
            variables[ours[path]].assign(value.astype(dtype, copy=False))

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

        It uses the weights of this model, so that for a 16-bit model only the computation differs,
        not the rounding of the weights. Its inputs must be float64, too.
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
        layer = build(config)
    finally:
        keras.config.set_dtype_policy(before)
    others = {item.dtype for item in layer.variables if "float" in item.dtype} - {dtype}
    if others:
        raise TypeError(f"variables of {layer.name} are {', '.join(sorted(others))}, not {dtype}")
    return layer


def variables_of(
    part: Any, path: checkpoint_tensors.VariablePath = ()
) -> Iterator[tuple[checkpoint_tensors.VariablePath, Any]]:
    """Yields the variables of a part of a layer, by path."""
    if isinstance(part, keras.Variable):
        yield path, part
    elif isinstance(part, list | tuple):
        for index, item in enumerate(part):
            yield from variables_of(item, (*path, index))
    elif isinstance(part, keras.layers.Layer):
        for name, value in vars(part).items():
            if not name.startswith("_"):
                yield from variables_of(value, (*path, name))


def creator(architecture: Architecture, build: Build) -> Callable[..., KerasModel]:
    """Returns the `create_model` of an architecture's module; see `shared_model.creator`."""
    return shared_model.creator(
        architecture, lambda parameters: KerasModel(architecture, parameters, build)
    )
