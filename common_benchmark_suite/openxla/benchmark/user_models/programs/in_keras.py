"""In a worker: a `.keras` or `.h5` file saved by Keras."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.user_models.inputs import Array
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs import keras_file
from openxla.benchmark.user_models.programs.in_saved_model import TYPES, TensorFlowProgram
from openxla.benchmark.user_models.programs.program_model import NotWidenedError
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.loading import refusing

_POLICIES = frozenset(
    {"float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16", "float64"}
)
_NARROW = (tf.float32, tf.float16, tf.bfloat16)


class KerasProgram(TensorFlowProgram):
    """A model saved by Keras; its outputs are the leaves of the return value.

    Attributes:
      layer: the model, under the name that exporters look for.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._allows_code = parameters.get("pickled") is True
        keras_file.check(self.path, allow_code=self._allows_code)
        with refusing(f"{self.path} cannot be loaded by Keras {keras.__version__}"):
            self.layer = keras.saving.load_model(
                str(self.path), compile=False, safe_mode=not self._allows_code
            )
        self.check_types({_type_of(variable) for variable in self.layer.variables})

    @property
    def variables(self) -> tuple[Any, ...]:
        """The weights of the model."""
        return tuple(self.layer.variables)

    def signature(self) -> Signature:
        """Returns the model's signature, from its input specifications."""
        where = self.path.name
        try:
            inputs = self.layer.inputs
        except (AttributeError, ValueError):
            inputs = None
        if not inputs:
            raise UserModelError(
                f"{where} does not define its inputs; save a functional or sequential model, or "
                "call the model before saving it"
            )
        names = [getattr(v, "name", None) or f"input_{i}" for i, v in enumerate(inputs)]
        kinds = [TYPES.get(tf.as_dtype(value.dtype)) for value in inputs]
        shapes = [tuple(value.shape) for value in inputs]
        return Signature.of(where, zip(names, kinds, shapes, strict=True))

    def forward(self, *inputs: Any) -> Any:
        """Runs the model, eagerly or as part of the `tf.function` that calls it."""
        return _call(self.layer, inputs)

    def in_float64(self, inputs: Sequence[Array]) -> Callable[..., Any]:
        """See `TensorFlowProgram`; the copy has this model's weights."""
        config = _widened(keras.saving.serialize_keras_object(self.layer))
        wide = keras.saving.deserialize_keras_object(config, safe_mode=not self._allows_code)
        ours, theirs = self.layer.variables, wide.variables
        if [v.shape for v in ours] != [v.shape for v in theirs]:
            raise NotWidenedError("the rebuilt model has different variables")
        for target, source in zip(theirs, ours, strict=True):
            if tf.as_dtype(target.dtype) in _NARROW:
                raise NotWidenedError(f"the variable {target.path} stays in {_type_of(target)}")
            target.assign(tf.cast(tf.convert_to_tensor(source), target.dtype))
        _refuse_narrow(wide, inputs)
        return lambda *values: _call(wide, values)


def create_model(**parameters: Any) -> KerasProgram:
    """Returns the program of a file.

    Raises:
      UserModelError: the file is incomplete, or holds code.
    """
    return KerasProgram(parameters)


def _call(model: Any, inputs: Sequence[Any]) -> Any:
    tensors = [tf.convert_to_tensor(value) for value in inputs]
    leaves = tuple(tf.nest.flatten(model(_arranged(model, tensors), training=False)))
    return leaves[0] if len(leaves) == 1 else leaves


def _arranged(model: Any, tensors: Sequence[Any]) -> Any:
    """Returns the inputs of a model in the structure that it was built with."""
    with contextlib.suppress(AttributeError, ValueError):  # not called yet
        return keras.tree.pack_sequence_as(model.input, list(tensors))
    return tensors[0] if len(tensors) == 1 else list(tensors)


def _type_of(variable: Any) -> str:
    return str(tf.as_dtype(variable.dtype).name)


def _widened(config: Any) -> Any:
    """Returns a configuration with all data types replaced by float64."""
    if isinstance(config, dict):
        return {key: _widened(value) for key, value in config.items() if key != "shared_object_id"}
    if isinstance(config, list | tuple):
        return type(config)(map(_widened, config))
    return "float64" if isinstance(config, str) and config in _POLICIES else config


def _refuse_narrow(model: Any, inputs: Sequence[Array]) -> None:
    """Raises NotWidenedError if a model computes in a narrower type than its variables."""
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in inputs]
    concrete = tf.function(lambda *values: _call(model, values)).get_concrete_function(*specs)
    graphs = [concrete.graph, *(f.graph for f in concrete.graph._functions.values())]  # noqa: SLF001
    for graph in graphs:
        for operation in getattr(graph, "get_operations", list)():
            # Constants are rounded once, by less than half a spacing of the result.
            is_constant = operation.type == "Const"
            if not is_constant and any(tensor.dtype in _NARROW for tensor in operation.outputs):
                raise NotWidenedError(f"{operation.name} returns a type narrower than float64")
