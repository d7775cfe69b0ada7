"""Converts JAX and TensorFlow models to TFLite files, and adapts attention masks for int8.

JAX models go through jax2tf, TensorFlow models through `tf.function`. Both become a SavedModel with
the weights as variables, which TensorFlow's converter reads. Inputs and outputs are named by their
positions (`input_00`, `output_00`), because a TFLite file keeps names, but not the order.

Masks contain the lowest float32 number. In an int8 file a tensor has one range of 255 steps: with
-3.4e38 in it, all scores round to the same value. Scores are of order one to ten, and an int8
softmax returns 0 for a score six below the largest.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.models.in_tree import OfInputsAlone
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.models.tflite.files import FP16_WEIGHTS, FP32, INT8

MASK = -32.0

# Number of input sets used to calibrate the ranges of activations.
CALIBRATION_SETS = 16

PhaseTimer = Callable[[str], AbstractContextManager[None]]


def clamp_saved_model(directory: Path) -> int:
    """Replaces the lowest float32 number in the constants of a SavedModel.

    The result of `jax2tf` is an opaque program without constants that TensorFlow could see: use
    `clamp_jax`.

    Returns:
      The number of constants that contained it.
    """
    import tensorflow as tf
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    path, clamped = directory / "saved_model.pb", 0
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta.graph_def for meta in saved.meta_graphs):
        functions = (function.node_def for function in graph.library.function)
        for node in itertools.chain(graph.node, *functions):
            if node.op != "Const" or node.attr["dtype"].type != types_pb2.DT_FLOAT:
                continue
            tame, is_clamped = _tame(tf.make_ndarray(node.attr["value"].tensor))
            if is_clamped:
                clamped += 1
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tame))
    path.write_bytes(saved.SerializeToString(deterministic=True))
    return clamped


def clamp_jax(
    function: Callable[..., Any], count: Callable[[int], None] = lambda _: None
) -> Callable[..., Any]:
    """Returns a JAX function with the lowest float32 number replaced in its constants.

    Args:
      function: function of pytrees of arrays; traced whenever the result is called.
      count: called on each trace with the number of constants that contained the number.
    """
    import jax
    from jax.extend.core import jaxpr_as_fun

    def call(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        tamer = _JaxprTamer()
        outputs = jaxpr_as_fun(tamer.tame(closed))(*jax.tree.leaves(arguments))
        count(tamer.count)
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return call


class _JaxprTamer:
    """Rewrites JAX programs, including nested ones; `count` is the number of changed constants."""

    def __init__(self) -> None:
        self.count = 0

    def tame(self, part: Any) -> Any:
        """Returns a part of a program (a jaxpr, closed or not, a parameter) without the number."""
        from jax.extend.core import ClosedJaxpr, Jaxpr

        if isinstance(part, ClosedJaxpr):
            return part.replace(
                jaxpr=self.tame(part.jaxpr), consts=[self._value(value) for value in part.consts]
            )
        if isinstance(part, Jaxpr):
            return part.replace(
                eqns=[self._equation(equation) for equation in part.eqns],
                outvars=[self._atom(atom) for atom in part.outvars],
            )
        if isinstance(part, tuple | list):
            return type(part)(self.tame(item) for item in part) if _holds_programs(part) else part
        return part

    def _equation(self, equation: Any) -> Any:
        return equation.replace(
            invars=[self._atom(atom) for atom in equation.invars],
            params={name: self.tame(value) for name, value in equation.params.items()},
        )

    def _atom(self, atom: Any) -> Any:
        from jax.extend.core import Literal

        if not isinstance(atom, Literal):
            return atom
        value = self._value(atom.val)
        return atom if value is atom.val else Literal(value, atom.aval)

    def _value(self, value: Any) -> Any:
        if getattr(value, "dtype", np.dtype(np.float32)) != np.float32:
            return value
        tame, is_clamped = _tame(np.asarray(value, np.float32))
        self.count += is_clamped
        return tame if is_clamped else value


def _holds_programs(items: Any) -> bool:
    from jax.extend.core import ClosedJaxpr, Jaxpr

    return any(isinstance(item, ClosedJaxpr | Jaxpr) for item in items)


def _tame(values: Any) -> tuple[Any, bool]:
    """Returns values without the lowest float32 number, and whether they contained it."""
    is_least = values == np.finfo(np.float32).min
    if not np.any(is_least):
        return values, False
    return np.where(is_least, np.float32(MASK), values), True


@contextmanager
def untimed(_: str) -> Iterator[None]:
    """A `PhaseTimer` that does nothing."""
    yield


class NotConvertibleError(Exception):
    """TFLite cannot represent this model in that way; the message gives the reason."""


def adapted(model: Any) -> Any:
    """Returns a JAX model that has `forward` alone with `apply` and `params`; others unchanged.

    As soon as TensorFlow is imported, such a model is taken for TensorFlow's.
    """
    is_jax = "jax" in sys.modules and "tensorflow" not in sys.modules
    return OfInputsAlone(model) if is_jax and not hasattr(model, "apply") else model


def convert(
    model: Any,
    inputs: Sequence[TensorSpec],
    precision: str,
    directory: Path,
    *,
    integer_edges: bool = False,
    keeps_stablehlo: bool = False,
    phase: PhaseTimer = untimed,
    notes: dict[str, Any] | None = None,
) -> bytes:
    """Returns the content of a TFLite file.

    Args:
      model: in JAX (with `apply` and `params`, or `forward` alone) or in TensorFlow (`forward`).
      inputs: shape and type of each input.
      precision: one of `fp32`, `fp16-weights`, `dynamic-range`, `int8`.
      directory: an empty one, for the SavedModel.
      integer_edges: make float inputs and outputs of an int8 file int8, too.
      keeps_stablehlo: keep StableHLO operations in the file instead of TFLite's own.
      phase: times `trace` and `lower`.
      notes: called with changes to the model, if any: `masks_clamped`.

    Raises:
      NotConvertibleError: TFLite does not compute in the model's type, an operation has no
        counterpart, or inputs for calibration are missing.
    """
    model = adapted(model)
    import tensorflow as tf

    clamped: list[int] = []
    with phase("trace"):
        module, function = _traced(
            model, inputs, sixteen_bits=False, count=clamped.append if precision == INT8 else None
        )
    with phase("lower"):
        tf.saved_model.save(module, str(directory), signatures=function)
        if precision == INT8:
            clamped.append(clamp_saved_model(directory))
            if any(clamped) and notes is not None:
                notes["masks_clamped"] = {"to": MASK, "constants": max(clamped)}
        converter = tf.lite.TFLiteConverter.from_saved_model(str(directory))
        # The metadata would differ from run to run.
        converter.exclude_conversion_metadata = True
        if keeps_stablehlo:
            converter.target_spec.supported_ops = [tf.lite.OpsSet.EXPERIMENTAL_STABLEHLO_OPS]
        if precision != FP32:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == FP16_WEIGHTS:
            converter.target_spec.supported_types = [tf.float16]
        if precision == INT8:
            converter.representative_dataset = _calibration(model, CALIBRATION_SETS)
            if integer_edges:
                converter.inference_input_type = converter.inference_output_type = tf.int8
        return _converted(converter)


def save(model: Any, inputs: Sequence[TensorSpec], directory: Path) -> None:
    """Writes a SavedModel whose variables are the weights, of whatever type.

    Args:
      model: see `convert`.
      inputs: shape and type of each input.
      directory: directory to create or fill.
    """
    model = adapted(model)
    import tensorflow as tf

    module, function = _traced(model, inputs, sixteen_bits=True)
    tf.saved_model.save(module, str(directory), signatures=function)


def versions() -> dict[str, str]:
    """Returns the versions of the packages that determine the result of a conversion."""
    versions = {}
    for name in ("tensorflow", "keras", "jax", "flax", "numpy"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _converted(converter: Any) -> bytes:
    from tensorflow.lite.python.convert import ConverterError

    try:
        content: bytes = converter.convert()
    except (ConverterError, RuntimeError) as error:  # the latter when calibrating
        raise NotConvertibleError(
            f"TensorFlow's TFLite converter rejected the model: {_first_reason(str(error))}"
        ) from error
    return content


def _first_reason(message: str) -> str:
    """Returns the most informative line of a converter's message; hundreds may follow it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for mark in ("needs a", "Ops:", "error:"):
        if reason := next((line for line in lines if mark in line), None):
            return reason.rpartition("error:")[2].strip()[:300]
    return (lines[0] if lines else "no message")[:300]


def _traced(
    model: Any,
    inputs: Sequence[TensorSpec],
    *,
    sixteen_bits: bool,
    count: Callable[[int], None] | None = None,
) -> tuple[Any, Any]:
    """Returns a module that holds the weights, and the concrete function that uses them.

    Args:
      model: see `convert`.
      inputs: shape and type of each input.
      sixteen_bits: whether the model may be in a 16-bit type.
      count: if given, the masks of a JAX model are clamped, and it is called with their number.
    """
    import tensorflow as tf

    is_jax = hasattr(model, "apply") and hasattr(model, "params")

    module = tf.Module()
    call = _jax_call(model, module, count) if is_jax else _tensorflow_call(model, module)
    specs = [
        tf.TensorSpec(spec.shape, numpy_dtype(spec.dtype), name=f"input_{index:02d}")
        for index, spec in enumerate(inputs)
    ]

    def named(*values: Any) -> dict[str, Any]:
        outputs = as_tuple(call(*values))
        # Otherwise an output that is also an input would lose its name.
        return {f"output_{index:02d}": tf.identity(item) for index, item in enumerate(outputs)}

    concrete = tf.function(named, autograph=False).get_concrete_function(*specs)
    # Variables that the model holds otherwise, such as a wrapped Keras model's.
    held = {id(leaf.handle) for leaf in module.leaves}
    module.captured = [item for item in concrete.variables if id(item.handle) not in held]
    if not sixteen_bits:
        weights = (*module.leaves, *module.captured)
        types = [element_type_of(item.dtype.as_numpy_dtype) for item in weights]
        _refuse_sixteen_bits([*types, *(spec.dtype for spec in inputs)])
    return module, concrete


def _jax_call(model: Any, module: Any, count: Callable[[int], None] | None) -> Callable[..., Any]:
    """Returns a TensorFlow function with weights stored in `module`."""
    import jax
    import tensorflow as tf
    from jax.experimental import jax2tf

    leaves, structure = jax.tree.flatten(model.params)
    # A flat list, because a SavedModel cannot store a dictionary with numeric keys.
    module.leaves = [tf.Variable(np.asarray(leaf), trainable=False) for leaf in leaves]

    def program(weights: Any, *inputs: Any) -> Any:
        return model.apply(jax.tree.unflatten(structure, weights), *inputs)

    run = jax2tf.convert(
        program if count is None else clamp_jax(program, count),
        with_gradient=False,
        native_serialization_platforms=("cpu",),
    )

    def call(*inputs: Any) -> Any:
        with _no_places():
            return run([leaf.value() for leaf in module.leaves], *inputs)

    return call


@contextmanager
def _no_places() -> Iterator[None]:
    """Removes files and lines from lowered JAX programs, to make the bytes reproducible."""
    import jax

    before = jax.config.jax_traceback_in_locations_limit
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


def _tensorflow_call(model: Any, module: Any) -> Callable[..., Any]:
    """Returns a function with the model's named weights stored in `module`."""
    import tensorflow as tf

    variables = getattr(getattr(model, "layer", model), "variables", ())
    # Only the variables: the converter does not make constants of those inside a Keras layer.
    module.leaves = [item if isinstance(item, tf.Variable) else item.value for item in variables]
    forward: Callable[..., Any] = model.forward
    return forward


def _refuse_sixteen_bits(types: Iterable[str]) -> None:
    """Raises for a 16-bit model: TFLite's CPU kernels would compute in fp32."""
    if narrow := sorted(set(types) & {"f16", "bf16"}):
        raise NotConvertibleError(
            f"the model is in {', '.join(narrow)}, which TFLite computes in fp32 on the CPU; use "
            "the fp32 model, with the compiler fp16 if you want 16-bit weights"
        )


def _calibration(model: Any, count: int) -> Callable[[], Iterator[Mapping[str, Any]]]:
    """Returns the converter's calibration generator; the first input set is made here.

    Raises:
      NotConvertibleError: the model has no calibration inputs.
    """
    offered = getattr(model, "calibration_inputs", None)
    if offered is None:
        raise NotConvertibleError(
            f"int8 needs calibration inputs, but {type(model).__name__} has none; add a method "
            "`calibration_inputs(count)` that yields tuples of arrays for `forward`, or use the "
            "compiler dynamic-range, which needs none"
        )
    sets = [tuple(arrays) for arrays in itertools.islice(offered(count), count)]
    if not sets:
        raise NotConvertibleError(
            f"int8 needs calibration inputs, but `calibration_inputs({count})` of "
            f"{type(model).__name__} yields none"
        )

    def samples() -> Iterator[Mapping[str, Any]]:
        for arrays in sets:
            yield {f"input_{index:02d}": value for index, value in enumerate(arrays)}

    return samples
