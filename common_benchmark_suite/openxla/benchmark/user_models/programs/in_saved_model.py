"""In a worker: a user's TensorFlow SavedModel."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from openxla.benchmark.artifacts.workload_store import TruthCheck
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.user_models.inputs import Array, cross_checked, is_float
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs.program_model import (
    NotWidenedError,
    ProgramModel,
    in_place_of_truth,
    rounded,
)
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.loading import error_line, refusing

TYPES = {
    tf.float64: "f64",
    tf.float32: "f32",
    tf.float16: "f16",
    tf.bfloat16: "bf16",
    tf.int8: "i8",
    tf.int32: "i32",
    tf.int64: "i64",
    tf.bool: "i1",
    tf.uint8: "u8",
}
_NARROW = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})
_USUAL = "serving_default"


class TensorFlowProgram(ProgramModel):
    """A program that TensorFlow runs; subclasses define `forward` and `in_float64`."""

    def in_float64(self, inputs: Sequence[Array]) -> Callable[..., Any]:
        """Returns a function that computes the program in float64.

        Args:
          inputs: float64 inputs, which the function takes as separate arguments.

        Raises:
          NotWidenedError: a part of the program keeps a narrower type.
        """
        raise NotImplementedError

    def try_out(self, *inputs: Array) -> None:
        """Checks the inputs, and that the program is deterministic and free of side effects.

        Raises:
          UserModelError: the program takes other inputs, or cannot be verified.
        """
        super().try_out(*inputs)
        self.run_twice(inputs)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of a run."""
        tf.random.set_seed(seed)
        return arrays_of(self.forward(*inputs))

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; by TensorFlow on the CPU, operation by operation."""
        with tf.device("CPU:0"):
            own = arrays_of(self.forward(*inputs))
            self.without_float64, truth = None, None
            try:
                wide = [v.astype(np.float64) if is_float(v) else v for v in inputs]
                function = self.in_float64(wide)
                truth = arrays_of(function(*wide))
                if any(is_float(v) and v.dtype != np.float64 for v in truth):
                    raise NotWidenedError("an operation returns a type narrower than float64")
                self.note_check(_check(function, wide, truth))
            except Exception as error:
                why = str(error) if isinstance(error, NotWidenedError) else error_line(error)
                self.without_float64 = f"the program has no float64 run: {why}"
            if truth is None or self.without_float64 is not None:
                return in_place_of_truth(own), arrays_of(self.forward(*rounded(inputs)))
        return truth, own


class SavedModelProgram(TensorFlowProgram):
    """The signature of a SavedModel; outputs are sorted by name, like inputs.

    Attributes:
      model: the loaded object, which owns the variables.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        with refusing(f"{self.path} is not a valid SavedModel"):
            self.model = tf.saved_model.load(str(self.path))
            signatures = dict(self.model.signatures)
        if _USUAL not in signatures and len(signatures) != 1:
            raise UserModelError(
                f"{self.path} has {len(signatures)} signatures, and none is named {_USUAL}; save "
                "it with tf.saved_model.save(..., signatures=FUNCTION)"
            )
        self._function = signatures.get(_USUAL) or next(iter(signatures.values()))
        self._specs = dict(sorted(self._function.structured_input_signature[1].items()))
        self.check_types(spec.dtype.as_numpy_dtype for spec in self._specs.values())

    def signature(self) -> Signature:
        """Returns the program's signature."""
        where = self.path.name
        for name, spec in self._specs.items():
            if spec.shape.rank is None:
                raise UserModelError(f"{where}: input {name!r} has an unknown rank")
        specs = self._specs.items()
        tensors = [(name, TYPES.get(s.dtype), tuple(s.shape.as_list())) for name, s in specs]
        return Signature.of(where, tensors)

    @property
    def variables(self) -> tuple[Any, ...]:
        """Variables that the signature reads, which exporters need."""
        return tuple(self._function.variables)

    def forward(self, *inputs: Any) -> Any:
        """Runs the signature."""
        return _call(self._function, self._specs, inputs)

    def in_float64(self, inputs: Sequence[Array]) -> Callable[..., Any]:
        """See `TensorFlowProgram`."""
        function = _in_float64(self._function)
        return lambda *values: _call(function, self._specs, values)


def create_model(**parameters: Any) -> SavedModelProgram:
    """Returns the program of a folder.

    Raises:
      UserModelError: the folder is incomplete, or no signature fits.
    """
    return SavedModelProgram(parameters)


def _check(
    function: Callable[..., Any], wide: Sequence[Array], truth: Sequence[Array]
) -> TruthCheck:
    """Compares TensorFlow's kernels with XLA's, if XLA accepts the program."""
    second = None
    with contextlib.suppress(tf.errors.OpError, ValueError, TypeError):
        compiled = tf.function(function, jit_compile=True, autograph=False)
        second = arrays_of(compiled(*map(tf.convert_to_tensor, wide)))
    routes = ("TensorFlow", "TensorFlow by XLA")
    return cross_checked(truth, second, routes=routes, where="the program")


def _call(function: Callable[..., Any], specs: Any, inputs: Sequence[Any]) -> Any:
    tensors = map(tf.convert_to_tensor, inputs)
    outputs = tuple(tf.nest.flatten(function(**dict(zip(specs, tensors, strict=True)))))
    return outputs[0] if len(outputs) == 1 else outputs


def arrays_of(outputs: Any) -> list[Array]:
    """Returns the leaves of a program's return value, as arrays."""
    return [np.asarray(value) for value in tf.nest.flatten(outputs)]


def _in_float64(function: Any) -> Callable[..., Any]:
    """Returns a function that computes a signature in float64.

    Variables become constants of a graph, and all types in the graph become float64.
    """
    frozen = convert_variables_to_constants_v2(function)
    graph = frozen.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    for node in nodes:
        for value in node.attr.values():
            _widen(value)
    for inner in graph.library.function:
        for argument in (*inner.signature.input_arg, *inner.signature.output_arg):
            if argument.type in _NARROW:
                argument.type = types_pb2.DT_DOUBLE
    wrapped = _wrapped(
        graph, [tensor.name for tensor in frozen.inputs], [t.name for t in frozen.outputs]
    )

    # The graph takes the signature's keyword arguments sorted by name.
    return lambda **arguments: wrapped(*(value for _, value in sorted(arguments.items())))


def _wrapped(graph: graph_pb2.GraphDef, takes: list[str], gives: list[str]) -> Any:
    imported = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(graph, name=""), []
    )
    whole = imported.graph
    return imported.prune(
        [whole.as_graph_element(name) for name in takes],
        [whole.as_graph_element(name) for name in gives],
    )


def _widen(value: Any) -> None:
    if value.type in _NARROW:
        value.type = types_pb2.DT_DOUBLE
    for place, kind in enumerate(value.list.type):
        if kind in _NARROW:
            value.list.type[place] = types_pb2.DT_DOUBLE
    if value.HasField("tensor") and value.tensor.dtype in _NARROW:
        wide = tf.make_ndarray(value.tensor).astype(np.float64)
        value.tensor.CopyFrom(tf.make_tensor_proto(wide, shape=wide.shape))
