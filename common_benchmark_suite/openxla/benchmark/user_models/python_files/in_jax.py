"""In a worker: a user's JAX model.

The callable may return a `flax.nnx` module; a pair of a pure function `f(params, *inputs)` (or a
`flax.linen` module) and its parameters; or a function of the inputs alone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.training.in_jax import TrainableModel
from openxla.benchmark.user_models import inputs
from openxla.benchmark.user_models.inputs import Array, UserModel
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.python_files.call_form import flatten
from openxla.benchmark.user_models.python_files.loading import UserFile
from openxla.benchmark.user_models.python_files.training import OwnTrainingModel

_NARROW = {"float16": "fp16", "bfloat16": "bf16"}
_NUMBERS = (jax.Array, np.ndarray, np.generic, int, float, complex)


class JaxTrees:
    """`jax.tree_util`, in which libraries register their own containers."""

    def flatten(
        self, tree: Any, is_leaf: Callable[[Any], bool]
    ) -> tuple[list[tuple[Sequence[Any], Any]], Any]:
        """See `Trees`."""
        flat: Any = jax.tree_util.tree_flatten_with_path(tree, is_leaf)
        return flat  # type: ignore[no-any-return]

    def unflatten(self, leaves: list[Any], structure: Any) -> Any:
        """See `Trees`."""
        return jax.tree_util.tree_unflatten(structure, leaves)

    def register(self, dataclass: type) -> None:
        """See `Trees`."""
        jax.tree_util.register_dataclass(dataclass)


class JaxModel(UserModel):
    """A pure function and its weights; its outputs are the arrays in the return value.

    Attributes:
      params: a tree of arrays, in the model's type.

    Args:
      function: takes the weights, then the user's arguments.
      params: the weights.
      parameters: parameters of the case.
      called: callable with the signature of the user's arguments.
    """

    trees = JaxTrees()

    def __init__(
        self,
        function: Callable[..., Any],
        params: Any,
        parameters: Parameters,
        called: Callable[..., Any],
    ) -> None:
        self.model_parameters = parameters
        self._called = called
        dtype = numpy_dtype(element_type(parameters["data_type"]))
        self.params = jax.tree.map(lambda leaf: _in_type(leaf, dtype), params)
        self._function = function

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Runs the model with the given weights; pure, to be jitted."""
        output = self.call(partial(self._function, params), inputs)
        leaves = [leaf for _, leaf in flatten(output, self.trees)[0]]
        arrays = tuple(leaf for leaf in leaves if isinstance(leaf, _NUMBERS))
        return arrays[0] if len(arrays) == 1 else arrays

    def forward(self, *inputs: Any) -> Any:
        """Runs the model with its own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))

    def called(self) -> Any:
        """Returns the callable that takes the user's arguments."""
        return self._called

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of a run; JAX uses keys held by the model instead of a seed."""
        return [np.asarray(leaf) for leaf in as_tuple(self.forward(*inputs))]


class JaxTrainingModel(OwnTrainingModel, TrainableModel):
    """A model trained with the loss in its file.

    `params` holds all its arrays by name. The loss gets an nnx module, or a function of the inputs.
    """

    trees = JaxTrees()

    def __init__(self, made: Any, brought: UserFile, parameters: Parameters) -> None:
        self.take_loss(brought, parameters)
        trained, rest, self._model_of = _trainable(made, brought)
        flat, self._structure = jax.tree_util.tree_flatten_with_path((trained, rest))
        names = [jax.tree_util.keystr(path[1:]) or "params" for path, _ in flat]
        self._names = [f"{name} {path[0].idx}" for name, (path, _) in zip(names, flat, strict=True)]
        leaves = [_in_type(leaf, np.dtype(np.float32)) for _, leaf in flat]
        self.params = dict(zip(self._names, leaves, strict=True))
        self.paths = {name: (name,) for name in self._names}
        self.trained = [
            name
            for name, leaf in self.params.items()
            if name.endswith(" 0") and jnp.issubdtype(leaf.dtype, jnp.floating)
        ]
        self.judged = self.trained
        self.network = self.masters = self
        if not self.trained:
            raise UserModelError(f"{brought.place} has no parameters to train")

    def loss(self, weights: Mapping[str, Any], params: Any, *batch: Any) -> Any:
        """See `TrainableModel`."""
        leaves = [{**params, **weights}[name] for name in self._names]
        trained, rest = jax.tree_util.tree_unflatten(self._structure, leaves)
        return self.file_loss.of(self._model_of(trained, rest), batch)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of the steps."""
        return [np.asarray(leaf) for leaf in as_tuple(self.forward(*inputs))]


def create_model(**parameters: Any) -> Any:
    """Returns the model of a file.

    Raises:
      UserModelError: the model cannot be made, or JAX cannot run it.
    """
    brought = UserFile(parameters, lambda _: None)
    made = brought.make(of_inputs=True)
    if "train" in parameters:
        return JaxTrainingModel(made, brought, parameters)

    def wrapped(model: Any) -> JaxModel:
        function, params, called = _split(model, brought)
        result = JaxModel(function, params, parameters, called)
        result.take_example(brought)
        return result

    return inputs.with_inputs(made, parameters, wrapped)


def _split(made: Any, brought: UserFile) -> tuple[Callable[..., Any], Any, Callable[..., Any]]:
    """Returns a pure function of weights and inputs, the weights, and a function of the inputs."""
    if isinstance(made, tuple) and len(made) == 2:
        function, params = made
        if hasattr(function, "apply"):
            return function.apply, params, function
        if callable(function):
            return function, params, partial(function, params)
    elif nnx := _nnx_of(made):
        made.eval()  # inference mode of dropout and batch norm
        # The state of random generators is not a weight, and inference draws no numbers.
        graph, keys, state = nnx.split(made, nnx.RngState, ...)
        return (
            lambda weights, *args, **keywords: nnx.merge(graph, keys, weights)(*args, **keywords),
            state,
            made,
        )
    elif callable(made):
        return (lambda _, *args, **keywords: made(*args, **keywords)), (), made
    raise UserModelError(
        f"{brought.place} returned a {type(made).__name__}; return a flax.nnx module, a pair of a "
        "pure function f(params, *inputs) and its params, or a function of the inputs"
    )


def _trainable(made: Any, brought: UserFile) -> tuple[Any, Any, Callable[[Any, Any], Any]]:
    """Returns parameters, other arrays, and a function that rebuilds the model from both."""
    if nnx := _nnx_of(made):
        made.eval()
        graph, keys, params, rest = nnx.split(made, nnx.RngState, nnx.Param, ...)
        return params, rest, lambda params, rest: nnx.merge(graph, keys, params, rest)
    function, params, _ = _split(made, brought)
    if isinstance(params, Mapping) and {"params", "batch_stats"} <= params.keys():  # of linen
        rest = {key: value for key, value in params.items() if key != "params"}
        return params["params"], rest, lambda own, rest: partial(function, {**rest, "params": own})
    return params, (), lambda params, _: partial(function, params)


def _nnx_of(made: Any) -> Any:
    """Returns flax.nnx if the model is one of its modules, else None."""
    try:
        from flax import nnx
    except ModuleNotFoundError:
        return None
    return nnx if isinstance(made, nnx.Module) else None


def _in_type(leaf: Any, dtype: np.dtype[Any]) -> Any:
    """Converts a float32 array to the model's type; returns others unchanged.

    Raises:
      UserModelError: it has another 16-bit type, in which the program would compute.
    """
    array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    if array.dtype == jnp.float32:
        return array.astype(dtype)
    if array.dtype != dtype and (own := _NARROW.get(array.dtype.name)):
        raise UserModelError(
            f"the weights are {own}, not {dtype.name}; return float32, or pass --dtype {own}"
        )
    return array
