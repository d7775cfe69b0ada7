"""In a worker: a model of Keras or TensorFlow that was brought."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from openxla.benchmark.brought import inputs
from openxla.benchmark.brought.inputs import Array, BroughtModel
from openxla.benchmark.brought.loading import Brought, told
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.preprocessing import numpy_dtype


class TensorFlowModel(BroughtModel):
    """A Keras model, or another callable of TensorFlow; outputs are the leaves of what it returns.

    Args:
      made: what the file's callable returned.
      parameters: of the case.
      again: makes the same under a policy of Keras, for the float64 run; None where it cannot.
    """

    def __init__(
        self, made: Any, parameters: Parameters, again: Callable[[str], Any] | None
    ) -> None:
        self.model_parameters = parameters
        self.example = self.file = None
        self.model = made
        self._again = again
        self._forms: list[tuple[Any, Any]] = []

    def forward(self, *inputs: Any) -> Any:
        """Runs the model, eagerly or as part of the `tf.function` that calls it."""
        tensors = tuple(map(tf.convert_to_tensor, inputs))
        self._forms = [(tensor.shape, tensor.dtype) for tensor in tensors]
        is_keras = isinstance(self.model, keras.Layer)
        output = self.model(*tensors, training=False) if is_keras else self.model(*tensors)
        leaves = tuple(tf.nest.flatten(output))
        return leaves[0] if len(leaves) == 1 else leaves

    def as_array(self, value: Any) -> Array:
        """Returns a tensor as an array."""
        return np.asarray(value.numpy() if hasattr(value, "numpy") else value)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of an eager run."""
        tf.random.set_seed(seed)
        return [value.numpy() for value in tf.nest.flatten(self.forward(*inputs))]

    def as_float64(self) -> "TensorFlowModel":
        """Returns a copy that computes in float64, on the weights as this model holds them.

        The file makes it anew under Keras's float64 policy; Keras makes variables when a model is
        first run.

        Raises:
          BroughtError: it has variables that do not follow the policy.
        """
        if hasattr(self.model, "as_float64"):
            return TensorFlowModel(self.model.as_float64(), self.model_parameters, None)
        if self._again is None:
            raise BroughtError("the model is already float64")
        wide = TensorFlowModel(self._again("float64"), self.model_parameters, None)
        zeros = [tf.zeros(s, tf.float64 if d.is_floating else d) for s, d in self._forms]
        ours = self.model.variables
        try:
            wide.forward(*zeros)
            theirs = wide.model.variables
            if len(theirs) != len(ours) or any(map(_is_narrow, theirs)):
                raise TypeError("variables do not follow Keras's policy")
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise BroughtError(
                f"the model cannot be created in float64, which the truth needs: {told(error)}; "
                "add a method as_float64() to it"
            ) from error
        for target, source in zip(theirs, ours, strict=True):
            target.assign(tf.cast(tf.convert_to_tensor(source), target.dtype))
        return wide


def _is_narrow(variable: Any) -> bool:
    dtype = tf.as_dtype(variable.dtype)
    return bool(dtype.is_floating and dtype != tf.float64)


def create_model(**parameters: Any) -> Any:
    """Returns the model of a file.

    Raises:
      BroughtError: it cannot be made, or is nothing that can be called.
    """
    brought = Brought(parameters, keras.utils.set_random_seed)

    def again(policy: str) -> Any:
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            return brought.make()
        finally:
            keras.config.set_dtype_policy(before)

    made = again(numpy_dtype(element_type(parameters["data_type"])).name)
    if not callable(made) and not inputs.follows_interface(made):
        raise BroughtError(
            f"{brought.place} returned a {type(made).__name__}; return a Keras model or a callable "
            "tf.Module"
        )

    def wrapped(model: Any) -> TensorFlowModel:
        result = TensorFlowModel(model, parameters, again)
        result.example, result.file = brought.example_inputs(), brought.place.file
        return result

    return inputs.with_inputs(made, parameters, wrapped)
