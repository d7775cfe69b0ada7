"""In a worker: a user's Keras or TensorFlow model."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import optree
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.training.in_tensorflow import TrainableModel
from openxla.benchmark.user_models import inputs
from openxla.benchmark.user_models.inputs import Array, UserModel
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.python_files.call_form import CallForm, flatten
from openxla.benchmark.user_models.python_files.loading import UserFile, error_line
from openxla.benchmark.user_models.python_files.training import OwnTrainingModel

_NAMESPACE = "common-benchmark-suite"


class TensorFlowTrees:
    """OpTree, which Keras uses."""

    def flatten(
        self, tree: Any, is_leaf: Callable[[Any], bool]
    ) -> tuple[list[tuple[Sequence[Any], Any]], Any]:
        """See `Trees`."""
        paths, leaves, structure = optree.tree_flatten_with_path(
            tree, is_leaf, none_is_leaf=True, namespace=_NAMESPACE
        )
        return list(zip(paths, leaves, strict=True)), structure

    def unflatten(self, leaves: list[Any], structure: Any) -> Any:
        """See `Trees`."""
        return optree.tree_unflatten(structure, leaves)

    def register(self, dataclass: type) -> None:
        """See `Trees`."""
        names = tuple(field.name for field in dataclasses.fields(dataclass) if field.init)
        optree.register_pytree_node(
            dataclass,
            lambda value: ([getattr(value, name) for name in names], None, names),
            lambda _, children: dataclass(**dict(zip(names, children, strict=True))),
            namespace=_NAMESPACE,
        )


class TensorFlowModel(UserModel):
    """A Keras model, or another TensorFlow callable; outputs are the arrays in the return value.

    Args:
      made: the object that the file's callable returned.
      parameters: parameters of the case.
      again: rebuilds the model under a Keras policy, for the float64 run; None if impossible.
    """

    trees = TensorFlowTrees()

    def __init__(
        self, made: Any, parameters: Parameters, again: Callable[[str], Any] | None
    ) -> None:
        self.model_parameters = parameters
        self.model = made
        self._again = again
        self._forms: list[tuple[Any, Any]] = []

    def forward(self, *inputs: Any) -> Any:
        """Runs the model, eagerly or as part of the `tf.function` that calls it."""
        tensors = tuple(map(tf.convert_to_tensor, inputs))
        self._forms = [(tensor.shape, tensor.dtype) for tensor in tensors]
        leaves = [leaf for _, leaf in flatten(self.call(self._run, tensors), self.trees)[0]]
        arrays = tuple(leaf for leaf in leaves if tf.is_tensor(leaf) or hasattr(leaf, "__array__"))
        return arrays[0] if len(arrays) == 1 else arrays

    def called(self) -> Any:
        """Returns the callable that takes the user's arguments, for its signature."""
        return self.model.call if isinstance(self.model, keras.Layer) else self.model

    def split(self, example: Any) -> tuple[CallForm, list[Any]]:
        """See `UserModel.split`; a functional model takes all its inputs as one argument."""
        if _is_functional(self.model) and isinstance(example, tuple):
            example = (list(example) if len(example) > 1 else example[0],)
        elif _is_functional(self.model):
            example = (example,)
        return super().split(example)

    def _run(self, *args: Any, **keywords: Any) -> Any:
        """Runs the model, without dropout."""
        if not isinstance(self.model, keras.Layer):
            return self.model(*args, **keywords)
        if _is_functional(self.model) and len(args) > 1:
            args = (list(args),)
        return self.model(*args, **{**keywords, "training": False})

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of an eager run."""
        tf.random.set_seed(seed)
        return [np.asarray(value) for value in as_tuple(self.forward(*inputs))]

    def as_float64(self) -> "TensorFlowModel":
        """Returns a copy that computes in float64, with the weights of this model.

        The file builds the copy under Keras's float64 policy. Keras creates variables when a model
        is first run.

        Raises:
          UserModelError: a variable does not follow the policy.
        """
        if hasattr(self.model, "as_float64"):
            return self._rewrap(self.model.as_float64())
        if self._again is None:
            raise UserModelError("the model is already float64")
        wide = self._rewrap(self._again("float64"))
        zeros = [tf.zeros(s, tf.float64 if d.is_floating else d) for s, d in self._forms]
        try:
            wide.forward(*zeros)
            _copy_variables(self.model.variables, wide.model.variables)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise UserModelError(
                "cannot create the model in float64, which is needed to verify its outputs: "
                f"{error_line(error)}; add a method as_float64() to the model"
            ) from error
        return wide

    def _rewrap(self, model: Any) -> "TensorFlowModel":
        """Returns another model, wrapped and called like this one."""
        like = TensorFlowModel(model, self.model_parameters, None)
        like.form = self.form
        return like


def _is_functional(model: Any) -> bool:
    return isinstance(model, keras.Model) and hasattr(model, "_inputs_struct")


def _copy_variables(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Assigns the variables of a model to its float64 copy's variables.

    Raises:
      TypeError: a variable is not float64.
    """
    if len(theirs) != len(ours) or any(map(_is_narrow, theirs)):
        raise TypeError("variables do not follow Keras's policy")
    for target, source in zip(theirs, ours, strict=True):
        target.assign(tf.cast(tf.convert_to_tensor(source), target.dtype))


def _is_narrow(variable: Any) -> bool:
    dtype = tf.as_dtype(variable.dtype)
    return bool(dtype.is_floating and dtype != tf.float64)


class TensorFlowTrainingModel(OwnTrainingModel, TrainableModel):
    """A Keras model, or a module with trainable variables, trained with the loss in its file.

    Args:
      made: the object that the file's callable returned.
      brought: the file.
      parameters: parameters of the case.
      again: rebuilds the model under a Keras policy.
    """

    trees = TensorFlowTrees()

    def __init__(
        self, made: Any, brought: UserFile, parameters: Parameters, again: Callable[[str], Any]
    ) -> None:
        compiled = isinstance(made, keras.Model) and made.compiled
        self.take_loss(brought, parameters, _compiled_loss if compiled else None)
        self.network = self.masters = made
        self._again = again
        self.run_once()
        variables = getattr(made, "trainable_variables", ())
        self.trained = [f"{place} {variable.name}" for place, variable in enumerate(variables)]
        self.judged = self.trained
        if not self.trained:
            raise UserModelError(f"{brought.place} has no trainable variables")

    @property
    def variables(self) -> Any:
        """The model's variables, under the name that backends look for."""
        return self.network.variables

    def named_variables(self, network: Any) -> Mapping[str, tf.Variable]:
        """See `TrainableModel`; two instances of a model give the same names."""
        own = [getattr(variable, "value", variable) for variable in network.trainable_variables]
        tensors = [
            value if isinstance(value, tf.Variable) else variable
            for value, variable in zip(own, network.trainable_variables, strict=True)
        ]
        return dict(zip(self.trained, tensors, strict=True))

    def loss(self, *batch: Any) -> Any:
        """See `TrainableModel`."""
        return self.file_loss.of(self.network, batch)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of the steps."""
        tf.random.set_seed(seed)
        return [value.numpy() for value in as_tuple(self.forward(*inputs))]

    def as_float64(self) -> "TensorFlowTrainingModel":
        """Returns a copy that computes in float64; see `TensorFlowModel.as_float64`."""
        wide = copy.copy(self)
        wide.network = wide.masters = self._again("float64")
        wide.run_once(tf.float64)
        _copy_variables(self.network.variables, wide.network.variables)
        return wide

    def run_once(self, dtype: Any = tf.float32) -> None:
        """Runs the model once, which makes Keras create the variables."""
        assert self.example is not None
        tensors = [tf.convert_to_tensor(value[0]) for value in self.example]
        self.loss(*(tf.cast(x, dtype) if x.dtype.is_floating else x for x in tensors))


def _compiled_loss(model: Any, x: Any, y: Any) -> Any:
    """Returns the loss that a Keras model was compiled with."""
    return model.compute_loss(x=x, y=y, y_pred=model(x, training=False))


def create_model(**parameters: Any) -> Any:
    """Returns the model of a file.

    Raises:
      UserModelError: the model cannot be made, or is not callable.
    """
    brought = UserFile(parameters, keras.utils.set_random_seed)

    def again(policy: str) -> Any:
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            return brought.make()
        finally:
            keras.config.set_dtype_policy(before)

    made = again(numpy_dtype(element_type(parameters["data_type"])).name)
    if "train" in parameters:
        return TensorFlowTrainingModel(made, brought, parameters, again)
    if not callable(made) and not inputs.follows_interface(made):
        raise UserModelError(
            f"{brought.place} returned a {type(made).__name__}; return a Keras model or a callable "
            "tf.Module"
        )

    def wrapped(model: Any) -> TensorFlowModel:
        result = TensorFlowModel(model, parameters, again)
        result.take_example(brought)
        return result

    return inputs.with_inputs(made, parameters, wrapped)
